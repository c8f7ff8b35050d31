"""Fit null models of single genes, of query pairs, and of strains that were measured in another medium."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, cg

from dglcell.baselines.beyond_deletions import Conditions, refuse_strengths
from dglcell.data.columns import CONDITION, MEDIUM, Column
from dglcell.data.partition import Keys, strain_keys
from dglcell.data.strains import Strains
from dglcell.errors import DataError


def labelled(strains: Strains, y: NDArray[np.floating]) -> tuple[Strains, NDArray[np.float64]]:
    """Return the strains whose label is not NaN, with their labels in float64.

    Raises:
        DataError: the lengths differ, or no strain has a label.
    """
    if len(y) != len(strains):
        raise DataError("null models: labels do not match the strains", got=len(y), expected=len(strains))
    rows = np.flatnonzero(~np.isnan(y))
    if len(rows) == 0:
        raise DataError(
            "null models: no training strain has a label",
            got=f"{len(y):,} missing labels",
            expected="at least one measured value",
            do="choose another phenotype or another split",
        )
    labels = np.asarray(y, dtype=np.float64)
    return (strains, labels) if len(rows) == len(labels) else (strains.take(rows), labels[rows])


MOST_OPERATIONS = 2e12
"""Floating-point operations of a fit: a minute or two on one core."""


def why_too_long(operations: float) -> str | None:
    """Say why a fit of so many operations is left out; None if it is not."""
    if operations <= MOST_OPERATIONS:
        return None
    return f"would need {operations:.0e} operations, and is limited to {MOST_OPERATIONS:.0e}"


@dataclass
class TrainingMean:
    """Predict y = mean of the training labels."""

    mean: float = field(default=0.0, init=False)

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from the labelled strains; missing labels (NaN) are ignored."""
        self.mean = float(labelled(strains, y)[1].mean())
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S]."""
        return np.full(len(strains), self.mean)


RESIDUAL = 1e-8
MAX_ITERATIONS = 2000


@dataclass
class AdditiveRidge:
    """Predict y = intercept + sum of the effects of the deleted genes, by ridge regression with an intercept not
    penalised.

    A gene that no training strain deletes has effect 0. Of a weakened gene the effect counts by what is lost, 1 minus
    the strength. Conditions have effects, too: each category has one, and each number, which is standardised. A
    category that no training strain has does what the mean training strain's does.

    Attributes:
        alpha: penalty on squared effects; a gene's effect is shrunk as if it had been measured ``alpha`` more
            times with effect 0.
    """

    alpha: float = 1.0
    intercept: float = field(default=0.0, init=False)
    effects: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), init=False, repr=False)
    conditions: Conditions | None = field(default=None, init=False, repr=False)
    condition_effects: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), init=False, repr=False)

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Solve the centred normal equations by conjugate gradients; missing labels (NaN) are ignored."""
        strains, labels = labelled(strains, y)
        self.conditions = Conditions.of(strains) if strains.conditions else None
        design, count = strains.design, len(labels)
        if self.conditions is not None:
            design = sparse.hstack([design, self.conditions.columns(strains)], format="csr")
        gram = (design.T @ design).tocsr()
        gene_mean = np.asarray(design.mean(axis=0)).ravel()
        # The centred design is dense; its Gram matrix is the sparse one minus a rank-one term.
        diagonal = gram.diagonal() - count * gene_mean**2 + self.alpha
        size = design.shape[1]
        normal = LinearOperator(
            (size, size),
            matvec=lambda w: gram @ w - count * gene_mean * (gene_mean @ w) + self.alpha * w,
            dtype=np.float64,
        )
        jacobi = LinearOperator((size, size), matvec=lambda w: w / diagonal, dtype=np.float64)
        mean = float(labels.mean())
        right = design.T @ (labels - mean)
        effects, _ = cg(normal, right, rtol=RESIDUAL, maxiter=MAX_ITERATIONS, M=jacobi)
        self.effects, self.condition_effects = np.split(effects, [len(strains.names)])
        self.intercept = mean - float(gene_mean[: len(strains.names)] @ self.effects)
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S]."""
        return self.intercept + strains.design @ self.effects + self.of_conditions(strains)

    def of_conditions(self, strains: Strains) -> NDArray[np.float64] | float:
        """Return the effects of the conditions of strains, [S], whose mean over the training strains is 0.

        It is 0 where these had no conditions.
        """
        if self.conditions is None:
            return 0.0
        return (
            self.conditions.columns(strains) @ self.condition_effects
        ) - self.conditions.mean @ self.condition_effects


@dataclass(frozen=True)
class Shrunk:
    """Hold the means of values that share a key, shrunk to 0.

    Attributes:
        keys: [K] ascending.
        means: [K] of the values with each key, and of ``pseudo_count`` zeros (`of`).
    """

    keys: NDArray[np.integer]
    means: NDArray[np.float64]

    @classmethod
    def of(cls, keys: NDArray[np.integer], values: NDArray[np.float64], pseudo_count: float) -> Self:
        """Return the means of ``values``, [n], by their ``keys``, [n]."""
        found, inverse = np.unique(keys, return_inverse=True)
        sums, count = np.bincount(inverse, values, len(found)), np.bincount(inverse, minlength=len(found))
        return cls(found, sums / (count + pseudo_count))

    def __call__(self, keys: NDArray[np.integer], unknown: float = 0.0) -> NDArray[np.float64]:
        """Return the mean of each key, [S], and ``unknown`` for a key that is not known."""
        if len(self.keys) == 0:
            return np.full(len(keys), unknown)
        place = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.means[place], unknown)


@dataclass
class QueryPairMean:
    """Predict y = mean label of the strain's query pair, shrunk to the training mean.

    The query pair is the first two genes in stored order, unordered; a pair is its own query pair. A strain
    with fewer deletions, or with a query pair not seen in training, gets the training mean.

    Attributes:
        pseudo_count: number of fictitious strains with the training mean added to every query pair.
    """

    pseudo_count: float = 1.0
    mean: float = field(default=0.0, init=False)
    deviations: Shrunk = field(init=False, repr=False)

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from the labelled strains; missing labels (NaN) are ignored."""
        strains, labels = labelled(strains, y)
        self.mean = float(labels.mean())
        rows, keys = _query_pairs(strains)
        self.deviations = Shrunk.of(keys, labels[rows] - self.mean, self.pseudo_count)
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S]."""
        prediction = np.full(len(strains), self.mean)
        rows, keys = _query_pairs(strains)
        prediction[rows] += self.deviations(keys)
        return prediction


def _query_pairs(strains: Strains) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the strains with a query pair, and one integer for each pair."""
    rows = np.flatnonzero(refuse_strengths(strains, "query-pair mean").num_deletions >= 2)
    low, high = strains.first_two(rows)
    return rows, low * len(strains.names) + high


