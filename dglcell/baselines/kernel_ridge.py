"""Fit ridge regressions with kernels: between pairs of genes, between lost reactions, and between activities."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from dglcell.baselines.problem import (
    MORE,
    MOST_STRAINS,
    Baseline,
    Covariates,
    Family,
    GeneSimilarity,
    Problem,
    Reactions,
    adding,
    blocks,
    refuse_activities,
)
from dglcell.baselines.simple import AdditiveRidge, no_lost_reaction
from dglcell.data.strains import Strains

Values = NDArray[np.float64]

SMALLEST = 1e-6


@dataclass(frozen=True, kw_only=True)
class KernelBaseline(Baseline):
    """Predict the mean of a Gaussian process: the mean label, plus what similar training strains add."""

    mean: float = field(default=0.0, repr=False)  #: mean of the training labels
    penalty: float = math.nan  #: variance of the noise
    limited: str = ""  #: what is left out of a large table, in words
    #: [T] coefficients of the training strains, or of the landmarks among them
    coefficients: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False)

    def pieces(self, strains: Strains) -> Iterator[NDArray[np.floating]]:
        """Yield the covariance of strains and those that have coefficients, [S, T], some rows at a time."""
        raise NotImplementedError

    def covariance(self, strains: Strains) -> NDArray[np.floating]:
        """Return this covariance, [S, T]."""
        return np.concatenate([*self.pieces(strains)])

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S], for any genes of the cell graph."""
        return self.mean + np.concatenate([np.zeros(0), *(part @ self.coefficients for part in self.pieces(strains))])

    def fitted(self, among: Strains, train: Strains, y: Values, penalties: Sequence[float]) -> Iterator[Self]:
        """Yield the model for each penalty, fitted to all training strains in the span of those ``among`` them.

        If these are all, (K + penalty · 1) a = y − mean is solved. If they are landmarks, with C the kernel of strains
        and landmarks and K that of landmarks, it is (CᵀC + penalty · K) a = Cᵀ (y − mean) (Williams and Seeger 2001,
        *Using the Nyström method to speed up kernel machines*).
        """
        inner, start = self.covariance(among), 0
        if among is train:
            for penalty in penalties:
                found = scipy.linalg.solve(inner + penalty * np.eye(len(y)), y - self.mean, assume_a="pos")
                yield replace(self, penalty=penalty, coefficients=found)
            return
        square, right = SMALLEST * np.eye(len(inner)), np.zeros(len(inner))
        for part in self.pieces(train):
            square += part.T @ part
            right += part.T @ (y[start : start + len(part)] - self.mean)
            start += len(part)
        for penalty in penalties:
            found = np.linalg.solve(square + penalty * inner, right).astype(np.float64)
            yield replace(self, penalty=penalty, coefficients=found)


def limit(problem: Problem, exact: int, landmarks: int) -> tuple[Problem, Strains, str]:
    """Return up to ``exact`` training strains as they are; of more a sample with landmarks, and words for both."""
    if len(problem.train) <= exact:
        return problem, problem.train, ""
    some, sample = problem.sampled(MOST_STRAINS)
    of = f" of {sample}" if sample else ""
    return some, some.sampled(landmarks)[0].train, f"{landmarks:,} landmarks{of}"


OWN_PAIRS = 0.1
"""A gene has this share of its variance in common with no other gene."""
ADDITIVE = 0.03
"""Variance of the effect of one gene, as a multiple of that of a pair."""
PSEUDO_PAIRS = 20
"""Pairs of average spread that are added to those of each gene when its scale is estimated."""

