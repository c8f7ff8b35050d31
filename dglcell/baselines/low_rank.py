"""Fit a null model for pairs: genes have interaction profiles of low rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dglcell.baselines.beyond_deletions import refuse_strengths
from dglcell.baselines.kernel_ridge import KernelRidge, fit_kernel_ridge
from dglcell.baselines.similarity import GeneSimilarity
from dglcell.baselines.simple import AdditiveRidge, labelled
from dglcell.data.strains import Strains
from dglcell.errors import DataError

OVERSAMPLING = 10
CHANGE = 3e-3
CHUNK = 1 << 18


@dataclass
class LowRankProfiles:
    """Predict y_ab = additive ridge + Z_ab, with Z a symmetric gene × gene matrix of low rank.

    Z is found by soft-impute: unmeasured entries are filled from the current Z, and the eigenvalues of the
    filled matrix are shrunk towards zero by a threshold (Mazumder, Hastie and Tibshirani 2010, JMLR 11:2287).
    The filled matrix is sparse plus low rank and never formed; its leading eigenvectors are carried from one
    round to the next by subspace iteration, as in softImpute-ALS (Hastie et al. 2015, JMLR 16:3367).

    Attributes:
        shrinkage: the eigenvalue threshold in units of sd·√m, with sd the standard deviation of what additive
            ridge leaves and m the mean number of measured partners of a gene. Pure noise has no eigenvalue
            above about 2.
        rank: most eigenvalues kept.
        alpha: penalty of the additive part.
    """

    shrinkage: float = 1.0
    rank: int = 40
    alpha: float = 10.0
    max_rounds: int = 100
    additive: AdditiveRidge = field(init=False, repr=False)
    vectors: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)), init=False, repr=False)
    values: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), init=False, repr=False)

    def __post_init__(self) -> None:
        self.additive = AdditiveRidge(self.alpha)

    @staticmethod
    def why_not(strains: Strains) -> str | None:
        """Say why the model cannot be fitted to these strains; None if it can."""
        if (strains.num_deletions == 2).all():
            return None
        found = ", ".join(str(n) for n in np.unique(strains.num_deletions))
        return f"needs strains with exactly two deletions (found {found})"

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from the labelled strains; missing labels (NaN) are ignored, replicates averaged.

        Raises:
            DataError: a strain has not exactly two deletions.
        """
        strains, labels = labelled(refuse_strengths(strains, "low-rank profiles"), y)
        reason = self.why_not(strains)
        if reason:
            raise DataError(f"low-rank profiles: the null model {reason}", do="give strains with two deletions each")
        residual = labels - self.additive.fit(strains, labels).predict(strains)
        low, high = strains.first_two(np.arange(len(strains)))
        keys, inverse = np.unique(low * len(strains.names) + high, return_inverse=True)
        residual = np.bincount(inverse, weights=residual) / np.bincount(inverse)
        self._impute(keys // len(strains.names), keys % len(strains.names), residual, len(strains.names))
        return self

    def _impute(
        self, low: NDArray[np.int64], high: NDArray[np.int64], residual: NDArray[np.float64], num_genes: int
    ) -> None:
        measured_genes = len(np.unique(np.concatenate([low, high])))
        partners = 2 * len(residual) / measured_genes
        threshold = self.shrinkage * float(residual.std()) * np.sqrt(partners)
        width = min(self.rank + OVERSAMPLING, num_genes)
        basis = np.linalg.qr(np.random.default_rng(0).standard_normal((num_genes, width)))[0]
        self.vectors, self.values = basis, np.zeros(width)
        for _ in range(self.max_rounds):
            unexplained = _symmetric(low, high, residual - self._profile_part(low, high), num_genes)
            basis = np.linalg.qr(self._filled(unexplained, basis))[0]
            eigenvalues, rotation = np.linalg.eigh(basis.T @ self._filled(unexplained, basis))
            # The next round begins with the whole basis, but only the kept eigenvalues belong to the model.
            order = np.argsort(-np.abs(eigenvalues))
            basis = basis @ rotation[:, order]
            kept = eigenvalues[order][: self.rank]
            shrunk = np.zeros(width)
            shrunk[: len(kept)] = np.sign(kept) * np.maximum(np.abs(kept) - threshold, 0)
            change = np.linalg.norm(self._times_old(basis, shrunk))
            self.vectors, self.values = basis, shrunk
            if change <= CHANGE * max(np.linalg.norm(shrunk), np.finfo(float).tiny):
                break

    def _filled(self, unexplained: sparse.csr_matrix, basis: NDArray[np.float64]) -> NDArray[np.float64]:
        """Multiply the filled matrix with ``basis``: measured entries where there are any, and those of Z elsewhere."""
        return unexplained @ basis + self.vectors @ (self.values[:, None] * (self.vectors.T @ basis))

    def _times_old(self, vectors: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a small matrix with the Frobenius norm of the new Z minus the old one, in the new basis."""
        overlap = vectors.T @ self.vectors
        return np.diag(values) - (overlap * self.values) @ overlap.T

    def _profile_part(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return Z at the pairs (low, high)."""
        kept = self.values != 0
        vectors = self.vectors[:, kept]
        scaled = vectors * self.values[kept]
        result = np.empty(len(low))
        for start in range(0, len(low), CHUNK):
            part = slice(start, start + CHUNK)
            result[part] = np.einsum("pk,pk->p", scaled[low[part]], vectors[high[part]])
        return result

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S]; the additive part where strains are not pairs."""
        prediction = self.additive.predict(refuse_strengths(strains, "low-rank profiles"))
        pairs = np.flatnonzero(strains.num_deletions == 2)
        prediction[pairs] += self._profile_part(*strains.first_two(pairs))
        return prediction


ALPHA = 1000.0
"""Penalty of the additive effects of what the kernel ridge leaves; the kernel ridge has already fitted its own."""


@dataclass(frozen=True)
class RidgeAndLowRank:
    """Fit kernel ridge on networks alone, and soft-impute to its residuals.

    The kernel ridge with profiles compares genes by their profiles; this one completes them.

    Attributes:
        shrinkage: shrinkage of the low-rank profiles.
    """

    penalty: float
    shrinkage: float
    ridge: KernelRidge = field(repr=False)
    low_rank: LowRankProfiles = field(repr=False)

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S]."""
        return self.ridge.predict(strains) + self.low_rank.predict(strains)


def fit_ridge_and_low_rank(
    strains: Strains,
    y: NDArray[np.floating],
    similarity: GeneSimilarity,
    penalties: Sequence[float],
    shrinkages: Sequence[float],
) -> Iterator[RidgeAndLowRank]:
    """Yield one model for each penalty and shrinkage; missing labels (NaN) are ignored."""
    strains, labels = labelled(strains, y)
    for ridge in fit_kernel_ridge(strains, labels, similarity, 0.0, penalties):
        left = labels - ridge.predict(strains)
        for shrinkage in shrinkages:
            yield RidgeAndLowRank(
                ridge.penalty, shrinkage, ridge, LowRankProfiles(shrinkage, alpha=ALPHA).fit(strains, left)
            )


def _symmetric(
    low: NDArray[np.int64], high: NDArray[np.int64], values: NDArray[np.float64], size: int
) -> sparse.csr_matrix:
    """Return a symmetric matrix, [size, size], with ``values`` at (low, high) and (high, low)."""
    rows, columns = np.concatenate([low, high]), np.concatenate([high, low])
    return sparse.csr_matrix((np.concatenate([values, values]), (rows, columns)), shape=(size, size))
