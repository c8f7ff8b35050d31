"""Fit null models of single genes, of query pairs, and of strains that were measured in another medium."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dglcell.baselines.beyond_deletions import Conditions, refuse_strengths
from dglcell.baselines.problem import ANY, MORE, Family, NullModel, Problem, each, labelled
from dglcell.data.columns import CONDITION, MEDIUM, Column
from dglcell.data.partition import Keys, strain_keys
from dglcell.data.strains import Strains


@dataclass
class TrainingMean(NullModel):
    """Predict y = mean of the training labels."""

    mean: float = field(default=0.0, init=False)

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from the labelled strains; missing labels (NaN) are ignored."""
        self.mean = float(labelled(strains, y)[1].mean())
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        return np.full(len(strains), self.mean)


@dataclass
class AdditiveRidge(NullModel):
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
        """Learn from the labelled strains; missing labels (NaN) are ignored."""
        from sklearn.linear_model import Ridge  # is slow to import, and needed to fit only

        strains, labels = labelled(strains, y)
        self.conditions = Conditions.of(strains) if strains.conditions else None
        design = sparse.csr_array(strains.design)
        if self.conditions is not None:
            design = sparse.csr_array(sparse.hstack([design, self.conditions.columns(strains)]))
        ridge = Ridge(self.alpha, solver="sparse_cg", tol=1e-9).fit(design, labels)
        self.effects, self.condition_effects = np.split(ridge.coef_, [len(strains.names)])
        mean_effect = float(self.conditions.mean @ self.condition_effects) if self.conditions is not None else 0.0
        self.intercept = float(ridge.intercept_) + mean_effect
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
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
class QueryPairMean(NullModel):
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
class SameStrain(NullModel):
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
        of_medium = {MEDIUM, *strains.computed}
        self.others = Conditions(tuple(one for one in Conditions.of(strains).known if one.name not in of_medium))
        self.deviations = Shrunk.of(self._keys(strains), labels - self.ridge.predict(strains), self.pseudo_count)
        return self

    def _keys(self, strains: Strains) -> Keys:
        """Return a key of each strain, [S], which does not depend on its medium, nor on genes of which all is left."""
        values = {Column(CONDITION, one.name): one.values(strains) for one in self.others.known}
        return strain_keys(strains.with_targets(strains.left() < 1).with_(columns=values))

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        return self.ridge.predict(strains) + self.deviations(self._keys(strains))


def _one_medium(problem: Problem) -> str | None:
    return "needs strains in several media" if len(problem.train.conditions.get(MEDIUM, ())) < 2 else None


TRAINING_MEAN = Family(lambda of: iter([TrainingMean().fit(of.train, of.y_train)]), about=ANY)
ADDITIVE = Family(each(AdditiveRidge, 0.1, 1.0, 10.0, 100.0, 1000.0), about=ANY)
QUERY_PAIR = Family(each(QueryPairMean, 0.5, 2.0, 8.0, 32.0))
SAME_STRAIN = Family(each(SameStrain, 0.0, 0.5, 2.0), _one_medium, about=MORE)