PROFILES, SPREADS = (0.0, 1.0), (0.0, 1.0)
PAIR_PENALTIES = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
RESIDUAL, MOST_STEPS = 1e-3, 60
MOST_BYTES = 2**30
MOST_OPERATIONS = 2e10
"""With more floating-point operations in a product with the covariance, the regression has landmarks."""
PAIR_LANDMARKS = 2000


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

    def matrix(self, values: Values) -> NDArray[np.float32]:
        """Return the sum of the ``values``, [S], of the strains that have a pair, [R, G]."""
        shape = (len(self.rows), self.design.shape[1])
        places = self.row * shape[1] + self.column
        return np.bincount(places, values[self.owner], shape[0] * shape[1]).astype(np.float32).reshape(shape)

    def sums(self) -> sparse.csr_array:
        """Return a matrix that sums over the pairs of each strain, [S, P]."""
        return adding(self.owner, self.design.shape[0])


@dataclass(frozen=True)
class KernelRidge(KernelBaseline):
    """Predict with effects of pairs of deleted genes, and of each gene, that are alike for similar genes.

    With a kernel K between genes, the effects of the pairs ab and cd covary by (K_ac K_bd + K_ad K_bc) / 2, those of
    the genes a and c by ``ADDITIVE`` · K_ac. What a strain shows is the sum over its pairs and genes. The covariance of
    all strains is not formed: K is multiplied with a matrix of pairs from both sides.
    """

    profiles: float  #: weight of the similarity of genes' own profiles in the training part, beside that of networks
    #: 1 where pairs of a gene without training strains spread as those of similar genes do, 0 where they spread as all
    #: pairs do
    spread: float
    genes: NDArray[np.int64] = field(repr=False)  #: [G] indices of the genes that training strains delete
    matrix: NDArray[np.float32] = field(repr=False)  #: [N, G] K in float32, a row for every gene of the cell graph
    train: PairMatrix = field(repr=False)  #: [S] the training strains, or the landmarks among them

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        genes = np.unique(strains.targets).astype(np.int64)
        return self.mean + self.times(self.coefficients, PairMatrix.of(strains, genes), genes)

    def times(self, values: Values, to: PairMatrix, genes: NDArray[np.int64]) -> Values:
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

    def pieces(self, strains: Strains) -> Iterator[NDArray[np.floating]]:
        matrix, train = self.matrix[self.genes], self.train
        c, d = train.rows[train.row], train.column
        for rows in blocks(len(strains), len(c) * max(1, strains.max_deletions)):
            part = PairMatrix.of(strains.slice(rows.start, rows.stop), self.genes)
            a, b = part.rows[part.row], part.column
            pairs = matrix[np.ix_(a, c)] * matrix[np.ix_(b, d)] + matrix[np.ix_(a, d)] * matrix[np.ix_(b, c)]
            of_pairs = part.sums() @ (train.sums() @ pairs.T).T / 2
            yield of_pairs + ADDITIVE * (part.design @ (train.design @ matrix.T).T)

    def in_krylov_space(self, y: Values, penalties: Sequence[float]) -> Iterator[KernelRidge]:
        """Yield the model for each penalty, fitted to the labels of all training strains.

        The system is solved in the Krylov space of the covariance and the labels. That is the one of conjugate
        gradients, and the same for every penalty, so that one product a step serves all. It is extended until the
        residual of the smallest penalty is a thousandth of the labels, or it has sixty dimensions.
        """
        values, first = y - self.mean, np.eye(MOST_STEPS)[0]
        size, basis, inner = float(np.linalg.norm(values)), np.zeros((MOST_STEPS, len(y))), np.zeros((MOST_STEPS,) * 2)
        basis[0] = values / (size or 1)
        for step in range(MOST_STEPS):
            space, rest = basis[: step + 1], self.times(basis[step], self.train, self.genes)
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
            found = space.T @ np.linalg.solve(projected + penalty * np.eye(step + 1), size * first[: step + 1])
            yield replace(self, penalty=penalty, coefficients=found)


