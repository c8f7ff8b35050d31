"""Compute listed differences: only for (node, strain) pairs that differ from the base, or for all where it pays."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.graph.resident_graph import ResidentRelation
from dglcell.graph.schema import Relation
from dglcell.kernels.rows import RowIndex, mark, pull, push, take_rows, union
from dglcell.kernels.spmm import spmm
from dglcell.perturbation.sent import sent_by
from dglcell.perturbation.states import DifferenceStates, States
from dglcell.perturbation.strategies.node_mask import FEW_LEFT, NodeMask, change_of_means

PUSH_COST = 2.0
"""Cost of an edge when sources add to their targets, as a multiple of that when targets gather from their sources."""

MARK_COST = 16.0
"""Cost of marking the end of an edge in one strain, as a multiple of that of a product's sum over an edge for one
strain."""


class Difference(NodeMask):
    """Do what ``NodeMask`` does with lists of the pairs that differ, as long as they are few.

    Before the first round no pair differs; after it those next to a deletion do. Where more than a share of all pairs
    differ (``dense_share``), all of them are computed. How many do depends on the genotypes, so that on a
    GPU each aggregation waits for the device.
    """

    lists_lost = True

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> DifferenceStates:
        assert isinstance(states, DifferenceStates)
        base_MH = self.base_sums(relation, states)
        if states.delta is not None and states.index is None:
            return states.with_difference(*self.dense_differences(relation, states, base_MH, reduce))
        sources = self._senders(relation[0], states)
        targets = self._receivers(relation, sources)
        if len(targets) > self.execution.dense_share * targets.mask_NB.numel():
            return states.with_difference(*self.dense_differences(relation, states, base_MH, reduce))
        return self._aggregate_listed(relation, states, base_MH, reduce, sources, targets)

    def _aggregate_listed(
        self,
        relation: Relation,
        states: DifferenceStates,
        base_MH: Tensor,
        reduce: str,
        sources: RowIndex,
        targets: RowIndex,
    ) -> DifferenceStates:
        """Return sums or means for the pairs that receive something else than the base does from those that send so."""
        sent_DH = sent_by(self.kept[relation[0]], states.base_NH, states.at(sources), sources)
        sums_KH = listed_sums(sent_DH, self.cell[relation], sources, targets)
        base_KH = take_rows(base_MH, targets.nodes)
        if reduce == "mean":
            base_M1, strains_MB = self.degrees(relation, base_MH.dtype)
            base_K1, strains_K1 = base_M1[targets.nodes], strains_MB.flatten()[targets.keys].unsqueeze(1)
            sums_KH = change_of_means(sums_KH, base_KH, base_K1, strains_K1)
            base_MH, base_KH = base_MH / base_M1, base_KH / base_K1
            if self.kept[relation[0]].activities_NB is not None:
                own_KH, all_K1 = self._own_listed_sums(relation, states, sources, targets)
                little_K1 = (FEW_LEFT * strains_K1 < base_K1) & all_K1
                sums_KH = torch.where(little_K1, own_KH / strains_K1 - base_KH, sums_KH)
        kept_K1 = self.kept[relation[2]].strains_NB.flatten()[targets.keys].unsqueeze(1)
        delta_KH = torch.where(kept_K1, sums_KH, -base_KH).to(states.delta_dtype)
        return states.with_difference(base_MH, delta_KH, targets)

    def _own_listed_sums(
        self, relation: Relation, states: DifferenceStates, sources: RowIndex, targets: RowIndex
    ) -> tuple[Tensor, Tensor]:
        """Return the sums of what listed sources send, [K, H], and whether targets have no others, [K, 1]."""
        edges, kept = self.cell[relation], self.kept[relation[0]]
        own_DH = take_rows(kept.of_base(states.base_NH), sources.nodes) + states.at(sources)
        left_D1 = kept.weights(own_DH.dtype).flatten().index_select(0, sources.keys).unsqueeze(1)
        listed_MB = spmm(edges, sources.mask_NB.float(), weighted=False, kernel=self.kernel)
        all_MB = listed_MB == edges.in_degrees.unsqueeze(1)
        own_KH = listed_sums(own_DH * left_D1, edges, sources, targets)
        return own_KH, all_MB.flatten()[targets.keys].unsqueeze(1)

    def _senders(self, node_type: str, states: DifferenceStates) -> RowIndex:
        """Return the pairs that send something other than the base: different, lost and weakened ones."""
        changed = self.kept[node_type].changed
        return changed if states.index is None else union([states.index, changed])

    def _receivers(self, relation: Relation, sources: RowIndex) -> RowIndex:
        """Return the pairs that an edge out of the sources leads to, and the lost ones, but for what the base lacks."""
        edges, kept = self.cell[relation], self.kept[relation[2]]
        reached_MB = kept.lost.mask_NB.clone()
        if MARK_COST * edges.out_degrees[sources.nodes].sum() < edges.num_edges * sources.num_strains:
            mark(edges, sources, reached_MB)
        else:
            reached_MB |= spmm(edges, sources.mask_NB.float(), weighted=False, kernel=self.kernel) > 0.5
        return RowIndex(reached_MB & kept.base_N1)


def listed_sums(sent_DH: Tensor, edges: ResidentRelation, sources: RowIndex, targets: RowIndex) -> Tensor:
    """Sum what D listed pairs of sources and strains send, for K listed pairs of targets and strains, [K, H].

    Sums are in single precision at least.
    """
    out: Tensor = _ListedSums.apply(sent_DH, edges, sources, targets)
    return out


class _ListedSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sent_DH: Tensor, edges: ResidentRelation, sources: RowIndex, targets: RowIndex) -> Tensor:
        ctx.edges, ctx.sources, ctx.targets, ctx.dtype = edges, sources, targets, sent_DH.dtype
        sent_DH = sent_DH.to(torch.promote_types(sent_DH.dtype, torch.float32)).contiguous()
        out_KH = sent_DH.new_zeros(len(targets), sent_DH.shape[1])
        changed = edges.out_degrees[sources.nodes].sum()
        if PUSH_COST * changed < edges.in_degrees[targets.nodes].sum():
            push(edges, sources, targets.table, sent_DH, out_KH)
        else:
            pull(edges, targets, sources.table, sent_DH, out_KH, reverse=False)
        return out_KH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_KH: Tensor) -> tuple[Tensor, None, None, None]:
        sources, targets = ctx.sources, ctx.targets
        out_DH = grad_KH.new_zeros(len(sources), grad_KH.shape[1])
        pull(ctx.edges, sources, targets.table, grad_KH.contiguous(), out_DH, reverse=True)
        return out_DH.to(ctx.dtype), None, None, None
