"""Fit a baseline for strains of two or more deletions: ridge regression with a kernel between pairs of genes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dglcell.baselines.features import GeneSimilarity, adding, refuse_activities
from dglcell.baselines.problem import Baseline, Family, Problem, limit, spanned
from dglcell.baselines.simple import AdditiveRidge
from dglcell.data.strains import Strains

OWN = 0.1
"""A gene has this share of its variance in common with no other gene."""
ADDITIVE = 0.03
"""Variance of the effect of one gene, as a multiple of that of a pair."""
PSEUDO_PAIRS = 20
"""Pairs of average spread that are added to those of each gene when its scale is estimated."""

PROFILES, SPREADS = (0.0, 1.0), (0.0, 1.0)
PENALTIES = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
RESIDUAL, MOST_STEPS = 1e-3, 60
MOST_BYTES = 2**30
MOST_OPERATIONS = 2e10
"""With more floating-point operations in a product with the covariance, the regression has landmarks."""
LANDMARKS = 2000


@dataclass(frozen=True)
class PairMatrix:
    """Hold the pairs of genes of some strains, as entries of an [R, G] matrix.

    The gene with more partners gives the row, so that where a few queries are crossed with an array R is the number of
    the queries.
    """

    owner: NDArray[np.int64]  #: [P] the strain of each pair
    row: NDArray[np.int64]  #: [P] its row, below R
    column: NDArray[np.int64]  #: [P] its column, below G
    rows: NDArray[np.int64]  #: [R] which of the G genes the rows are
    design: sparse.csr_array  #: [S, G] 1 where the strain deletes the gene

    @classmethod
    def of(cls, strains: Strains, genes: NDArray[np.int64]) -> PairMatrix:
        """Return the pairs of ``strains``; their genes are among ``genes``, [G], ascending."""
        owner, first, second = refuse_activities(strains, "kernel ridge").pairs()
        first, second = np.searchsorted(genes, first), np.searchsorted(genes, second)
        partners = np.bincount(np.concatenate([first, second]), minlength=len(genes))
        rank = np.argsort(np.argsort(partners, kind="stable"))
        swap = rank[first] < rank[second]
        rows, row = np.unique(np.where(swap, second, first), return_inverse=True)
        return cls(owner, row, np.where(swap, first, second), rows, sparse.csr_array(strains.design)[:, genes])

    def matrix(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return the sum of the ``values``, [S], of the strains that have a pair, [R, G]."""
        shape = (len(self.rows), self.design.shape[1])
        places = self.row * shape[1] + self.column
        return np.bincount(places, values[self.owner], shape[0] * shape[1]).astype(np.float32).reshape(shape)

    def sums(self) -> sparse.csr_array:
        """Return a matrix that sums over the pairs of each strain, [S, P]."""
        return adding(self.owner, self.design.shape[0])


