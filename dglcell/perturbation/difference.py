"""A base strain, the wild type as a rule, once, plus only the rows in which the strains of a batch differ from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.graph.resident import ResidentCell, ResidentRelation
from dglcell.graph.schema import Relation
from dglcell.kernels.attention import GATv2Score
from dglcell.kernels.rows import Pairs, add_rows, mark, pull, push, sum_strains
from dglcell.kernels.spmm import spmm
from dglcell.perturbation.choices import DENSE_SHARE
from dglcell.perturbation.difference_attention import shared_attention
from dglcell.perturbation.node_mask import NodeMask
from dglcell.perturbation.row_index import RowIndex, union
from dglcell.perturbation.states import SharedStates, States

PUSH_COST = 2.0
"""What an edge costs when sources add to their targets, relative to targets that gather from their sources."""

MARK_COST = 16.0
"""What it costs to mark the end of an edge in one strain, relative to a product's sum over an edge for one strain."""

SCAN_COST = 4.0
"""What it costs to add a row where it belongs, relative to looking up whether a (node, strain) pair has one."""


@dataclass(frozen=True, eq=False)
class Change:
    """By how much the messages of some (source, strain) pairs differ from the base's.

    Attributes:
        states: that it belongs to.
        index: D pairs: changed rows and lost nodes.
        change_DH: [D + 1, H], what the pair sends minus what the base does; the last row is zero.
    """

    states: SharedStates
    index: RowIndex
    change_DH: Tensor


@dataclass(frozen=True, eq=False)
class Targets:
    """The (destination, strain) pairs that receive something else than in the base, or are lost.

    Attributes:
        index: K pairs.
        lost: pairs that are lost; all of them are in ``index``.
        scale_K1: [K, 1] for a mean one over the number of surviving in-edges, zero for lost pairs; None for a sum.
        scale_M1: [M, 1] the same for the base.
    """

    index: RowIndex
    lost: RowIndex
    scale_K1: Tensor | None = None
    scale_M1: Tensor | None = None

    @cached_property
    def lost_rows(self) -> Tensor:
        """Positions of the lost pairs in ``index``."""
        return self.index.table.view(-1)[self.lost.keys].long()