def fit_kernel_ridge(
    problem: Problem, profiles: float, penalties: Sequence[float] = PAIR_PENALTIES, spreads: Sequence[float] = SPREADS
) -> Iterator[KernelRidge]:
    """Yield one model for each penalty and spread.

    Spreads of genes without training strains do not concern the fit. Above ``MOST_OPERATIONS`` the regression is in the
    span of 2,000 strains.
    """
    similarity, labels, mean = problem.similarity(), problem.y_train, float(problem.y_train.mean())
    genes = similarity.genes
    train = PairMatrix.of(problem.train, genes)
    residual = labels - AdditiveRidge(10.0).fit(problem.train, labels).predict(problem.train)
    alike = _gene_kernel(similarity, train, residual, profiles)
    scale = _scales(train, np.square(labels - mean))
    kernels = [_scaled(alike, similarity, scale, spread) for spread in spreads]
    model, rows = KernelRidge(profiles, spreads[0], genes, kernels[0], train, mean=mean), len(train.rows)
    if 2.0 * rows * len(genes) ** 2 + 4.0 * rows**2 * len(genes) > MOST_OPERATIONS:
        problem, landmarks, limited = limit(problem, 0, PAIR_LANDMARKS)
        model = replace(model, train=PairMatrix.of(landmarks, genes), limited=limited)
        found = model.fitted(landmarks, problem.train, problem.y_train, penalties)
    else:
        found = model.in_krylov_space(labels, penalties)
    for one in found:
        yield from (replace(one, spread=of, matrix=kernel) for of, kernel in zip(spreads, kernels, strict=True))


