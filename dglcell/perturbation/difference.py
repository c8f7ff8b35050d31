"""The wild type once, plus only the rows in which strains differ from it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import Relation
from dglcell.kernels.attention import GATv2Score
from dglcell.kernels.spmm import spmm
from dglcell.perturbation.difference_attention import shared_attention
from dglcell.perturbation.node_mask import NodeMask
from dglcell.perturbation.row_index import RowIndex, union
from dglcell.perturbation.states import DenseStates, SharedStates, States

DENSE_SHARE = 0.25
"""Changed edges, as a share of E · B, from which a dense product is cheaper than corrections."""


@dataclass(frozen=True)
class Corrections:
    """The edges along which strains differ from the wild type.

    Attributes:
        sources: D (source, strain) pairs whose message is not the wild type's.
        targets: K (destination, strain) pairs that receive something else than in the wild type, or are lost.
        edge: [T] edge of the relation, for every changed message.
        source: [T] its position in ``sources``.
        target: [T] its position in ``targets``.
    """

    sources: RowIndex
    targets: RowIndex
    edge: Tensor
    source: Tensor
    target: Tensor


class Difference:
    """``y = A · base``, corrected along the edges of deleted and changed rows; exact for sums and means.

    Rows are corrected while few edges have changed; beyond ``DENSE_SHARE`` the states are made dense and node masks
    take over. Sizes of the corrections depend on the genotypes, so that on a GPU each aggregation waits once for the
    device.
    """

    def __init__(self, cell: ResidentCell, keep: dict[str, Tensor], kernel: str = "auto") -> None:
        self.cell, self.keep, self.kernel = cell, keep, kernel
        self.dense = NodeMask(cell, keep, kernel)
        self.lost = {node_type: RowIndex.where(~mask) for node_type, mask in keep.items()}

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> States:
        """See ``PerturbedCell.aggregate``."""
        if isinstance(states, SharedStates):
            corrections = self._corrections(relation, states.index)
            if corrections is not None:
                return self._corrected(relation, states, corrections, reduce)
            states = DenseStates(states.dense())
        return self.dense.aggregate(relation, states, reduce)

    def attend(self, relation: Relation, keys: States, queries: States, score: GATv2Score) -> States:
        """See ``PerturbedCell.attend``."""
        if isinstance(keys, SharedStates) and isinstance(queries, SharedStates):
            keep = self.keep[relation[0]], self.keep[relation[2]]
            attended = shared_attention(self.cell[relation], keep, keys, queries, score, self.kernel)
            if attended is not None:
                return attended
        return self.dense.attend(relation, keys, queries, score)

    def _corrections(self, relation: Relation, changed: RowIndex | None) -> Corrections | None:
        """What differs, or None where a dense product is cheaper."""
        edges = self.cell[relation]
        lost = self.lost[relation[0]]
        sources = lost if changed is None else union([changed, lost])
        starts, order = edges.edges_by_source
        first, counts = starts[sources.nodes], starts.diff()[sources.nodes]
        total = int(counts.sum())
        if total > DENSE_SHARE * edges.num_edges * lost.num_strains:
            return None
        source = torch.repeat_interleave(torch.arange(len(sources), device=counts.device), counts)
        within = torch.arange(total, device=counts.device) - (counts.cumsum(0) - counts)[source]
        edge = order[first[source] + within]
        keys = edges.dst[edge] * lost.num_strains + sources.strains[source]
        targets, target = _distinct(keys, self.lost[relation[2]], edges.num_dst)
        return Corrections(sources, targets, edge, source, target)

    def _corrected(self, relation: Relation, states: SharedStates, c: Corrections, reduce: str) -> States:
        edges = self.cell[relation]
        base_MH = spmm(edges, states.base_NH, kernel=self.kernel)
        kept_D1 = self._kept(relation[0], c.sources)
        change_DH = states.at(c.sources) * kept_D1 - states.base_NH.index_select(0, c.sources.nodes)
        change_TH = change_DH.index_select(0, c.source)
        if edges.weight is not None:
            change_TH = change_TH * edges.weight.to(change_TH.dtype)[c.edge].unsqueeze(1)
        rows_KH = base_MH.index_select(0, c.targets.nodes).index_add(0, c.target, change_TH)
        if reduce == "mean":
            degree_M1 = edges.in_degrees.unsqueeze(1)
            lost_T1 = (~kept_D1).long().index_select(0, c.source)
            degree_K1 = degree_M1.index_select(0, c.targets.nodes).index_add(0, c.target, lost_T1, alpha=-1)
            base_MH, rows_KH = base_MH / degree_M1.clamp(min=1), rows_KH / degree_K1.clamp(min=1)
        return SharedStates(base_MH, rows_KH * self._kept(relation[2], c.targets), c.targets)

    def _kept(self, node_type: str, index: RowIndex) -> Tensor:
        """[K, 1] bool."""
        return self.keep[node_type].flatten()[index.keys].unsqueeze(1)


def _distinct(keys: Tensor, lost: RowIndex, num_nodes: int) -> tuple[RowIndex, Tensor]:
    """The distinct pairs among ``keys`` and the lost nodes, and where each key is among them."""
    space = num_nodes * lost.num_strains
    if len(keys) * 16 < space:
        distinct, position = torch.unique(torch.cat([keys, lost.keys]), return_inverse=True)
        return RowIndex(distinct, lost.num_strains), position[: len(keys)]
    # Many keys: marking a table is faster than sorting.
    marked = torch.zeros(space, dtype=torch.bool, device=keys.device)
    marked[keys] = True
    marked[lost.keys] = True
    return RowIndex(marked.nonzero().squeeze(1), lost.num_strains), (marked.cumsum(0) - 1)[keys]
