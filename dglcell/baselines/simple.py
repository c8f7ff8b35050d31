"""Fit baselines of genes, other media and computed growth; and those of a fitness: of products and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dglcell.baselines.problem import (
    ANY,
    MORE,
    SIMULATED,
    Baseline,
    Covariates,
    Family,
    Problem,
    Reactions,
    blocks,
    each,
    refuse_activities,
)
from dglcell.data.columns import COMPUTED, COVARIATE, MEDIUM, Column, Keys
from dglcell.data.strains import Strains
from dglcell.errors import DataError


@dataclass
class TrainingMean(Baseline):
    """Predict y = mean of the training labels."""

    mean: float

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        return np.full(len(strains), self.mean)


@dataclass
class AdditiveRidge(Baseline):
    """Predict y = intercept + sum of the effects of the deleted genes (ridge regression).

    A gene that no training strain deletes has effect 0. Of a weakened gene the effect counts by what is lost, 1 minus
    the activity. Covariates have effects, too: each category has one, and each number, which is standardised. A
    category that no training strain has does what the mean training strain's does.
    """

    #: penalty; a gene's effect is shrunk as if it had been measured ``alpha`` more times with effect 0
    alpha: float = 1.0
    intercept: float = field(default=0.0, init=False)
    effects: NDArray[np.float64] = field(init=False, repr=False)
    covariates: Covariates | None = field(init=False, repr=False)
    covariate_effects: NDArray[np.float64] = field(init=False, repr=False)

    def fit(self, strains: Strains, y: NDArray[np.float64]) -> Self:
        from sklearn.linear_model import Ridge  # is slow to import, and needed to fit only

        self.covariates = Covariates.of(strains) if strains.covariates else None
        design = sparse.csr_array(strains.design)
        if self.covariates is not None:
            design = sparse.csr_array(sparse.hstack([design, self.covariates.columns(strains)]))
        ridge = Ridge(self.alpha, solver="sparse_cg", tol=1e-9).fit(design, y)
        self.effects, self.covariate_effects = np.split(ridge.coef_, [len(strains.names)])
        mean_effect = float(self.covariates.mean @ self.covariate_effects) if self.covariates is not None else 0.0
        self.intercept = float(ridge.intercept_) + mean_effect
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        return self.intercept + strains.design @ self.effects + self.of_covariates(strains)

    def of_covariates(self, strains: Strains) -> NDArray[np.float64] | float:
        """Return the effects of the covariates of strains, [S], whose mean over the training strains is 0."""
        if self.covariates is None:
            return 0.0
        effects: NDArray[np.float64] = self.covariates.columns(strains) @ self.covariate_effects
        return effects - self.covariates.mean @ self.covariate_effects


@dataclass(frozen=True)
class Shrunk:
    """Hold the means of values that share a key, shrunk to 0."""

    keys: NDArray[np.integer]  #: [K] ascending
    means: NDArray[np.float64]  #: [K] of the values with each key, and of ``pseudo_count`` zeros (`of`)

    @classmethod
    def of(cls, keys: NDArray[np.integer], values: NDArray[np.float64], pseudo_count: float) -> Self:
        """Return the means of ``values``, [n], by their ``keys``, [n]."""
        found, inverse = np.unique(keys, return_inverse=True)
        sums, count = np.bincount(inverse, values, len(found)), np.bincount(inverse, minlength=len(found))
        return cls(found, sums / (count + pseudo_count))

    def __call__(self, keys: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the mean of each key, [S], and 0 for a key that is not known."""
        place = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.means[place], 0.0)


@dataclass
class SameStrain(Baseline):
    """Predict y = what the same strain had in other media, apart from the mean difference between the media.

    Strains are the same if their genes, activities and all covariates but the medium are equal. The additive ridge
    knows the effects of media, and predicts strains that no training strain equals.
    """

    pseudo_count: float = 0.0  #: number of fictitious measurements of every strain, as the additive ridge predicts them
    ridge: AdditiveRidge = field(init=False, repr=False)
    others: Covariates = field(init=False, repr=False)
    deviations: Shrunk = field(init=False, repr=False)

    def fit(self, strains: Strains, y: NDArray[np.float64]) -> Self:
        self.ridge = AdditiveRidge().fit(strains, y)
        of_medium = {MEDIUM, *strains.computed}
        self.others = Covariates(tuple(one for one in Covariates.of(strains).known if one.name not in of_medium))
        self.deviations = Shrunk.of(self._keys(strains), y - self.ridge.predict(strains), self.pseudo_count)
        return self

    def _keys(self, strains: Strains) -> Keys:
        """Return a key of each strain, [S], which does not depend on its medium, nor on genes of which all is left."""
        values = {Column(COVARIATE, one.name): one.values(strains) for one in self.others.known}
        return strains.with_targets(strains.left() < 1).with_(columns=values).strain_keys

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        return self.ridge.predict(strains) + self.deviations(self._keys(strains))


