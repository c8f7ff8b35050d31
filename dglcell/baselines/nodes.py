"""Fit null models of values of nodes: the training mean, the nearest training strains, and kernel ridge for all nodes.

They know which genes a strain lacks and, where the cell graph has reactions, which reactions. They pass no messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dglcell.baselines.fit import OWN_SHARES, REACTION_PENALTIES, NullModel, squared_error
from dglcell.baselines.reactions import LostSetKernel, ReactionKernelRidge, Reactions, blocks, fit_landmarks
from dglcell.data.strains import Strains

MOST_VALUES = 2**28
"""Training values beyond this number are not held in memory, which would be a gigabyte."""

NEAREST = 1e-9
"""Strains whose similarity differs by less than this are equally near."""

Features = Callable[[Strains], sparse.csr_array]


@dataclass(frozen=True)
class NodeProblem:
    """Hold values of nodes of the strains of a split.

    Attributes:
        y_train: [S, M] differences from the wild type in units of their spread, NaN where not measured.
        y_validation: likewise for the validation strains.
        reactions: tells which reactions a strain loses; None where the cell graph has none.
    """

    train: Strains
    validation: Strains
    y_train: NDArray[np.float32]
    y_validation: NDArray[np.float32]
    reactions: Reactions | None = None

    def error(self, model: NullModel) -> float:
        """Return the mean squared error on the validation part; NaN where nothing is measured there."""
        return squared_error(model, self.validation, self.y_validation)

    def kernel(self, own: float) -> LostSetKernel:
        """Return the kernel that says how alike two strains are.

        It compares lost reactions, or what is lost of genes where strains have strengths or the cell graph has no
        reactions.
        """
        return LostSetKernel(own, None if self.train.strengths is not None else self.reactions)


@dataclass(frozen=True)
class MeanStrain:
    """Predict for every strain the mean of each node's values over the training strains, [M]."""

    mean: NDArray[np.float64]

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return the mean for every strain, [S, M]."""
        return np.tile(self.mean, (len(strains), 1))


@dataclass(frozen=True)
class NearestStrain:
    """Predict the values of the training strain that is most alike; of several equally near ones, their mean.

    Attributes:
        vectors: [S, F] vectors of the training strains, as ``features`` returns them.
        values: [S, M] values of the training strains, the mean where not measured.
    """

    features: Features = field(repr=False)
    vectors: sparse.csr_array = field(repr=False)
    values: NDArray[np.float32] = field(repr=False)

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return the values of the nearest training strains, [S, M]."""
        vectors = self.features(strains)
        found = np.empty((len(strains), self.values.shape[1]))
        for rows in blocks(len(strains), len(self.values)):
            alike = LostSetKernel.between(vectors[rows], self.vectors)
            nearest = sparse.csr_array(alike >= alike.max(axis=1, keepdims=True) - NEAREST, dtype=np.float64)
            found[rows] = (nearest @ self.values) / nearest.sum(axis=1)[:, None]
        return found


def _mean(problem: NodeProblem) -> Iterator[NullModel]:
    yield MeanStrain(np.nan_to_num(_means(problem.y_train)))


def _nearest(problem: NodeProblem) -> Iterator[NullModel]:
    features = problem.kernel(1.0).features
    yield NearestStrain(features, features(problem.train), _filled(problem.y_train))


def _ridges(problem: NodeProblem) -> Iterator[NullModel]:
    mean = np.nan_to_num(_means(problem.y_train))
    values = _filled(problem.y_train).astype(np.float64) - mean
    for own in OWN_SHARES:
        kernel = problem.kernel(own)
        vectors = kernel.features(problem.train)
        for penalty, landmarks, coefficients in fit_landmarks(vectors, values, REACTION_PENALTIES):
            yield ReactionKernelRidge(own, penalty, kernel, landmarks, coefficients, mean)
        if kernel.reactions is None:
            break  # The share concerns reactions alone.


NODE_NULLS: dict[str, Callable[[NodeProblem], Iterator[NullModel]]] = {
    "mean of training strains": _mean,
    "nearest training strain": _nearest,
    "kernel ridge on lost reactions": _ridges,
}
"""This maps a name to null models of one form, of which the validation part chooses one."""


def fit_node_nulls(problem: NodeProblem) -> tuple[dict[str, NullModel], dict[str, str]]:
    """Return the null models that apply, by name, and for each other one why it does not.

    A strain counts for all nodes or for none: values that were not measured in a strain of which others were are
    taken to be the training mean.
    """
    measured = np.isfinite(problem.y_train).any(axis=1)
    rows = np.flatnonzero(measured)
    problem = NodeProblem(
        problem.train.take(rows), problem.validation, problem.y_train[rows], problem.y_validation, problem.reactions
    )
    found, left_out = {}, {}
    for name, fitted in NODE_NULLS.items():
        if fitted is not _mean and problem.train.conditions:
            left_out[name] = "knows no conditions of strains"
            continue
        models = list(fitted(problem))
        found[name] = models[0] if len(models) == 1 else min(models, key=problem.error)
    return found, left_out


def _means(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the means of columns, NaN where nothing was measured."""
    number = np.isfinite(values).sum(axis=0)
    total = np.where(np.isfinite(values), values, 0).sum(axis=0, dtype=np.float64)
    return np.divide(total, number, out=np.full(values.shape[1], np.nan), where=number > 0)


def _filled(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return values with the mean of each column where nothing was measured."""
    return np.where(np.isfinite(values), values, np.nan_to_num(_means(values))).astype(np.float32)
