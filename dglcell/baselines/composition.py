"""Fit null models of fitness-like phenotypes: effects multiply, or the worst subset decides."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dglcell.baselines.beyond_deletions import owners, refuse_strengths
from dglcell.baselines.problem import Family, NullModel, Problem, each, labelled
from dglcell.baselines.simple import Shrunk
from dglcell.data.strains import Strains

MOST_NEGATIVE = 0.01
"""Noise may take this share of the labels below zero."""


def not_fitness_like(y: NDArray[np.floating]) -> str | None:
    """Say why labels cannot be a fitness, which is hardly ever negative; None if they can."""
    measured = y[~np.isnan(y)]
    if (negative := (measured < 0).mean()) > MOST_NEGATIVE:
        share = f"{negative:.1%} of the labels are negative (at most {MOST_NEGATIVE:.0%})"
        return f"is for fitness-like phenotypes, and {share}"
    if np.median(measured) <= 0:
        return "is for fitness-like phenotypes, and the median of the labels is not positive"
    return None


def wild_type(strains: Strains, labels: NDArray[np.float64]) -> float:
    """Return the median label of the strains with the fewest deletions, or of all where that is not positive."""
    fewest = float(np.median(labels[strains.num_deletions == strains.num_deletions.min()]))
    return fewest if fewest > 0 else float(np.median(labels))


ROUNDS = 100
STEP = 1e-4


@dataclass
class Multiplicative(NullModel):
    """Predict y = wild type · product of the effects of the deleted genes.

    A genetic interaction is defined as the deviation from this product.

    A gene's effect is the label of its single deletion, relative to the wild type, where that is measured. Effects of
    other genes are estimated by least squares from the strains that delete them, gene by gene with the others held.

    Attributes:
        alpha: penalty; an effect is shrunk towards 1 as if it had been measured ``alpha`` more times without any.
    """

    alpha: float = 1.0
    wild_type: float = field(default=1.0, init=False)
    effects: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), init=False, repr=False)

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from the labelled strains; missing labels (NaN) are ignored."""
        strains, labels = labelled(refuse_strengths(strains, "multiplicative"), y)
        self.wild_type = wild_type(strains, labels)
        relative, size = labels / self.wild_type, len(strains.names)
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
        owner, size = owners(strains), len(strains.names)
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
        zero = self.effects == 0
        logs = np.log(np.where(zero, 1.0, self.effects))
        lost = (strains.design @ zero)[owner] - zero[strains.targets]
        return np.where(lost > 0, 0.0, np.exp((strains.design @ logs)[owner] - logs[strains.targets]))

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        strains = refuse_strengths(strains, "multiplicative")
        zero = self.effects == 0
        logs = np.log(np.where(zero, 1.0, self.effects))
        return self.wild_type * np.where(strains.design @ zero > 0, 0.0, np.exp(strains.design @ logs))


LARGEST_SUBSET = 3


@dataclass
class SmallestSubset(NullModel):
    """Predict y = the smallest label of the measured subsets of a strain's deletions, of up to three genes each.

    A subset is a training strain that deletes some of the strain's genes, and not all of them. A strain without any has
    the mean of the training strains with as many deletions, or of all where there is none.
    """

    mean: float = field(default=0.0, init=False)
    mean_of: Shrunk = field(init=False, repr=False)
    measured: Shrunk = field(init=False, repr=False)

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from the labelled strains; missing labels (NaN) are ignored, replicates averaged."""
        strains, labels = labelled(refuse_strengths(strains, "smallest subset"), y)
        self.mean = float(labels.mean())
        self.mean_of = Shrunk.of(strains.num_deletions, labels, 0)
        small = np.flatnonzero((strains.num_deletions > 0) & (strains.num_deletions <= LARGEST_SUBSET))
        keys = np.empty(len(strains), np.uint64)
        for rows, genes in strains.by_number():
            keys[rows] = _keys(genes, len(strains.names))
        self.measured = Shrunk.of(keys[small], labels[small], 0)
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        prediction = np.empty(len(strains))
        for rows, genes in refuse_strengths(strains, "smallest subset").by_number():
            number = genes.shape[1]
            smallest = np.full(len(rows), np.inf)
            for size in range(1, min(number - 1, LARGEST_SUBSET) + 1):
                for chosen in itertools.combinations(range(number), size):
                    subsets = _keys(genes[:, chosen], len(strains.names))
                    smallest = np.minimum(smallest, self.measured(subsets, np.inf))
            otherwise = self.mean_of(np.full(len(rows), number), self.mean)
            prediction[rows] = np.where(np.isfinite(smallest), smallest, otherwise)
        return prediction


def _keys(genes: NDArray[np.integer], num_genes: int) -> NDArray[np.uint64]:
    """Return a key for each row's gene set, [n]: the sum of 64 random bits for each gene."""
    bits = np.random.default_rng(0).integers(2**64, size=num_genes, dtype=np.uint64)
    return bits[genes].sum(axis=1, dtype=np.uint64)


def _no_subset(problem: Problem) -> str | None:
    fewest = problem.train.num_deletions[problem.train.num_deletions > 0]
    if len(fewest) and fewest.min() < problem.most_deletions and fewest.min() <= LARGEST_SUBSET:
        return not_fitness_like(problem.y_train)
    fewer = min(problem.most_deletions, LARGEST_SUBSET + 1)
    return f"needs measured subsets, and no training strain has fewer than {fewer} deletions"


MULTIPLICATIVE = Family(each(Multiplicative, 0.01, 0.1, 1.0, 10.0), lambda of: not_fitness_like(of.y_train))
SUBSET = Family(lambda of: iter([SmallestSubset().fit(of.train, of.y_train)]), _no_subset)