TRAINING_MEAN = Family(lambda of: iter([TrainingMean(float(of.y_train.mean()))]), about=ANY)
ADDITIVE = Family(each(AdditiveRidge, 0.1, 1.0, 10.0, 100.0, 1000.0), about=ANY)
SAME_STRAIN = Family(
    each(SameStrain, 0.0, 0.5, 2.0),
    lambda of: None if len(of.train.covariates.get(MEDIUM, ())) > 1 else "needs strains in several media",
    about=MORE,
)


MOST_NEGATIVE = 0.01
"""Noise may take this share of the labels below zero."""


def not_fitness_like(y: NDArray[np.floating], most: float = MOST_NEGATIVE) -> str | None:
    """Say why labels cannot be a fitness, which is hardly ever negative; None if they can."""
    measured = y[~np.isnan(y)]
    if (negative := (measured < 0).mean()) > most:
        share = f"{negative:.1%} of the labels are negative (at most {most:.0%})"
        return f"is for fitness-like phenotypes, and {share}"
    if np.median(measured) <= 0:
        return "is for fitness-like phenotypes, and the median of the labels is not positive"
    return None


ROUNDS = 100
STEP = 1e-4


@dataclass
class Multiplicative(Baseline):
    """Predict y = wild type · product of the effects of the deleted genes: what has no genetic interaction.

    A gene's effect is the label of its single deletion, relative to the wild type, where that is measured. Effects of
    other genes are estimated by least squares from the strains that delete them, gene by gene with the others held.
    """

    #: penalty; an effect is shrunk towards 1 as if it had been measured ``alpha`` more times without any
    alpha: float = 1.0
    wild_type: float = field(default=1.0, init=False)
    effects: NDArray[np.float64] = field(init=False, repr=False)

    def fit(self, strains: Strains, y: NDArray[np.float64]) -> Self:
        # Of strains with the fewest deletions, or of all where noise makes that no fitness.
        fewest = float(np.median(y[strains.num_deletions == strains.num_deletions.min()]))
        self.wild_type = fewest if fewest > 0 else float(np.median(y))
        relative, size = y / self.wild_type, len(strains.names)
        single = np.flatnonzero(strains.num_deletions == 1)
        genes = strains.targets[strains.offsets[single]]
        count = np.bincount(genes, minlength=size)
        measured = np.bincount(genes, relative[single], minlength=size) / np.maximum(count, 1)
        # Noise may take a label below zero.
        self.effects = np.where(count, np.maximum(measured, 0.0), 1.0)
        estimated = (count == 0) & (np.bincount(strains.targets, minlength=size) > 0)
        if estimated.any():
            self._estimate(strains, relative, estimated)
        return self

    def _estimate(self, strains: Strains, relative: NDArray[np.float64], estimated: NDArray[np.bool_]) -> None:
        owner, size = strains.owners, len(strains.names)
        # All factors are updated at once, each by a share only. With a whole step, every gene of a strain would correct
        # the strain's whole error.
        share = 1 / max(2.0, float(strains.num_deletions.mean()))
        for _ in range(ROUNDS):
            others = self._others(strains, owner)
            right = np.bincount(strains.targets, relative[owner] * others, minlength=size) + self.alpha
            best = right / (np.bincount(strains.targets, others**2, minlength=size) + self.alpha)
            step = np.where(estimated, share * (np.maximum(best, 0) - self.effects), 0.0)
            self.effects = self.effects + step
            if np.abs(step).max() < STEP:
                break

    def _others(self, strains: Strains, owner: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return for each deleted gene of each strain the product of the effects of the strain's other genes, [P]."""
        zero, logs = self._logarithms
        lost = (strains.design @ zero)[owner] - zero[strains.targets]
        return np.where(lost > 0, 0.0, np.exp((strains.design @ logs)[owner] - logs[strains.targets]))

    @property
    def _logarithms(self) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return which effects are 0, and the logarithms of the others, [N] each."""
        zero = self.effects == 0
        return zero, np.log(np.where(zero, 1.0, self.effects))

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        strains, (zero, logs) = refuse_activities(strains, "multiplicative"), self._logarithms
        return self.wild_type * np.where(strains.design @ zero > 0, 0.0, np.exp(strains.design @ logs))


MULTIPLICATIVE = Family(each(Multiplicative, 0.01, 0.1, 1.0, 10.0), lambda of: not_fitness_like(of.y_train))


WILD_TYPE = 1.0
MOST_CELLS = 2**28
"""Entries of a matrix of training strains and reaction nodes at most."""


@dataclass
class UntrainedBound(Baseline):
    """Predict y = the smallest label, at most 1, of strains in training that lose no other reaction nodes.

    This is the bound that the link ``minimum`` puts on a model (``dglcell.models.terms.link``), without the model.
    A strain of which no part was measured has the wild type's value.
    """

    reactions: Reactions = field(repr=False)
    sets: NDArray[np.float32] = field(init=False, repr=False)
    columns: NDArray[np.int64] = field(init=False, repr=False)
    labels: NDArray[np.float64] = field(init=False, repr=False)

    def fit(self, strains: Strains, y: NDArray[np.float64]) -> Self:
        below = np.flatnonzero(y < WILD_TYPE)
        lost = self.reactions.of_bounds(strains.take(below))
        some = np.flatnonzero(np.diff(lost.indptr))  # what loses nothing bounds no other
        lost, labels = lost[some], y[below][some]
        self.columns = np.unique(lost.indices)
        self.sets, which = np.unique(lost[:, self.columns].toarray(), axis=0, return_inverse=True)
        self.labels = np.full(len(self.sets), np.inf)
        np.minimum.at(self.labels, which.ravel(), labels)
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        lost, size = self.reactions.of_bounds(strains)[:, self.columns], self.sets.sum(axis=1)
        bound = np.full(len(strains), WILD_TYPE)
        for rows in blocks(len(strains), len(self.sets)):
            is_part = lost[rows] @ self.sets.T == size
            bound[rows] = np.where(is_part, self.labels, WILD_TYPE).min(axis=1, initial=WILD_TYPE)
        return bound


def no_lost_reaction(problem: Problem) -> str | None:
    """Say why reactions that strains lose tell nothing; None if they do."""
    if problem.reactions is None:
        return "needs a cell graph with reactions"
    if not problem.reactions.lost_nodes(problem.train).nnz:
        return "needs training strains that lose a reaction"
    return None


def _no_bound(problem: Problem) -> str | None:
    reason = no_lost_reaction(problem) or not_fitness_like(problem.y_train)
    if reason or problem.reactions is None:
        return reason
    cells = len(problem.train) * len(np.unique(problem.reactions.lost_nodes(problem.train).indices))
    return f"would compare {cells:.0e} pairs, and is limited to {MOST_CELLS:.0e}" if cells > MOST_CELLS else None


def _bound(problem: Problem) -> Iterator[Baseline]:
    assert problem.reactions is not None
    yield UntrainedBound(problem.reactions).fit(problem.train, problem.y_train)


BOUND = Family(_bound, _no_bound)


SIMULATOR = "FbaGrowth"
"""This simulator (`dglcell.data.sources.growth`) computes the columns."""


@dataclass
class AsComputed(Baseline):
    """Predict y = the growth that was computed. Its unit need not be that of the labels: the correlation counts."""

    column: str  #: name of the covariate

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        found = strains.columns.get(Column(COVARIATE, self.column))
        if found is None:
            raise DataError(
                f"FBA: the strains have no column '{self.column}'",
                expected="strains as the store of a run has them, or as `predict` completes them",
                do="set `data.fba`",
            )
        return np.asarray(found, dtype=np.float64)


def _columns(problem: Problem) -> list[str]:
    made = problem.train.provenance.parameters.get(COMPUTED, {})
    return [name for name in problem.train.computed if made[name].get("simulator") == SIMULATOR]


FBA = Family(
    lambda of: map(AsComputed, _columns(of)),
    lambda of: None if _columns(of) else "needs the growth that `data.fba` computes",
    about=SIMULATED,
)