@dataclass(frozen=True)
class KernelRidge(Baseline):
    """Predict the mean of a Gaussian process: the mean label, plus what similar training strains add.

    Each pair of deleted genes has an effect, and each gene has one. With a kernel K between genes, the effects of the
    pairs ab and cd covary by (K_ac K_bd + K_ad K_bc) / 2, those of the genes a and c by ``ADDITIVE`` · K_ac. What a
    strain shows is the sum over its pairs and genes. The covariance of all strains is not formed: K is multiplied with
    a matrix of pairs from both sides.
    """

    profiles: float  #: weight of the similarity of genes' own profiles in the training part, beside that of networks
    #: 1 where pairs of a gene without training strains spread as those of similar genes do, 0 where they spread as all
    #: pairs do
    spread: float
    genes: NDArray[np.int64] = field(repr=False)  #: [G] indices of the genes that training strains delete
    matrix: NDArray[np.float32] = field(repr=False)  #: [N, G] K in float32, a row for every gene of the cell graph
    train: PairMatrix = field(repr=False)  #: [S] the training strains, or the landmarks among them
    mean: float = field(repr=False)  #: mean of the training labels
    penalty: float = np.nan  #: variance of the noise
    limited: str = ""  #: what is left out of a large table, in words
    #: [S] coefficients of the training strains
    coefficients: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False)

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S], for any genes of the cell graph."""
        genes = np.unique(strains.targets).astype(np.int64)
        return self.mean + self.times(self.coefficients, PairMatrix.of(strains, genes), genes)

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
        of_pairs = np.bincount(to.owner, effects[to.row, to.column], minlength=to.design.shape[0]) / 2
        return of_pairs + ADDITIVE * (to.design @ (matrix @ (self.train.design.T @ values)))

    def between(self, strains: PairMatrix) -> NDArray[np.float32]:
        """Return the covariance of strains, whose genes are ``genes``, and the training strains, [S, T]."""
        matrix, train = self.matrix[self.genes], self.train
        (a, b), (c, d) = ((of.rows[of.row], of.column) for of in (strains, train))
        pairs = matrix[np.ix_(a, c)] * matrix[np.ix_(b, d)] + matrix[np.ix_(a, d)] * matrix[np.ix_(b, c)]
        of_pairs = strains.sums() @ (train.sums() @ pairs.T).T / 2
        return of_pairs + ADDITIVE * (strains.design @ (train.design @ matrix.T).T)


def fit_kernel_ridge(
    problem: Problem, profiles: float, penalties: Sequence[float] = PENALTIES, spreads: Sequence[float] = SPREADS
) -> Iterator[KernelRidge]:
    """Yield one model for each penalty and spread.

    Spreads of genes without training strains do not concern the fit. Above ``MOST_OPERATIONS`` the regression is in the
    span of 2,000 strains.
    """
    similarity, labels, mean = problem.similarity(), problem.y_train, float(problem.y_train.mean())
    train = PairMatrix.of(problem.train, similarity.genes)
    residual = labels - AdditiveRidge(10.0).fit(problem.train, labels).predict(problem.train)
    alike = _gene_kernel(similarity, train, residual, profiles)
    scale = _scales(train, np.square(labels - mean))
    kernels = [_scaled(alike, similarity, scale, spread) for spread in spreads]
    of_each = zip(spreads, kernels, strict=True)
    models = [KernelRidge(profiles, spread, similarity.genes, kernel, train, mean) for spread, kernel in of_each]
    rows, genes = len(train.rows), len(similarity.genes)
    if 2.0 * rows * genes**2 + 4.0 * rows**2 * genes > MOST_OPERATIONS:
        problem, landmarks, limited = limit(problem, LANDMARKS)
        among = PairMatrix.of(landmarks, similarity.genes)
        models = [replace(model, train=among, limited=limited) for model in models]

        def crossed(rows: slice) -> NDArray[np.float32]:
            return models[0].between(PairMatrix.of(problem.train.slice(rows.start, rows.stop), similarity.genes))

        inner = models[0].between(among)
        solutions = spanned(crossed, inner, problem.y_train - mean, penalties)
    else:
        solutions = _in_krylov_space(models[0], labels - mean, penalties)
    for penalty, coefficients in solutions:
        yield from (replace(model, penalty=penalty, coefficients=coefficients) for model in models)


Solutions = Iterator[tuple[float, NDArray[np.float64]]]


def _in_krylov_space(model: KernelRidge, values: NDArray[np.floating], penalties: Sequence[float]) -> Solutions:
    """Yield each penalty and the coefficients of the training strains, [S].

    The system is solved in the Krylov space of the covariance and the ``values``, [S]. That is the one of conjugate
    gradients, and the same for every penalty, so that one product a step serves all. It is extended until the residual
    of the smallest penalty is a thousandth of the values, or it has sixty dimensions.
    """
    size, first = float(np.linalg.norm(values)), np.eye(MOST_STEPS)[0]
    basis, inner = np.zeros((MOST_STEPS, len(values))), np.zeros((MOST_STEPS, MOST_STEPS))
    basis[0] = values / (size or 1)
    for step in range(MOST_STEPS):
        space, rest = basis[: step + 1], model.times(basis[step], model.train, model.genes)
        for _ in range(2):  # a second time, because rounding leaves a part of the space in the rest
            within = space @ rest
            inner[: step + 1, step] += within
            rest = rest - space.T @ within
        projected, length = inner[: step + 1, : step + 1], float(np.linalg.norm(rest))
        last = np.linalg.solve(projected + min(penalties) * np.eye(step + 1), first[: step + 1])[-1]
        if length * abs(last) <= RESIDUAL or step + 1 == MOST_STEPS:
            break
        inner[step + 1, step], basis[step + 1] = length, rest / length
    for penalty in penalties:
        yield penalty, space.T @ np.linalg.solve(projected + penalty * np.eye(step + 1), size * first[: step + 1])


def _gene_kernel(
    similarity: GeneSimilarity, train: PairMatrix, residual: NDArray[np.float64], profiles: float
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
    """Return K, [N, G]: the kernel, scaled by how far the pairs of each gene spread, ``scale`` for training genes.

    With ``spread`` the logarithms of other genes' scales are the mean of a Gaussian process.
    """
    of_all, genes = np.ones(len(kernel)), similarity.genes
    if spread:
        logarithm = np.log(scale)
        # A gene's own part of the logarithm of its scale varies as much as what similar genes share.
        system = similarity.matrix[genes] + np.eye(len(genes))
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


def _lacks(problem: Problem) -> str | None:
    strains = problem.train
    most = int(strains.num_deletions.max())
    if most < 2:
        return f"needs strains with two or more deletions (found {most} at most)"
    pairs = int((strains.num_deletions * (strains.num_deletions - 1) // 2).sum())
    held = max(64 * pairs, 20 * len(strains.names) * len(np.unique(strains.targets)))
    if held > MOST_BYTES:
        return f"would need {held / 2**30:.1f} GiB of memory, and is limited to {MOST_BYTES / 2**30:.0f}"
    return None


KERNEL_RIDGE = Family(
    lambda problem: (model for profiles in PROFILES for model in fit_kernel_ridge(problem, profiles)), _lacks
)