@dataclass
class SameStrain:
    """Predict y = what the same strain had in other media, apart from the mean difference between the media.

    Strains are the same if their genes, strengths and all conditions but the medium are equal. The additive ridge knows
    the effects of media, and predicts strains that no training strain equals.

    Attributes:
        pseudo_count: number of fictitious measurements of every strain, as the additive ridge predicts them.
    """

    pseudo_count: float = 0.0
    ridge: AdditiveRidge = field(init=False, repr=False)
    others: Conditions = field(init=False, repr=False)
    deviations: Shrunk = field(init=False, repr=False)

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from the labelled strains; missing labels (NaN) are ignored."""
        strains, labels = labelled(strains, y)
        self.ridge = AdditiveRidge().fit(strains, labels)
        self.others = Conditions(tuple(one for one in Conditions.of(strains).known if one.name != MEDIUM))
        self.deviations = Shrunk.of(self._keys(strains), labels - self.ridge.predict(strains), self.pseudo_count)
        return self

    def _keys(self, strains: Strains) -> Keys:
        """Return a key of each strain, [S], which does not depend on its medium, nor on genes of which all is left."""
        values = {Column(CONDITION, one.name): one.values(strains) for one in self.others.known}
        return strain_keys(strains.with_targets(strains.left() < 1).with_(columns=values))

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S]."""
        return self.ridge.predict(strains) + self.deviations(self._keys(strains))


def why_one_medium(strains: Strains) -> str | None:
    """Say why no strain can have been measured in another medium; None if it can."""
    return "needs strains in several media" if len(strains.conditions.get(MEDIUM, ())) < 2 else None
