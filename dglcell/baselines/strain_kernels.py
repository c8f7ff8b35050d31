"""Fit baselines with kernels between strains: of lost reactions, and of genes, activities and covariates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from dglcell.baselines.features import Covariates, Reactions, adding, blocks
from dglcell.baselines.problem import MORE, MOST_STRAINS, SMALLEST, Baseline, Family, Problem, limit, solved, spanned
from dglcell.baselines.simple import no_lost_reaction
from dglcell.data.strains import Strains

REACTION_LANDMARKS = 2000
REACTION_PENALTIES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)


@dataclass(frozen=True)
class ReactionKernelRidge(Baseline):
    """Predict by ridge regression with a kernel between sets of lost reactions.

    The kernel is Tanimoto's ⟨a, b⟩ / (⟨a, a⟩ + ⟨b, b⟩ − ⟨a, b⟩). In the inner product two reactions count by the
    metabolites that they share. Two strains that lose nothing are alike. With more than 2,000 different strains in
    training, the regression is confined to the span of 2,000 of them.
    """

    own_share: float  #: share of a reaction's square length that it has in common with no other reaction
    reactions: Reactions = field(repr=False)  #: tells which reactions a strain loses
    mean: float = field(default=0.0, repr=False)  #: mean of the training labels
    penalty: float = np.nan  #: variance of the noise
    limited: str = ""  #: what is left out of a large table, in words
    #: [M, F] vectors of the strains that span the regression
    landmarks: sparse.csr_array = field(default_factory=lambda: sparse.csr_array((0, 0)), repr=False)
    #: [M] coefficients of these strains
    coefficients: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False)

    def features(self, strains: Strains) -> sparse.csr_array:
        """Return the vectors whose inner products are taken, [S, F]."""
        lost = self.reactions.lost(strains)
        near = lost @ self.reactions.neighbourhood
        own, others = np.sqrt(self.own_share), np.sqrt(1 - self.own_share)
        return sparse.csr_array(sparse.hstack([own * lost, others * near]))

    @staticmethod
    def between(a_SF: sparse.csr_array, b_MF: sparse.csr_array) -> NDArray[np.float64]:
        """Return the kernel of two sets of vectors, [S, M]."""
        products = (a_SF @ b_MF.T).toarray().astype(np.float64)
        lengths = [np.asarray(x.multiply(x).sum(axis=1), np.float64) for x in (a_SF, b_MF)]
        union = lengths[0][:, None] + lengths[1] - products
        return np.divide(products, union, out=np.ones_like(products), where=union > SMALLEST)

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        vectors, found = self.features(strains), np.empty(len(strains))
        for rows in blocks(len(strains), len(self.coefficients)):
            found[rows] = self.mean + self.between(vectors[rows], self.landmarks) @ self.coefficients
        return found


def fit_reaction_kernel(
    problem: Problem, own: float, penalties: Sequence[float] = REACTION_PENALTIES
) -> Iterator[ReactionKernelRidge]:
    """Yield one model for each penalty; ``own`` is its ``own_share``."""
    problem, sample = problem.sampled(MOST_STRAINS)
    assert problem.reactions is not None
    model = ReactionKernelRidge(own, problem.reactions, float(problem.y_train.mean()))
    vectors = model.features(problem.train)
    different = _different_rows(vectors)
    landmarks = vectors[np.sort(np.random.default_rng(0).permutation(different)[:REACTION_LANDMARKS])]
    few = f"{REACTION_LANDMARKS:,} landmarks" if len(different) > REACTION_LANDMARKS else ""
    model = replace(model, landmarks=landmarks, limited=" of ".join(filter(None, (few, sample))))
    inner = model.between(landmarks, landmarks)
    values = problem.y_train - model.mean
    for penalty, found in spanned(lambda rows: model.between(vectors[rows], landmarks), inner, values, penalties):
        yield replace(model, penalty=penalty, coefficients=found)


def _different_rows(vectors: sparse.csr_array) -> NDArray[np.int64]:
    """Return the first of each set of rows that are equal, as far as a random projection to two numbers tells."""
    axes = np.random.default_rng(0).normal(size=(vectors.shape[1], 2))
    _, first = np.unique(np.round(vectors @ axes, 5), axis=0, return_index=True)
    return np.sort(first)


REACTION_KERNEL = Family(
    lambda problem: (model for own in (0.1, 0.5) for model in fit_reaction_kernel(problem, own)), no_lost_reaction
)


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
class StrainKernelRidge(Baseline):
    """Predict the mean of a Gaussian process: the mean label, plus what similar training strains add.

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
    mean: float = field(repr=False)  #: mean of the training labels
    penalty: float = np.nan  #: variance of the noise, relative to that of the effects of covariates
    limited: str = ""  #: what is left out of a large table, in words
    #: [T] coefficients of the training strains
    coefficients: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False)

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S], for any genes of the cell graph."""
        return self.mean + np.concatenate([np.zeros(0), *(part @ self.coefficients for part in self.pieces(strains))])

    def covariance(self, strains: Strains) -> NDArray[np.float64]:
        """Return the covariance of strains and the training strains, [S, T]."""
        return np.concatenate([np.zeros((0, self.train.sums.shape[0])), *self.pieces(strains)])

    def pieces(self, strains: Strains) -> Iterator[NDArray[np.float64]]:
        """Yield the rows of this covariance in pieces, so that one piece at a time is in memory."""
        compared = max(self.train.sums.shape[0], len(self.train.targets) * strains.max_deletions)
        for rows in blocks(len(strains), compared):
            part = Compared.of(strains.slice(rows.start, rows.stop), self.covariates)
            genes = self._of_genes(part)
            yield (1 + genes + genes**2 / 2) * self._of_covariates(part)

    def _of_genes(self, part: Compared) -> NDArray[np.float64]:
        columns, amounts = np.searchsorted(self.genes, self.train.targets), self.train.amounts
        here = part.amounts[:, None]
        pairs = self.matrix[part.targets][:, columns] * (here * amounts)
        pairs *= np.exp(-np.square((here - amounts) / self.activity_length) / 2)
        return part.sums @ (self.train.sums @ pairs.T).T

    def _of_covariates(self, part: Compared) -> NDArray[np.float64]:
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
    exact, among, limited = len(problem.train) <= MOST_EXACT, problem.train, ""
    if not exact:
        problem, among, limited = limit(problem, LANDMARKS)
    strains, similarity, mean = problem.train, problem.similarity(), float(problem.y_train.mean())
    matrix, genes = SHARED + (1 - OWN - SHARED) * similarity.matrix, similarity.genes
    matrix[genes, np.arange(len(genes))] += OWN
    covariates = Covariates.of(strains)
    compared = Compared.of(among, covariates)
    lengths = ACTIVITY_LENGTHS if strains.activities is not None else ACTIVITY_LENGTHS[-1:]
    alike = (0.3, 0.8) if compared.codes.size else (math.nan,)
    spans = (0.5, 1.0, 2.0, 4.0) if compared.numbers.size else (math.nan,)
    for scales in itertools.product(lengths, alike, spans):
        model = StrainKernelRidge(*scales, genes, matrix, covariates, compared, mean, limited=limited)
        inner, values = model.covariance(among), problem.y_train - mean

        def crossed(rows: slice, model: StrainKernelRidge = model) -> NDArray[np.float64]:
            return model.covariance(strains.slice(rows.start, rows.stop))

        found = solved(inner, values, PENALTIES) if exact else spanned(crossed, inner, values, PENALTIES)
        yield from (replace(model, penalty=penalty, coefficients=one) for penalty, one in found)


def _lacks(problem: Problem) -> str | None:
    strains = problem.train
    if strains.activities is None and not strains.covariates:
        return "needs strains with activities or covariates"
    of_each = len(strains.targets) / len(strains)
    compared = of_each**2 * min(len(strains), MOST_EXACT) ** 2
    if compared > MOST_PAIRS:
        return f"would compare {compared:.0e} pairs of genes, and is limited to {MOST_PAIRS:.0e}"
    return None


STRAIN_KERNEL = Family(fit_strain_kernels, _lacks, MORE)
