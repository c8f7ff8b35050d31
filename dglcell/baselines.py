"""Null models: what a predictor without a cell graph reaches on the same split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, cg

from dglcell.errors import ConfigError, DataError

# The strains and labels that null models are fitted on, in plain numpy.


@dataclass(frozen=True)
class Strains:
    """S strains as lists of deleted genes.

    Attributes:
        genes: [P] integers below ``num_genes``, strain by strain; query genes first, array gene last.
        offsets: [S + 1]; strain s deletes ``genes[offsets[s]:offsets[s + 1]]``.
        num_genes: size of the gene vocabulary.

    Raises:
        DataError: offsets do not cover the genes, or a gene lies outside the vocabulary.
    """

    genes: NDArray[np.integer]
    offsets: NDArray[np.int64]
    num_genes: int

    def __post_init__(self) -> None:
        if len(self.offsets) == 0 or self.offsets[0] != 0 or self.offsets[-1] != len(self.genes):
            raise DataError("strains: offsets do not cover the genes", got=f"{len(self.genes)} genes")
        if (np.diff(self.offsets) < 0).any():
            raise DataError("strains: offsets decrease")
        if len(self.genes) and not 0 <= self.genes.min() <= self.genes.max() < self.num_genes:
            raise DataError(
                "strains: gene indices outside the vocabulary",
                got=f"{self.genes.min()} … {self.genes.max()}",
                expected=f"0 … {self.num_genes - 1}",
            )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def num_deletions(self) -> NDArray[np.int64]:
        """[S] number of deleted genes of each strain."""
        return np.diff(self.offsets).astype(np.int64)

    @cached_property
    def design(self) -> sparse.csr_matrix:
        """[S, num_genes] sparse matrix, 1 where the strain deletes the gene."""
        values = np.ones(len(self.genes))
        shape = (len(self), self.num_genes)
        return sparse.csr_matrix((values, self.genes.astype(np.int64), self.offsets), shape=shape)

    def first_two(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first two genes of the strains ``rows`` (each must delete two or more), smaller index first."""
        start = self.offsets[rows]
        a, b = self.genes[start].astype(np.int64), self.genes[start + 1].astype(np.int64)
        return np.minimum(a, b), np.maximum(a, b)

    def take(self, rows: NDArray[np.integer]) -> Strains:
        """The strains at ``rows``, in that order."""
        counts = self.num_deletions[rows]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        positions = np.repeat(self.offsets[rows] - offsets[:-1], counts) + np.arange(offsets[-1])
        return Strains(self.genes[positions], offsets, self.num_genes)


def labelled(strains: Strains, y: NDArray[np.floating]) -> tuple[Strains, NDArray[np.float64]]:
    """The strains whose label is not NaN, with their labels in float64.

    Raises:
        DataError: the lengths differ, or no strain has a label.
    """
    if len(y) != len(strains):
        raise DataError("null models: labels do not match the strains", got=len(y), expected=len(strains))
    rows = np.flatnonzero(~np.isnan(y))
    if len(rows) == 0:
        raise DataError(
            "null models: no training strain has a label",
            got=f"{len(y):,} missing labels",
            expected="at least one measured value",
            do="choose another phenotype or another split",
        )
    labels = np.asarray(y, dtype=np.float64)
    return (strains, labels) if len(rows) == len(labels) else (strains.take(rows), labels[rows])


# Null model: every strain has the mean label of the training part.


@dataclass
class TrainingMean:
    """y = mean of the training labels."""

    mean: float = field(default=0.0, init=False)

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from the labelled strains; missing labels (NaN) are ignored."""
        self.mean = float(labelled(strains, y)[1].mean())
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """[S] predictions in the units of the labels."""
        return np.full(len(strains), self.mean)


# Null model: deletions act independently, each gene with one effect.


RESIDUAL = 1e-8
MAX_ITERATIONS = 2000


@dataclass
class AdditiveRidge:
    """y = intercept + sum of the effects of the deleted genes; ridge regression, intercept not penalised.

    A gene that no training strain deletes has effect 0.

    Attributes:
        alpha: penalty on squared effects; a gene's effect is shrunk as if it had been measured ``alpha`` more
            times with effect 0.
    """

    alpha: float = 1.0
    intercept: float = field(default=0.0, init=False)
    effects: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.alpha > 0:
            raise ConfigError("additive ridge: `alpha` must be positive", got=self.alpha)

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Solve the centred normal equations by conjugate gradients; missing labels (NaN) are ignored."""
        strains, labels = labelled(strains, y)
        design, count = strains.design, len(labels)
        gram = (design.T @ design).tocsr()
        gene_mean = np.asarray(design.mean(axis=0)).ravel()
        # The centred design is dense; its Gram matrix is the sparse one minus a rank-one term.
        diagonal = gram.diagonal() - count * gene_mean**2 + self.alpha
        size = strains.num_genes
        normal = LinearOperator(
            (size, size),
            matvec=lambda w: gram @ w - count * gene_mean * (gene_mean @ w) + self.alpha * w,
            dtype=np.float64,
        )
        jacobi = LinearOperator((size, size), matvec=lambda w: w / diagonal, dtype=np.float64)
        mean = float(labels.mean())
        right = design.T @ (labels - mean)
        self.effects, _ = cg(normal, right, rtol=RESIDUAL, maxiter=MAX_ITERATIONS, M=jacobi)
        self.intercept = mean - float(gene_mean @ self.effects)
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """[S] predictions in the units of the labels."""
        return self.intercept + strains.design @ self.effects


