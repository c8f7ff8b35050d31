"""Fit a null model for strains of two or more deletions: ridge regression with a kernel between pairs of genes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from scipy import sparse

from dglcell.baselines.beyond_deletions import refuse_strengths
from dglcell.baselines.similarity import GeneSimilarity
from dglcell.baselines.simple import AdditiveRidge, labelled, why_too_long
from dglcell.data.strains import Strains

OWN = 0.1
"""A gene has this share of its variance in common with no other gene."""
ADDITIVE = 0.03
"""The effect of one gene has so many times the variance of the effect of a pair."""
PSEUDO_PAIRS = 20
"""Pairs of average spread that are added to those of each gene when its scale is estimated."""
SPREAD_NOISE = 1.0
"""A gene's own part of the logarithm of its scale has so many times the variance of what similar genes share."""
PROFILE_ALPHA = 10.0
"""Penalty of the additive effects that are taken off before genes' profiles are compared."""

MOST_STEPS = 60
RESIDUAL = 1e-3
MOST_BYTES = 2**30


@dataclass(frozen=True)
class PairMatrix:
    """Hold the pairs of genes of some strains, as entries of an [R, G] matrix.

    The gene with more partners gives the row, so that where a few queries are crossed with an array R is the number of
    the queries.

    Attributes:
        owner: [P] the strain of each pair.
        row: [P] its row, below R.
        column: [P] its column, below G.
        rows: [R] which of the G genes the rows are.
        design: [S, G] 1 where the strain deletes the gene.
    """

    owner: NDArray[np.int64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    rows: NDArray[np.int64]
    design: sparse.csr_array

    @classmethod
    def of(cls, strains: Strains, genes: NDArray[np.int64]) -> PairMatrix:
        """Return the pairs of ``strains``; their genes are among ``genes``, [G], ascending."""
        owner, first, second = refuse_strengths(strains, "kernel ridge").pairs()
        first, second = np.searchsorted(genes, first), np.searchsorted(genes, second)
        partners = np.bincount(np.concatenate([first, second]), minlength=len(genes))
        rank = np.argsort(np.argsort(partners, kind="stable"))
        swap = rank[first] < rank[second]
        rows, row = np.unique(np.where(swap, second, first), return_inverse=True)
        return cls(owner, row, np.where(swap, first, second), rows, sparse.csr_array(strains.design)[:, genes])

    def __len__(self) -> int:
        return self.design.shape[0]

    def matrix(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return the sum of the ``values``, [S], of the strains that have a pair, [R, G]."""
        shape = (len(self.rows), self.design.shape[1])
        places = self.row * shape[1] + self.column
        return np.bincount(places, values[self.owner], shape[0] * shape[1]).astype(np.float32).reshape(shape)


@dataclass(frozen=True)
class PairKernel:
    """Compute the covariance of strains: each pair of deleted genes has an effect, and each gene has one.

    With a kernel K between genes, the effects of the pairs ab and cd covary by (K_ac K_bd + K_ad K_bc) / 2, those of
    the genes a and c by ``ADDITIVE`` · K_ac. What a strain shows is the sum over its pairs and genes. The covariance of
    all strains is never formed: K is multiplied with a matrix of pairs from both sides.

    Attributes:
        genes: [G] indices of the genes that training strains delete.
        matrix: [N, G] K in float32, a row for every gene of the cell graph.
        train: the training strains.
    """

    genes: NDArray[np.int64]
    matrix: NDArray[np.float32]
    train: PairMatrix

    def times(self, values: NDArray[np.float64], to: PairMatrix, genes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Multiply the covariance of the strains ``to`` and the training strains with ``values``; the result is [S].

        Args:
            values: [S] of the training strains.
            genes: [M] genes of the strains ``to``, ascending.
        """
        matrix = self.matrix[genes]
        half = self.train.matrix(values) @ matrix.T
        # The matrix of pairs is symmetric; of each pair one of its two entries stands in `half`.
        effects = matrix[np.ix_(to.rows, self.train.rows)] @ half
        effects += half[:, to.rows].T @ matrix[:, self.train.rows].T
        of_pairs = np.bincount(to.owner, effects[to.row, to.column], minlength=len(to)) / 2
        return of_pairs + ADDITIVE * (to.design @ (matrix @ (self.train.design.T @ values)))


@dataclass(frozen=True)
class KernelRidge:
    """Predict the mean of a Gaussian process: the mean label, plus what similar training strains add.

    Attributes:
        profiles: weight of the similarity of genes' own profiles in the training part, beside that of networks.
        penalty: variance of the noise.
        coefficients: [S] coefficients of the training strains.
        spread: 1 where pairs of a gene without training strains spread as those of similar genes do, 0 where they
            spread as all pairs do.
    """

    profiles: float
    penalty: float
    kernel: PairKernel = field(repr=False)
    coefficients: NDArray[np.float64] = field(repr=False)
    mean: float = field(repr=False)
    spread: float = 0.0  # of models that were packed before there was a choice

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S], for any genes of the cell graph."""
        genes = np.unique(strains.targets).astype(np.int64)
        return self.mean + self.kernel.times(self.coefficients, PairMatrix.of(strains, genes), genes)


def why_not(strains: Strains, fits: int) -> str | None:
    """Say why kernel ridge is not fitted to these strains; None if it is."""
    most = int(strains.num_deletions.max())
    if most < 2:
        return f"needs strains with two or more deletions (found {most} at most)"
    pairs = strains.num_deletions * (strains.num_deletions - 1) // 2
    deleted = len(np.unique(strains.targets))
    held = max(8 * MOST_STEPS * len(strains), 64 * int(pairs.sum()), 20 * len(strains.names) * deleted)
    if held > MOST_BYTES:
        return f"would need {held / 2**30:.1f} GiB of memory, and is limited to {MOST_BYTES / 2**30:.0f}"
    rows = len(PairMatrix.of(strains, np.arange(len(strains.names))).rows)
    return why_too_long(fits * MOST_STEPS * (2.0 * rows * deleted**2 + 4.0 * rows**2 * deleted))


def fit_kernel_ridge(
    strains: Strains,
    y: NDArray[np.floating],
    similarity: GeneSimilarity,
    profiles: float,
    penalties: Sequence[float],
    spreads: Sequence[float] = (0.0,),
) -> list[KernelRidge]:
    """Yield one model for each penalty and spread; missing labels (NaN) are ignored.

    Spreads of genes without training strains do not concern the fit.

    The system is solved in the Krylov space of the covariance and the labels (Lanczos 1950), which is that of conjugate
    gradients and the same for every penalty. It is extended until the residual of the smallest penalty is a thousandth
    of the labels, or it has sixty dimensions.
    """
    strains, labels = labelled(strains, y)
    train = PairMatrix.of(strains, similarity.genes)
    residual = labels - AdditiveRidge(PROFILE_ALPHA).fit(strains, labels).predict(strains)
    alike = _gene_kernel(similarity, train, residual, profiles)
    scale = _scales(train, np.square(labels - labels.mean()))
    kernels = {
        spread: PairKernel(similarity.genes, _scaled(alike, similarity, scale, spread), train) for spread in spreads
    }
    kernel = kernels[spreads[0]]
    mean = float(labels.mean())
    basis, tridiagonal, size = _lanczos(kernel, labels - mean, min(penalties))
    models = []
    for penalty in penalties:
        right = size * np.eye(len(tridiagonal))[0]
        inner = np.linalg.solve(tridiagonal + penalty * np.eye(len(tridiagonal)), right)
        coefficients = basis.T @ inner
        models += [KernelRidge(profiles, penalty, kernels[spread], coefficients, mean, spread) for spread in spreads]
    return models


def _gene_kernel(
    similarity: GeneSimilarity,
    train: PairMatrix,
    residual: NDArray[np.float64],
    profiles: float,
) -> NDArray[np.float32]:
    """Return the kernel between genes, [N, G]: similarity in networks and of profiles, and each gene's own part."""
    kernel, genes = similarity.matrix.copy(), similarity.genes
    if profiles:
        # Cosines do not depend on the units, but squares of them may leave the range of float32.
        profile = train.matrix(residual / (np.abs(residual).max(initial=0) or 1))
        whole = np.zeros((len(genes), len(genes)), np.float32)
        whole[train.rows] = profile
        whole[:, train.rows] += profile.T
        whole /= np.maximum(np.linalg.norm(whole, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        kernel[genes] += profiles * (whole @ whole.T)
        kernel /= 1 + profiles
    kernel *= 1 - OWN
    kernel[genes, np.arange(len(genes))] += OWN
    return kernel


def _scaled(
    kernel: NDArray[np.float32], similarity: GeneSimilarity, scale: NDArray[np.float64], spread: float
) -> NDArray[np.float32]:
    """Return K, [N, G]: the kernel, scaled by how far the pairs of each gene spread, which is ``scale`` for training
    genes.

    With ``spread`` the logarithms of other genes' scales are the mean of a Gaussian process.
    """
    of_all, genes = np.ones(len(kernel)), similarity.genes
    if spread:
        logarithm = np.log(scale)
        system = similarity.matrix[genes] + SPREAD_NOISE * np.eye(len(genes))
        deviation = similarity.matrix @ np.linalg.solve(system, logarithm - logarithm.mean())
        of_all = np.exp(logarithm.mean() + spread * deviation)
    of_all[genes] = scale
    return kernel * of_all.astype(np.float32)[:, None] * scale.astype(np.float32)


def _scales(train: PairMatrix, squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the spread of the labels of each gene's pairs, relative to that of all pairs, [G]."""
    genes = np.concatenate([train.rows[train.row], train.column])
    both = np.tile(squares[train.owner], 2)
    size, usual = train.design.shape[1], float(both.mean()) if len(both) else 0.0
    if usual == 0:
        return np.ones(size)
    total = np.bincount(genes, both, minlength=size) + PSEUDO_PAIRS * usual
    return np.sqrt(total / (np.bincount(genes, minlength=size) + PSEUDO_PAIRS) / usual)


def _lanczos(
    kernel: PairKernel, right: NDArray[np.float64], penalty: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return a basis of the Krylov space, a matrix, and a number.

    They are its orthonormal basis [m, S], the tridiagonal [m, m] matrix in it, and the size of ``right``.
    """
    size = float(np.linalg.norm(right))
    if size == 0:
        return np.zeros((1, len(right))), np.zeros((1, 1)), size
    basis = np.empty((MOST_STEPS, len(right)))
    diagonal: list[float] = []
    beside: list[float] = []
    basis[0] = right / size
    console = Console(stderr=True)
    for step in track(
        range(MOST_STEPS), "kernel ridge", console=console, transient=True, disable=not console.is_terminal
    ):
        rest = kernel.times(basis[step], kernel.train, kernel.genes)
        diagonal.append(float(basis[step] @ rest))
        for _ in range(2):
            rest -= basis[: step + 1].T @ (basis[: step + 1] @ rest)
        length = float(np.linalg.norm(rest))
        tridiagonal = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
        last = np.linalg.solve(tridiagonal + penalty * np.eye(step + 1), np.eye(step + 1)[0])[-1]
        if length * abs(last) <= RESIDUAL or step + 1 == MOST_STEPS:
            break
        beside.append(length)
        basis[step + 1] = rest / length
    return basis[: step + 1], tridiagonal, size