class Difference:
    """``y = A · base``, corrected along the edges of deleted and changed rows; exact for sums and means.

    Beyond ``dense_share`` of changed rows the states are made dense and node masks take over. How many rows change
    depends on the genotypes, so that on a GPU each aggregation waits for the device.

    The base is the wild type, or a strain whose deletions all strains share: then even fewer rows differ from it.

    Args:
        cell: the wild-type cell.
        keep: node type → [N, B] bool, see ``keep_masks``.
        kernel: of the base's products.
        dense_share: see above.
        base: node type → [N, 1] bool, which nodes the base keeps; every strain has lost the others too. All where None.
    """

    def __init__(
        self,
        cell: ResidentCell,
        keep: dict[str, Tensor],
        kernel: str = "auto",
        dense_share: float = DENSE_SHARE,
        base: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.cell, self.keep, self.kernel, self.dense_share = cell, keep, kernel, dense_share
        self.base = base
        self.dense = NodeMask(cell, keep, kernel)
        self.lost = {
            node_type: RowIndex.where(~mask if base is None else ~mask & base[node_type])
            for node_type, mask in keep.items()
        }
        self._changes: dict[str, Change] = {}

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> States:
        """See ``PerturbedCell.aggregate``."""
        if not isinstance(states, SharedStates):
            return self.dense.aggregate(relation, states, reduce)
        change = self._change(relation[0], states)
        targets = self._targets(relation, change.index, reduce, states.x_XH.dtype)
        if len(targets.index) > self.dense_share * targets.index.mask_BN.numel():
            return self.dense.aggregate(relation, states, reduce)
        edges = self.cell[relation]
        origin = None if states.origin is None else states.origin.then(relation, reduce)

        def product() -> Tensor:
            if self.base is None:
                return spmm(edges, states.base_NH, kernel=self.kernel)
            sent_NH = states.base_NH * self.base[relation[0]]
            return spmm(edges, sent_NH, kernel=self.kernel) * self.base[relation[2]]

        base_MH = product() if states.origin is None else states.origin.then(relation).once(product)
        y_XH: Tensor = _CorrectedSums.apply(base_MH, change.change_DH, edges, change.index, targets)
        return SharedStates(y_XH, targets.index, origin)

    def attend(self, relation: Relation, keys: States, queries: States, score: GATv2Score) -> States:
        """See ``PerturbedCell.attend``."""
        if isinstance(keys, SharedStates) and isinstance(queries, SharedStates):
            ends = relation[0], relation[2]
            keep = self.keep[ends[0]], self.keep[ends[1]]
            base = None if self.base is None else (self.base[ends[0]], self.base[ends[1]])
            attended = shared_attention(self.cell[relation], keep, keys, queries, score, self.kernel, base)
            if attended is not None:
                return attended
        return self.dense.attend(relation, keys, queries, score)

    def _change(self, node_type: str, states: SharedStates) -> Change:
        """Computed once for all relations out of a node type."""
        known = self._changes.get(node_type)
        if known is None or known.states is not states:
            lost = self.lost[node_type]
            index = lost if states.index is None else union([states.index, lost])
            here = states.positions(index)
            kept_K1 = ~lost.mask_BN.flatten()[index.keys].unsqueeze(1)
            known = Change(states, index, _Changes.apply(states.x_XH, here, index.nodes, kept_K1))
            self._changes[node_type] = known
        return known

    def _reached(self, relation: Relation, sources: RowIndex) -> RowIndex:
        """Everything that the base keeps and an edge out of the sources leads to, and the lost nodes."""
        reached = self._ends(relation, sources)
        return reached if self.base is None else RowIndex(reached.mask_BN & self.base[relation[2]].T)

    def _ends(self, relation: Relation, sources: RowIndex) -> RowIndex:
        edges, lost_BM = self.cell[relation], self.lost[relation[2]].mask_BN
        if MARK_COST * edges.out_degrees[sources.nodes].sum() < edges.num_edges * sources.num_strains:
            reached_BM = lost_BM.clone()
            mark(edges, _pairs(sources), reached_BM)
            return RowIndex(reached_BM)
        sources_NB = sources.mask_BN.T.to(torch.float32)
        reached_MB = spmm(edges, sources_NB, weighted=False, kernel=self.kernel) > 0.5
        return RowIndex(reached_MB.T | lost_BM)

    def _targets(self, relation: Relation, sources: RowIndex, reduce: str, dtype: torch.dtype) -> Targets:
        index, lost = self._reached(relation, sources), self.lost[relation[2]]
        if reduce == "sum":
            return Targets(index, lost)
        scale_K1 = self.dense.mean_scale(relation, dtype).T.reshape(-1)[index.keys].unsqueeze(1)
        return Targets(index, lost, scale_K1, self._base_scale(relation, dtype))

    def _base_scale(self, relation: Relation, dtype: torch.dtype) -> Tensor:
        """[M, 1] one over the number of in-edges that the base keeps."""
        edges = self.cell[relation]
        if self.base is None:
            return 1 / edges.in_degrees.clamp(min=1).to(dtype).unsqueeze(1)
        degree_M1 = spmm(edges, self.base[relation[0]].to(dtype), weighted=False, kernel=self.kernel)
        return 1 / degree_M1.clamp(min=1)


class _Changes(torch.autograd.Function):
    """What changed and lost pairs send, minus what the base sends; and a row of zeros."""

    @staticmethod
    def forward(ctx: Any, x_XH: Tensor, here: Tensor, nodes: Tensor, kept_K1: Tensor) -> Tensor:
        ctx.save_for_backward(here, nodes, kept_K1)
        ctx.shape = x_XH.shape
        out = x_XH.new_zeros(len(here) + 1, x_XH.shape[1])
        out[:-1] = x_XH.index_select(0, here).mul_(kept_K1).sub_(x_XH.index_select(0, nodes))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        here, nodes, kept_K1 = ctx.saved_tensors
        out = grad.new_zeros(ctx.shape)
        add_rows(out, here, grad[:-1] * kept_K1)
        add_rows(out, nodes, -grad[:-1])
        return out, None, None, None


class _CorrectedSums(torch.autograd.Function):
    """The base's sums, then those of the targets: the base's plus the changes along their in-edges."""

    @staticmethod
    def forward(
        ctx: Any, base_MH: Tensor, change_DH: Tensor, edges: ResidentRelation, sources: RowIndex, targets: Targets
    ) -> Tensor:
        ctx.edges, ctx.sources, ctx.targets = edges, sources, targets
        # Sums are taken in single precision at least; under autocast a product may come in less.
        dtype = torch.promote_types(torch.promote_types(base_MH.dtype, change_DH.dtype), torch.float32)
        base_MH, change_DH = base_MH.to(dtype), change_DH.to(dtype)
        M, index = len(base_MH), targets.index
        out_XH = base_MH.new_empty(M + len(index), base_MH.shape[1])
        out_XH[:M] = base_MH if targets.scale_M1 is None else base_MH * targets.scale_M1
        rows_KH = out_XH[M:]
        torch.index_select(base_MH, 0, index.nodes, out=rows_KH)
        changed = edges.out_degrees[sources.nodes].sum()
        if PUSH_COST * changed < edges.in_degrees[index.nodes].sum():
            # Edges to what the base has lost lead nowhere.
            push(edges, _pairs(sources), index.table, change_DH, rows_KH, reverse=False)
        else:
            pull(edges, _pairs(index), sources.table, change_DH, rows_KH, reverse=False)
        if targets.scale_K1 is None:
            rows_KH[targets.lost_rows] = 0
        else:
            rows_KH *= targets.scale_K1
        return out_XH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_XH: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        edges, sources, targets = ctx.edges, ctx.sources, ctx.targets
        M, index = edges.num_dst, targets.index
        if targets.scale_M1 is not None:
            grad_XH = grad_XH * torch.cat([targets.scale_M1, targets.scale_K1])
        # Lost pairs received nothing.
        table = index.positions(missing=-1, first=M)
        table.view(-1)[targets.lost.keys] = -1
        base_MH = grad_XH[:M].clone()
        if SCAN_COST * len(index) < table.numel():
            kept_KH = grad_XH[M:].clone()
            kept_KH[targets.lost_rows] = 0
            add_rows(base_MH, index.nodes, kept_KH)
        else:
            sum_strains(table, grad_XH, base_MH)
        change_DH = grad_XH.new_zeros(len(sources) + 1, grad_XH.shape[1])
        pull(edges, _pairs(sources), table, grad_XH.contiguous(), change_DH[:-1], reverse=True)
        return base_MH, change_DH, None, None, None


def _pairs(index: RowIndex) -> Pairs:
    return Pairs(index.nodes, index.strains)