# Null model: a strain behaves like the training strains that share its query pair.


@dataclass
class QueryPairMean:
    """y = mean label of the strain's query pair, shrunk to the training mean.

    The query pair is the first two genes in stored order, unordered; a pair is its own query pair. A strain
    with fewer deletions, or with a query pair not seen in training, gets the training mean.

    Attributes:
        pseudo_count: number of fictitious strains with the training mean added to every query pair.
    """

    pseudo_count: float = 1.0
    mean: float = field(default=0.0, init=False)
    keys: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64), init=False, repr=False)
    means: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.pseudo_count >= 0:
            raise ConfigError("query-pair mean: `pseudo_count` must not be negative", got=self.pseudo_count)

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from the labelled strains; missing labels (NaN) are ignored."""
        strains, labels = labelled(strains, y)
        self.mean = float(labels.mean())
        rows, keys = _query_pairs(strains)
        self.keys, inverse = np.unique(keys, return_inverse=True)
        count = np.bincount(inverse, minlength=len(self.keys))
        deviation = np.bincount(inverse, weights=labels[rows] - self.mean, minlength=len(self.keys))
        self.means = self.mean + deviation / (count + self.pseudo_count)
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """[S] predictions in the units of the labels."""
        prediction = np.full(len(strains), self.mean)
        if len(self.keys) == 0:
            return prediction
        rows, keys = _query_pairs(strains)
        position = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        seen = self.keys[position] == keys
        prediction[rows[seen]] = self.means[position[seen]]
        return prediction


def _query_pairs(strains: Strains) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The strains with a query pair, and one integer for each pair."""
    rows = np.flatnonzero(strains.num_deletions >= 2)
    low, high = strains.first_two(rows)
    return rows, low * strains.num_genes + high


# Null model for pairs: genes have interaction profiles of low rank.


OVERSAMPLING = 10
CHANGE = 3e-3
CHUNK = 1 << 18


