"""Fit null models of the reactions that strains lose.

They show what a strain's own graph says without messages or training on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg, sparse

from dglcell.baselines.beyond_deletions import refuse_strengths
from dglcell.baselines.composition import not_fitness_like
from dglcell.baselines.simple import labelled, why_too_long
from dglcell.data.strains import Strains
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.metabolism import whole_reactions
from dglcell.graph.schema import CATALYSES, CONVERTS, METABOLITE, REACTION
from dglcell.graph.steady_state import SteadyState

MOST_COMPARED = 2**24
"""At most so many pairs of strains are compared at a time."""

MOST_KNOWN = 4
"""The blocked reactions of so many sets of strains are kept."""


class Reactions:
    """Find the reactions of a cell graph, and which of them a strain loses.

    A reaction node is one enzyme complex in one direction. A reaction is lost when all its nodes are. Where the cell
    graph says so, reactions that carry no flux once others are lost are lost, too.
    """

    def __init__(self, cell: CellGraph) -> None:
        catalyses, converts = cell.edges(CATALYSES), cell.edges(CONVERTS)
        nodes = cell.num_nodes[REACTION]
        _, reaction_of = whole_reactions(cell.vocabularies[REACTION].names)
        self._steady_state = SteadyState.of(cell) if cell.lose_blocked else None
        self._known: dict[bytes, sparse.csr_array] = {}
        self.nodes_of = np.bincount(reaction_of)
        self._needs = _incidence(catalyses.src, catalyses.dst, (len(cell.genes), nodes))
        self._belongs = _incidence(np.arange(nodes), reaction_of, (nodes, len(self.nodes_of)))
        shape = (len(self.nodes_of), cell.num_nodes[METABOLITE])
        self._metabolites = _incidence(reaction_of[converts.src], converts.dst, shape)

    def lost_nodes(self, strains: Strains) -> sparse.csr_array:
        """Return a matrix that is 1 where a strain loses a reaction node, [S, nodes]."""
        lost = self._by_rules(strains)
        if self._steady_state is not None:
            lost = sparse.csr_array(lost + self._blocked(lost, self._steady_state))
            lost.data[:] = 1
        return lost

    def of_bounds(self, strains: Strains) -> sparse.csr_array:
        """Return a matrix that is 1 where a strain loses what bounds its growth, [S, nodes], as ``MeasuredStrains`` has
        it.
        """
        lost = self._by_rules(strains)
        return lost if self._steady_state is None else self._blocked(lost, self._steady_state)

    def _by_rules(self, strains: Strains) -> sparse.csr_array:
        strains = refuse_strengths(strains, "lost reactions")
        lost = sparse.csr_array(strains.design.astype(np.float32)) @ self._needs
        lost.data[:] = 1
        return sparse.csr_array(lost)

    def _blocked(self, lost: sparse.csr_array, steady_state: SteadyState) -> sparse.csr_array:
        """Return a matrix that is 1 where a node could carry flux and no longer can, [S, nodes].

        It is remembered for a few sets of strains.
        """
        key = lost.indices.tobytes() + lost.indptr.tobytes()
        if key not in self._known:
            parts = [sparse.csr_array((0, lost.shape[1]), dtype=np.float32)]
            for rows in blocks(*lost.shape):
                lost_NB = torch.from_numpy(lost[rows].toarray().T.astype(bool))
                parts.append(sparse.csr_array(steady_state.blocked(lost_NB).numpy().T, dtype=np.float32))
            self._known = dict(list(self._known.items())[1 - MOST_KNOWN :])
            self._known[key] = sparse.csr_array(sparse.vstack(parts))
        return self._known[key]

    def lost(self, strains: Strains) -> sparse.csr_array:
        """Return a matrix that is 1 where a strain loses a whole reaction, [S, R]."""
        counts = sparse.csr_array(self.lost_nodes(strains) @ self._belongs)
        counts.data = (counts.data == self.nodes_of[counts.indices]).astype(np.float32)
        counts.eliminate_zeros()
        return counts

    @cached_property
    def neighbourhood(self) -> sparse.csr_array:
        """Return unit vectors of the metabolites of each reaction, [R, M]; rarer metabolites weigh more.

        A metabolite of d reactions has the weight 1/√d, so that what takes part in everything (water, ATP) says little.
        """
        rarity = 1 / np.sqrt(np.maximum(self._metabolites.sum(axis=0), 1))
        weighted = sparse.csr_array(self._metabolites @ sparse.diags_array(rarity))
        length = np.sqrt(np.maximum(weighted.multiply(weighted).sum(axis=1), np.finfo(np.float32).tiny))
        return sparse.csr_array(sparse.diags_array(1 / length) @ weighted).astype(np.float32)


def _incidence(rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]) -> sparse.csr_array:
    """Return a matrix with 1 at every given pair of a row and a column, even if it is given several times."""
    matrix = sparse.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=shape)
    matrix.data[:] = 1
    return matrix


WILD_TYPE = 1.0


@dataclass
class UntrainedBound:
    """Predict y = the smallest label of the training strains that lose only reaction nodes which the strain loses, at
    most 1.

    This is the bound that the link ``minimum`` puts on a model (``dglcell.nn.measured``), without the model. A strain
    of which no part was measured has the wild type's value.
    """

    reactions: Reactions = field(repr=False)
    sets: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32), init=False, repr=False)
    columns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64), init=False, repr=False)
    labels: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), init=False, repr=False)

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from the labelled strains; missing labels (NaN) are ignored."""
        strains, labels = labelled(strains, y)
        below = np.flatnonzero(labels < WILD_TYPE)
        lost = self.reactions.of_bounds(strains.take(below))
        some = np.flatnonzero(np.diff(lost.indptr))  # what loses nothing bounds no other
        lost, labels = lost[some], labels[below][some]
        self.columns = np.unique(lost.indices)
        self.sets, which = np.unique(lost[:, self.columns].toarray(), axis=0, return_inverse=True)
        self.labels = np.full(len(self.sets), np.inf)
        np.minimum.at(self.labels, which.ravel(), labels)
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S]."""
        lost, size = self.reactions.of_bounds(strains)[:, self.columns], self.sets.sum(axis=1)
        bound = np.full(len(strains), WILD_TYPE)
        for rows in blocks(len(strains), len(self.sets)):
            is_part = lost[rows] @ self.sets.T == size
            bound[rows] = np.where(is_part, self.labels, WILD_TYPE).min(axis=1, initial=WILD_TYPE)
        return bound


LANDMARKS = 2000
SMALLEST = 1e-6


@dataclass(frozen=True)
class LostSetKernel:
    """Compute how alike the lost reactions of two strains are: Tanimoto's ⟨a, b⟩ / (⟨a, a⟩ + ⟨b, b⟩ − ⟨a, b⟩).

    In the inner product two reactions count by the metabolites that they share. Two strains that lose nothing are
    alike.

    Attributes:
        own: share of a reaction's square length that it has in common with no other reaction.
        reactions: tells which reactions a strain loses; None to compare what is lost of genes.
    """

    own: float
    reactions: Reactions | None = field(repr=False)

    def features(self, strains: Strains) -> sparse.csr_array:
        """Return the vectors whose inner products are taken, [S, F]."""
        if self.reactions is None:
            return sparse.csr_array(strains.design)
        lost = self.reactions.lost(strains)
        near = lost @ self.reactions.neighbourhood
        return sparse.csr_array(sparse.hstack([np.sqrt(self.own) * lost, np.sqrt(1 - self.own) * near]))

    @staticmethod
    def between(a_SF: sparse.csr_array, b_MF: sparse.csr_array) -> NDArray[np.float64]:
        """Return the kernel of two sets of vectors, [S, M]."""
        products = (a_SF @ b_MF.T).toarray().astype(np.float64)
        lengths = [np.asarray(x.multiply(x).sum(axis=1), np.float64) for x in (a_SF, b_MF)]
        union = lengths[0][:, None] + lengths[1] - products
        return np.divide(products, union, out=np.ones_like(products), where=union > SMALLEST)


@dataclass(frozen=True)
class ReactionKernelRidge:
    """Fit ridge regression with a kernel between sets of lost reactions.

    With more than 2,000 different strains in training, the regression is confined to the span of 2,000 of them. They
    are drawn at random, and always the same ones are drawn (Williams and Seeger 2001, *Using the Nyström method*).

    Attributes:
        own_share: the attribute ``own`` of the ``LostSetKernel``.
        penalty: variance of the noise.
        landmarks: [M, F] vectors of the strains that span the regression.
        coefficients: [M] coefficients of these strains.
        mean: mean of the training labels.
    """

    own_share: float
    penalty: float
    kernel: LostSetKernel = field(repr=False)
    landmarks: sparse.csr_array = field(repr=False)
    coefficients: NDArray[np.float64] = field(repr=False)
    mean: float = field(repr=False)

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S]."""
        vectors = self.kernel.features(strains)
        found = np.empty(len(strains))
        for rows in blocks(len(strains), len(self.coefficients)):
            found[rows] = self.mean + self.kernel.between(vectors[rows], self.landmarks) @ self.coefficients
        return found