def _gene_kernel(
    similarity: GeneSimilarity, train: PairMatrix, residual: Values, profiles: float
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
    kernel *= 1 - OWN_PAIRS
    kernel[genes, np.arange(len(genes))] += OWN_PAIRS
    return kernel


def _scaled(
    kernel: NDArray[np.float32], similarity: GeneSimilarity, scale: Values, spread: float
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


def _scales(train: PairMatrix, squares: Values) -> Values:
    """Return the spread of the labels of each gene's pairs, relative to that of all pairs, [G]."""
    genes = np.concatenate([train.rows[train.row], train.column])
    both = np.tile(squares[train.owner], 2)
    size, usual = train.design.shape[1], float(both.mean()) if len(both) else 0.0
    if usual == 0:
        return np.ones(size)
    total = np.bincount(genes, both, minlength=size) + PSEUDO_PAIRS * usual
    return np.sqrt(total / (np.bincount(genes, minlength=size) + PSEUDO_PAIRS) / usual)


def _no_pairs(problem: Problem) -> str | None:
    strains = problem.train
    most = int(strains.num_deletions.max())
    if most < 2:
        return f"needs strains with two or more deletions (found {most} at most)"
    pairs = int((strains.num_deletions * (strains.num_deletions - 1) // 2).sum())
    held = max(64 * pairs, 20 * len(strains.names) * len(np.unique(strains.targets)))
    if held > MOST_BYTES:
        return f"would need {held / 2**30:.1f} GiB of memory, and is limited to {MOST_BYTES / 2**30:.0f}"
    return None


REACTION_LANDMARKS = 2000
REACTION_PENALTIES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)


@dataclass(frozen=True)
class ReactionKernelRidge(KernelBaseline):
    """Predict alike for similar sets of lost reactions.

    The kernel is Tanimoto's ⟨a, b⟩ / (⟨a, a⟩ + ⟨b, b⟩ − ⟨a, b⟩). In the inner product two reactions count by the
    metabolites that they share. Two strains that lose nothing are alike. With more than 2,000 different strains in
    training, the regression is confined to the span of 2,000 of them.
    """

    own_share: float  #: share of a reaction's square length that it has in common with no other reaction
    reactions: Reactions = field(repr=False)  #: tells which reactions a strain loses
    #: [M, F] vectors of the strains that span the regression
    landmarks: sparse.csr_array = field(default_factory=lambda: sparse.csr_array((0, 0)), repr=False)

    def features(self, strains: Strains) -> sparse.csr_array:
        """Return the vectors whose inner products are taken, [S, F]."""
        lost = self.reactions.lost(strains)
        near = lost @ self.reactions.neighbourhood
        own, others = np.sqrt(self.own_share), np.sqrt(1 - self.own_share)
        return sparse.csr_array(sparse.hstack([own * lost, others * near]))

    def pieces(self, strains: Strains) -> Iterator[NDArray[np.float64]]:
        vectors, others = self.features(strains), self.landmarks
        lengths, of_others = (np.asarray(x.multiply(x).sum(axis=1), np.float64) for x in (vectors, others))
        for rows in blocks(len(strains), len(of_others)):
            products = (vectors[rows] @ others.T).toarray().astype(np.float64)
            union = lengths[rows][:, None] + of_others - products
            yield np.divide(products, union, out=np.ones_like(products), where=union > SMALLEST)


def fit_reaction_kernel(
    problem: Problem, own: float, penalties: Sequence[float] = REACTION_PENALTIES
) -> Iterator[ReactionKernelRidge]:
    """Yield one model for each penalty; ``own`` is its ``own_share``."""
    problem, sample = problem.sampled(MOST_STRAINS)
    assert problem.reactions is not None
    model = ReactionKernelRidge(own, problem.reactions, mean=float(problem.y_train.mean()))
    vectors = model.features(problem.train)
    # The first of each set of equal strains, as far as a random projection to two numbers tells.
    axes = np.random.default_rng(0).normal(size=(vectors.shape[1], 2))
    different = np.sort(np.unique(np.round(vectors @ axes, 5), axis=0, return_index=True)[1])
    chosen = np.sort(np.random.default_rng(0).permutation(different)[:REACTION_LANDMARKS])
    few = f"{REACTION_LANDMARKS:,} landmarks" if len(different) > REACTION_LANDMARKS else ""
    model = replace(model, landmarks=vectors[chosen], limited=" of ".join(filter(None, (few, sample))))
    yield from model.fitted(problem.train.take(chosen), problem.train, problem.y_train, penalties)


OWN, SHARED = 0.4, 0.3
"""A gene has the first share of its variance in common with no other gene, and the second with all."""

ACTIVITY_LENGTHS = (0.25, 1.0)
PENALTIES = (1.0, 0.3, 0.1, 0.03, 0.01)

MOST_EXACT = 6000
"""With more training strains, the regression has landmarks."""
LANDMARKS = 1000
MOST_PAIRS = 2**31
"""Pairs of targets that are compared at most."""


@dataclass(frozen=True)
class Compared:
    """Hold what is compared of strains."""

    targets: NDArray[np.int64]  #: [P] indices of genes
    amounts: NDArray[np.float64]  #: [P] how much of each target is lost
    sums: sparse.csr_array  #: [S, P] a matrix that sums over the targets of each strain
    codes: NDArray[np.float64]  #: [S, C] categories of covariates
    numbers: NDArray[np.float64]  #: [S, M] standardised numbers of covariates

    @classmethod
    def of(cls, strains: Strains, covariates: Covariates) -> Self:
        """Return it for strains; ``covariates`` are those of the training strains."""
        sums, targets = adding(strains.owners, len(strains)), strains.targets.astype(np.int64)
        return cls(targets, strains.lost, sums, covariates.codes(strains), covariates.numbers(strains))


@dataclass(frozen=True)
class StrainKernelRidge(KernelBaseline):
    """Predict alike for strains that lose as much of similar genes with similar covariates.

    A strain with the targets v, of which the shares d_v are lost, and another one with w have in their genes
    g = Σ_vw K_vw d_v d_w exp(−(d_v − d_w)² / 2ℓ²), where K says how alike two genes are. Their covariance is
    (1 + g + g²/2) · c: effects of covariates, of genes and of pairs of genes, all of which differ between covariates.
    For each covariate c has a factor: 1 for equal categories and ``alike`` for others, and exp(−(z − z')² / 2ℓ²M) for
    each of M standardised numbers.
    """

    activity_length: float  #: ℓ of what is lost
    alike: float  #: how alike strains of two categories are, from 0 to 1; NaN where no covariate has categories
    covariate_length: float  #: ℓ of the numbers of covariates; NaN where there are none
    genes: NDArray[np.int64] = field(repr=False)  #: [G] indices of the genes that training strains change, ascending
    matrix: NDArray[np.float32] = field(repr=False)  #: [N, G] K, a row for every gene
    covariates: Covariates = field(repr=False)
    train: Compared = field(repr=False)  #: [T] the training strains, or the landmarks among them

    def pieces(self, strains: Strains) -> Iterator[NDArray[np.float64]]:
        compared = max(self.train.sums.shape[0], len(self.train.targets) * strains.max_deletions)
        for rows in blocks(len(strains), compared):
            part = Compared.of(strains.slice(rows.start, rows.stop), self.covariates)
            genes = self._of_genes(part)
            yield (1 + genes + genes**2 / 2) * self._of_covariates(part)

    def _of_genes(self, part: Compared) -> Values:
        columns, amounts = np.searchsorted(self.genes, self.train.targets), self.train.amounts
        here = part.amounts[:, None]
        pairs = self.matrix[part.targets][:, columns] * (here * amounts)
        pairs *= np.exp(-np.square((here - amounts) / self.activity_length) / 2)
        return part.sums @ (self.train.sums @ pairs.T).T

    def _of_covariates(self, part: Compared) -> Values:
        found = np.ones((part.sums.shape[0], self.train.sums.shape[0]))
        for here, there in zip(part.codes.T, self.train.codes.T, strict=True):
            found *= np.where(here[:, None] == there, 1.0, self.alike)
        if part.numbers.size:
            # One exponential of a sum takes less time than a product of exponentials.
            squares = cdist(part.numbers, self.train.numbers, "sqeuclidean")
            found *= np.exp(squares / (-2 * part.numbers.shape[1] * self.covariate_length**2))
        return found


def fit_strain_kernels(problem: Problem) -> Iterator[StrainKernelRidge]:
    """Yield one model for each set of hyperparameters that concern the strains."""
    problem, among, limited = limit(problem, MOST_EXACT, LANDMARKS)
    strains, y, similarity = problem.train, problem.y_train, problem.similarity()
    matrix, genes = SHARED + (1 - OWN - SHARED) * similarity.matrix, similarity.genes
    matrix[genes, np.arange(len(genes))] += OWN
    covariates = Covariates.of(strains)
    compared = Compared.of(among, covariates)
    lengths = ACTIVITY_LENGTHS if strains.activities is not None else ACTIVITY_LENGTHS[-1:]
    alike = (0.3, 0.8) if compared.codes.size else (math.nan,)
    spans = (0.5, 1.0, 2.0, 4.0) if compared.numbers.size else (math.nan,)
    mean = float(y.mean())
    for scales in itertools.product(lengths, alike, spans):
        model = StrainKernelRidge(*scales, genes, matrix, covariates, compared, mean=mean, limited=limited)
        yield from model.fitted(among, strains, y, PENALTIES)


def needs_more(problem: Problem) -> str | None:
    """Say what strains lack for a kernel of activities and covariates; None if nothing."""
    strains = problem.train
    if strains.activities is None and not strains.covariates:
        return "needs strains with activities or covariates"
    of_each = len(strains.targets) / len(strains)
    compared = of_each**2 * min(len(strains), MOST_EXACT) ** 2
    if compared > MOST_PAIRS:
        return f"would compare {compared:.0e} pairs of genes, and is limited to {MOST_PAIRS:.0e}"
    return None


PAIR_KERNEL = Family(
    lambda problem: (model for profiles in PROFILES for model in fit_kernel_ridge(problem, profiles)), _no_pairs
)
REACTION_KERNEL = Family(
    lambda problem: (model for own in (0.1, 0.5) for model in fit_reaction_kernel(problem, own)), no_lost_reaction
)
STRAIN_KERNEL = Family(fit_strain_kernels, needs_more, MORE)
