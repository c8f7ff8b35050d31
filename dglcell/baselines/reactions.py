"""Find the reactions that strains lose."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from dglcell.baselines.beyond_deletions import blocks, refuse_strengths
from dglcell.data.strains import Strains
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.metabolism import whole_reactions
from dglcell.graph.schema import CATALYSES, CONVERTS, METABOLITE, REACTION
from dglcell.graph.steady_state import SteadyState

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