def fit_reaction_kernels(
    strains: Strains, y: NDArray[np.floating], kernel: LostSetKernel, penalties: Sequence[float]
) -> Iterator[ReactionKernelRidge]:
    """Yield one model for each penalty; missing labels (NaN) are ignored."""
    strains, labels = labelled(strains, y)
    mean = float(labels.mean())
    for penalty, landmarks, coefficients in fit_landmarks(kernel.features(strains), labels - mean, penalties):
        yield ReactionKernelRidge(kernel.own, penalty, kernel, landmarks, coefficients, mean)


def fit_landmarks(
    vectors: sparse.csr_array, values: NDArray[np.float64], penalties: Sequence[float]
) -> Iterator[tuple[float, sparse.csr_array, NDArray[np.float64]]]:
    """Solve ridge regression with the kernel `LostSetKernel.between`, in the span of a few strains.

    Args:
        vectors: [S, F] vectors of the training strains.
        values: [S] what is regressed, around zero.
        penalties: variances of the noise.

    Yields:
        for each penalty it, the vectors [L, F] of the strains that span the regression, and their coefficients [L].
    """
    different = _different_rows(vectors)
    chosen = np.sort(np.random.default_rng(0).permutation(different)[:LANDMARKS])
    landmarks = vectors[chosen]
    # With L the landmarks' kernel and C that of strains and landmarks, CᵀC + penalty · L is solved for every penalty.
    inner = LostSetKernel.between(landmarks, landmarks)
    square, right = SMALLEST * np.eye(len(chosen)), np.zeros(len(chosen))
    for rows in blocks(len(values), len(chosen)):
        crossed = LostSetKernel.between(vectors[rows], landmarks)
        square += crossed.T @ crossed
        right += crossed.T @ values[rows]
    for penalty in penalties:
        yield penalty, landmarks, linalg.solve(square + penalty * inner, right, assume_a="pos")


