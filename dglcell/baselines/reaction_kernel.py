"""Fit baselines of the reactions that strains lose.

They show what a strain's own graph says without messages or training on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dglcell.baselines.features import Reactions, blocks
from dglcell.baselines.problem import MOST_STRAINS, SMALLEST, Baseline, Family, Problem, spanned
from dglcell.baselines.simple import not_fitness_like
from dglcell.data.strains import Strains

WILD_TYPE = 1.0


@dataclass
class UntrainedBound(Baseline):
    """Predict y = the smallest label of the training strains that lose only reaction nodes which the strain loses, at
    most 1.

    This is the bound that the link ``minimum`` puts on a model (``dglcell.models.terms.measured``), without the model.
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


LANDMARKS = 2000
MOST_CELLS = 2**28
PENALTIES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)


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
    problem: Problem, own: float, penalties: Sequence[float] = PENALTIES
) -> Iterator[ReactionKernelRidge]:
    """Yield one model for each penalty; ``own`` is its ``own_share``."""
    problem, sample = problem.sampled(MOST_STRAINS)
    assert problem.reactions is not None
    model = ReactionKernelRidge(own, problem.reactions, float(problem.y_train.mean()))
    vectors = model.features(problem.train)
    different = _different_rows(vectors)
    landmarks = vectors[np.sort(np.random.default_rng(0).permutation(different)[:LANDMARKS])]
    few = f"{LANDMARKS:,} landmarks" if len(different) > LANDMARKS else ""
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


def _no_kernel(problem: Problem) -> str | None:
    if problem.reactions is None:
        return "needs a cell graph with reactions"
    if not problem.reactions.lost_nodes(problem.train).nnz:
        return "needs training strains that lose a reaction"
    return None


def _no_bound(problem: Problem) -> str | None:
    reason = _no_kernel(problem) or not_fitness_like(problem.y_train)
    if reason or problem.reactions is None:
        return reason
    cells = len(problem.train) * len(np.unique(problem.reactions.lost_nodes(problem.train).indices))
    return f"would compare {cells:.0e} pairs, and is limited to {MOST_CELLS:.0e}" if cells > MOST_CELLS else None


BOUND = Family(
    lambda of: iter([UntrainedBound(of.reactions).fit(of.train, of.y_train)] if of.reactions else []), _no_bound
)
REACTION_KERNEL = Family(
    lambda problem: (model for own in (0.1, 0.5) for model in fit_reaction_kernel(problem, own)), _no_kernel
)
