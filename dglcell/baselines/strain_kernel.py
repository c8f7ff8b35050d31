"""Fit a null model of strengths and conditions: ridge regression with a kernel between strains."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.spatial.distance import cdist

from dglcell.baselines.beyond_deletions import Conditions, lost, owners
from dglcell.baselines.similarity import GeneSimilarity
from dglcell.baselines.simple import labelled
from dglcell.data.strains import Strains

OWN, SHARED = 0.4, 0.3
"""A gene has the first share of its variance in common with no other gene, and the second with all."""

STRENGTH_LENGTHS = (0.25, 1.0)
ALIKE = (0.3, 0.8)
CONDITION_LENGTHS = (0.5, 1.0, 2.0, 4.0)
PENALTIES = (1.0, 0.3, 0.1, 0.03, 0.01)

MOST_STRAINS = 6000
"""Training strains at most: a system of so many equations is solved in seconds, in a gibibyte."""
MOST_PAIRS = 2**31
"""Pairs of targets that are compared at most."""
MOST_COMPARED = 2**24
"""At most so many pairs of targets are compared at a time."""


@dataclass(frozen=True)
class StrainKernel:
    """Compute the covariance of strains.

    A strain with the targets v, of which the shares d_v are lost, and another one with w have in their genes
    g = Σ_vw K_vw d_v d_w exp(−(d_v − d_w)² / 2ℓ²), where K says how alike two genes are. Their covariance is
    (1 + g + g²/2) · c: effects of conditions, of genes and of pairs of genes, all of which differ between conditions.
    For each condition c has a factor: 1 for equal categories and ``alike`` for others, and exp(−(z − z')² / 2ℓ²M) for
    each of M standardised numbers.

    Attributes:
        strength_length: ℓ of what is lost.
        alike: how alike strains of two categories are, from 0 to 1; NaN where no condition has categories.
        condition_length: ℓ of the numbers of conditions; NaN where there are none.
        genes: [G] indices of the genes that training strains change, ascending.
        matrix: [N, G] K, a row for every gene.
    """

    strength_length: float
    alike: float
    condition_length: float
    genes: NDArray[np.int64]
    matrix: NDArray[np.float32]
    conditions: Conditions
    train: Strains

    def __call__(self, strains: Strains) -> NDArray[np.float64]:
        """Return the covariance of strains and the training strains, [S, T]."""
        return np.concatenate([np.zeros((0, len(self.train))), *self.pieces(strains)])

    def pieces(self, strains: Strains) -> Iterator[NDArray[np.float64]]:
        """Yield the rows of this covariance in pieces, so that one piece at a time is in memory."""
        compared = max(len(self.train), len(self.train.targets) * strains.max_deletions)
        size = max(1, MOST_COMPARED // compared)
        for start in range(0, len(strains), size):
            part = strains.slice(start, min(start + size, len(strains)))
            genes = self._of_genes(part)
            yield (1 + genes + genes**2 / 2) * self._of_conditions(part)

    def _of_genes(self, strains: Strains) -> NDArray[np.float64]:
        columns, amounts = np.searchsorted(self.genes, self.train.targets), lost(self.train)
        here = lost(strains)[:, None]
        pairs = self.matrix[strains.targets][:, columns] * (here * amounts)
        pairs *= np.exp(-np.square((here - amounts) / self.strength_length) / 2)
        return _sums(strains) @ (_sums(self.train) @ pairs.T).T

    def _of_conditions(self, strains: Strains) -> NDArray[np.float64]:
        found = np.ones((len(strains), len(self.train)))
        for here, there in zip(self.conditions.codes(strains).T, self.conditions.codes(self.train).T, strict=True):
            found *= np.where(here[:, None] == there, 1.0, self.alike)
        here, there = self.conditions.numbers(strains), self.conditions.numbers(self.train)
        if here.size:
            # One exponential of a sum takes less time than a product of exponentials.
            squares = cdist(here, there, "sqeuclidean")
            found *= np.exp(squares / (-2 * here.shape[1] * self.condition_length**2))
        return found


def _sums(strains: Strains) -> sparse.csr_array:
    """Return a matrix that sums over the targets of each strain, [S, P]."""
    size = len(strains.targets)
    return sparse.csr_array((np.ones(size), (owners(strains), np.arange(size))), shape=(len(strains), size))


@dataclass(frozen=True)
class StrainKernelRidge:
    """Predict the mean of a Gaussian process: the mean label, plus what similar training strains add.

    Attributes:
        penalty: variance of the noise, relative to that of the effects of conditions.
        coefficients: [T] coefficients of the training strains.
    """

    strength_length: float
    alike: float
    condition_length: float
    penalty: float
    kernel: StrainKernel = field(repr=False)
    coefficients: NDArray[np.float64] = field(repr=False)
    mean: float = field(repr=False)

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S], for any genes of the cell graph."""
        pieces = (piece @ self.coefficients for piece in self.kernel.pieces(strains))
        return self.mean + np.concatenate([np.zeros(0), *pieces])


def fit_strain_kernels(
    strains: Strains, y: NDArray[np.floating], similarity: GeneSimilarity
) -> Iterator[StrainKernelRidge]:
    """Yield one model for each set of hyperparameters that concern the strains; missing labels (NaN) are ignored.

    Args:
        y: [S] labels.
        similarity: how alike all genes are to those of the training part.
    """
    strains, labels = labelled(strains, y)
    matrix, genes = SHARED + (1 - OWN - SHARED) * similarity.matrix, similarity.genes
    matrix[genes, np.arange(len(genes))] += OWN
    conditions, mean = Conditions.of(strains), float(labels.mean())
    lengths = STRENGTH_LENGTHS if strains.strengths is not None else STRENGTH_LENGTHS[-1:]
    alike = ALIKE if conditions.codes(strains).size else (math.nan,)
    spans = CONDITION_LENGTHS if conditions.numbers(strains).size else (math.nan,)
    for scales in itertools.product(lengths, alike, spans):
        kernel = StrainKernel(*scales, genes, matrix, conditions, strains)
        covariance = kernel(strains)
        for penalty in PENALTIES:
            noisy = covariance.copy(order="F")
            noisy[np.diag_indices(len(labels))] += penalty
            coefficients = linalg.cho_solve(linalg.cho_factor(noisy, overwrite_a=True), labels - mean)
            yield StrainKernelRidge(*scales, penalty, kernel, coefficients, mean)


def why_no_strain_kernel(strains: Strains) -> str | None:
    """Say why there is no kernel ridge over these training strains; None if there is one."""
    if strains.strengths is None and not strains.conditions:
        return "needs strains with strengths or conditions"
    if len(strains) > MOST_STRAINS:
        return f"is solved exactly, and limited to {MOST_STRAINS:,} training strains (found {len(strains):,})"
    if len(strains.targets) ** 2 > MOST_PAIRS:
        return f"would compare {len(strains.targets) ** 2:.0e} pairs of genes, and is limited to {MOST_PAIRS:.0e}"
    return None