@dataclass
class LowRankProfiles:
    """y_ab = additive ridge + Z_ab, with Z a symmetric gene × gene matrix of low rank.

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
        max_rounds: most rounds of imputation.
    """

    shrinkage: float = 1.0
    rank: int = 40
    alpha: float = 10.0
    max_rounds: int = 100
    additive: AdditiveRidge = field(init=False, repr=False)
    vectors: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)), init=False, repr=False)
    values: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), init=False, repr=False)

    def __post_init__(self) -> None:
        if self.rank < 1 or not self.shrinkage >= 0:
            raise ConfigError(
                "low-rank profiles: `rank` must be positive and `shrinkage` not negative",
                got=f"rank {self.rank}, shrinkage {self.shrinkage}",
            )
        self.additive = AdditiveRidge(self.alpha)

    @staticmethod
    def why_not(strains: Strains) -> str | None:
        """Why the model cannot be fitted to these strains; None if it can."""
        if (strains.num_deletions == 2).all():
            return None
        found = ", ".join(str(n) for n in np.unique(strains.num_deletions))
        return f"needs strains with exactly two deletions (found {found})"

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from the labelled strains; missing labels (NaN) are ignored, replicates averaged.

        Raises:
            DataError: a strain has not exactly two deletions.
        """
        reason = self.why_not(strains)
        if reason:
            raise DataError(f"low-rank profiles: {reason}")
        strains, labels = labelled(strains, y)
        residual = labels - self.additive.fit(strains, labels).predict(strains)
        low, high = strains.first_two(np.arange(len(strains)))
        keys, inverse = np.unique(low * strains.num_genes + high, return_inverse=True)
        residual = np.bincount(inverse, weights=residual) / np.bincount(inverse)
        self._impute(keys // strains.num_genes, keys % strains.num_genes, residual, strains.num_genes)
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
            # The whole basis is carried on; only the kept eigenvalues belong to the model.
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
        """The filled matrix times ``basis``: what Z leaves of the measured entries, plus Z."""
        return unexplained @ basis + self.vectors @ (self.values[:, None] * (self.vectors.T @ basis))

    def _times_old(self, vectors: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """A small matrix with the Frobenius norm of the new Z minus the old one, in the new basis."""
        overlap = vectors.T @ self.vectors
        return np.diag(values) - (overlap * self.values) @ overlap.T

    def _profile_part(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.float64]:
        """Z at the pairs (low, high)."""
        kept = self.values != 0
        vectors = self.vectors[:, kept]
        scaled = vectors * self.values[kept]
        result = np.empty(len(low))
        for start in range(0, len(low), CHUNK):
            part = slice(start, start + CHUNK)
            result[part] = np.einsum("pk,pk->p", scaled[low[part]], vectors[high[part]])
        return result

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """[S] predictions in the units of the labels; for strains that are not pairs the additive part."""
        prediction = self.additive.predict(strains)
        pairs = np.flatnonzero(strains.num_deletions == 2)
        prediction[pairs] += self._profile_part(*strains.first_two(pairs))
        return prediction


def _symmetric(
    low: NDArray[np.int64], high: NDArray[np.int64], values: NDArray[np.float64], size: int
) -> sparse.csr_matrix:
    """[size, size] symmetric matrix with ``values`` at (low, high) and (high, low)."""
    rows, columns = np.concatenate([low, high]), np.concatenate([high, low])
    return sparse.csr_matrix((np.concatenate([values, values]), (rows, columns)), shape=(size, size))


# Null models: what a predictor without a cell graph reaches on the same split.
#
# A result of a graph model means little without them: additive effects of genes, or the mean of a query pair,
# explain much of most screens.


__all__ = [
    "NULL_MODELS",
    "AdditiveRidge",
    "FittedNull",
    "LowRankProfiles",
    "NullModel",
    "QueryPairMean",
    "Strains",
    "TrainingMean",
    "fit_null_models",
    "left_out_null_models",
]


class NullModel(Protocol):
    """A predictor of one phenotype from the deleted genes alone."""

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from the labelled strains; missing labels (NaN) are ignored."""

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """[S] predictions in the units of the labels."""


ALPHAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
PSEUDO_COUNTS = (0.5, 2.0, 8.0, 32.0)
SHRINKAGES = (0.7, 1.0, 1.4, 2.0, 3.0)

NULL_MODELS: dict[str, Callable[[], list[NullModel]]] = {
    "training mean": lambda: [TrainingMean()],
    "additive ridge": lambda: [AdditiveRidge(alpha) for alpha in ALPHAS],
    "query-pair mean": lambda: [QueryPairMean(count) for count in PSEUDO_COUNTS],
    "low-rank profiles": lambda: [LowRankProfiles(shrinkage) for shrinkage in SHRINKAGES],
}
"""Name → the candidates of which the validation part chooses one."""


@dataclass(frozen=True)
class FittedNull:
    """A null model fitted to the training part.

    Attributes:
        name: key of ``NULL_MODELS``.
        model: the candidate with the least validation MSE; prints its hyperparameters.
    """

    name: str
    model: NullModel

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """[S] predictions in the units of the labels."""
        return self.model.predict(strains)


def left_out_null_models(train: Strains) -> dict[str, str]:
    """The null models that do not apply to these strains: name → reason."""
    reason = LowRankProfiles.why_not(train)
    return {"low-rank profiles": reason} if reason else {}


def fit_null_models(
    train: Strains, validation: Strains, y_train: NDArray[np.floating], y_validation: NDArray[np.floating]
) -> list[FittedNull]:
    """Fit every null model that applies to the training part; choose hyperparameters on the validation part.

    Args:
        train: training strains.
        validation: validation strains.
        y_train: [S] labels of one phenotype, NaN where missing.
        y_validation: likewise for the validation strains; if none is measured the middle candidate is taken.

    Raises:
        DataError: no training strain has a label.
    """
    skip = left_out_null_models(train)
    return [
        FittedNull(name, _best(candidates(), train, validation, y_train, y_validation))
        for name, candidates in NULL_MODELS.items()
        if name not in skip
    ]


def _best(
    candidates: Sequence[NullModel],
    train: Strains,
    validation: Strains,
    y_train: NDArray[np.floating],
    y_validation: NDArray[np.floating],
) -> NullModel:
    """The fitted candidate with the least mean squared error on the validation part."""
    measured = ~np.isnan(y_validation)
    if len(candidates) == 1 or not measured.any():
        return candidates[len(candidates) // 2].fit(train, y_train)
    fitted = [candidate.fit(train, y_train) for candidate in candidates]
    errors = [float(np.square(model.predict(validation) - y_validation)[measured].mean()) for model in fitted]
    return fitted[int(np.argmin(errors))]