def _different_rows(vectors: sparse.csr_array) -> NDArray[np.int64]:
    """Return the first of each set of rows that are equal, as far as a random projection to two numbers tells."""
    axes = np.random.default_rng(0).normal(size=(vectors.shape[1], 2))
    _, first = np.unique(np.round(vectors @ axes, 5), axis=0, return_index=True)
    return np.sort(first)


def blocks(size: int, others: int) -> Iterator[slice]:
    """Yield slices of ``size`` strains that are compared with ``others`` together."""
    rows = max(1, MOST_COMPARED // max(others, 1))
    for start in range(0, size, rows):
        yield slice(start, start + rows)


MOST_CELLS = 2**28


def why_no_reactions(strains: Strains, reactions: Reactions | None) -> str | None:
    """Say why no null model reads lost reactions here; None if one can."""
    if reactions is None:
        return "needs a cell graph with reactions"
    if not reactions.lost_nodes(strains).nnz:
        return "needs training strains that lose a reaction"
    return None


def why_no_bound(strains: Strains, y: NDArray[np.floating], reactions: Reactions | None) -> str | None:
    """Say why there is no untrained bound; None if there is one."""
    reason = why_no_reactions(strains, reactions) or not_fitness_like(y)
    if reason or reactions is None:
        return reason
    cells = len(strains) * len(np.unique(reactions.lost_nodes(strains).indices))
    return f"would compare {cells:.0e} pairs, and is limited to {MOST_CELLS:.0e}" if cells > MOST_CELLS else None


def why_no_kernel(strains: Strains, reactions: Reactions | None, fits: int) -> str | None:
    """Say why there is no kernel ridge on lost reactions; None if there is one."""
    reason = why_no_reactions(strains, reactions)
    if reason or reactions is None:
        return reason
    landmarks = min(LANDMARKS, len(_different_rows(reactions.lost(strains))))
    return why_too_long(2.0 * fits * len(strains) * landmarks**2)
