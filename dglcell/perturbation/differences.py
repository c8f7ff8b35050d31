"""Compute differences: of all rows, with one product per relation, or of the rows that differ, where they are few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.graph.resident_graph import ResidentGraph, ResidentRelation
from dglcell.graph.schema import Relation
from dglcell.kernels.rows import RowIndex, mark, pull, push, take_rows, union
from dglcell.kernels.spmm import default_kernel, spmm
from dglcell.kernels.triton_products import masked_spmm
from dglcell.perturbation.execution import BasePass, Choices
from dglcell.perturbation.sent import Kept, received, sent, sent_by, sums_by_slot
from dglcell.perturbation.states import DifferenceStates, States

FEWER = 2  # lost nodes are listed where a state has this many times as many columns
FEW_LEFT = 2  # little is left of sources where the base has more than so many times their activities


class NodeMask:
    """Compute the differences of all (node, strain) pairs, with all strains side by side as columns.

    No size depends on the genotypes, so that the host never waits for a GPU. ``kept_pass`` has the base's tensors of
    earlier batches, in evaluation.
    """

    name = "node_mask"
    lists_lost = False  #: whether lost pairs are listed where all pairs are computed

    def __init__(
        self, cell: ResidentGraph, kept: dict[str, Kept], kernel: str = "auto", choices: Choices | None = None,
        kept_pass: BasePass | None = None,
    ) -> None:  # fmt: skip
        self.cell, self.kept, self.kernel = cell, dict(kept), kernel
        self.choices, self.kept_pass = choices or Choices(), kept_pass
        self.num_strains = next(iter(kept.values())).strains_NB.shape[1]
        self._sent: dict[str, tuple[States, Tensor]] = {}
        self._degrees: dict[tuple[Relation, torch.dtype], tuple[Tensor, Tensor]] = {}

    def start(self, x_NH: Tensor) -> DifferenceStates:
        return DifferenceStates(x_NH, None, None, self.num_strains, self.choices, self.kept_pass)

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> DifferenceStates:
        assert isinstance(states, DifferenceStates)
        base_MH = self.base_sums(relation, states)
        return states.with_difference(*self.dense_differences(relation, states, base_MH, reduce))

    def aggregate_along(self, relations: Sequence[Relation], states: States, reduce: str) -> DifferenceStates:
        """See ``PerturbedCell.aggregate_along``; one product computes all relations."""
        assert isinstance(states, DifferenceStates)
        united, number = self.cell.unite(list(relations)), len(relations)
        if united[2] not in self.kept:
            self.kept[united[2]] = self.kept[relations[0][2]].times(number)
        received = self.aggregate(united, states, reduce)
        assert received.delta is not None
        return states.with_difference(*(x.unflatten(0, (number, -1)) for x in (received.base_NH, received.delta)))

    def dense_differences(
        self, relation: Relation, states: DifferenceStates, base_MH: Tensor, reduce: str
    ) -> tuple[Tensor, Tensor]:
        """Return the base's sums or means, [M, H], and by how much those of all strains differ, [M, B, H].

        Where little is left of the sources, ``change_of_means`` would subtract nearly equal numbers and divide the rest
        by a small number. There the strain's mean is taken itself.
        """
        kept = self.kept[relation[2]]
        kernel = default_kernel(base_MH.device.type) if self.kernel == "auto" else self.kernel
        if kernel == "triton" and reduce == "sum" and self.kept[relation[0]].activities_NB is None:
            return base_MH, self._masked_sums(relation, states, base_MH)
        sums_MBH = self._summed_differences(relation, states)
        if reduce == "mean":
            base_M1, strains_MB = self.degrees(relation, base_MH.dtype)
            degrees = base_M1.unsqueeze(1), strains_MB.unsqueeze(2)
            sums_MBH = change_of_means(sums_MBH, base_MH.unsqueeze(1), *degrees)
            base_MH = base_MH / base_M1
            if self.kept[relation[0]].activities_NB is not None:
                means_MBH = self._own_sums(relation, states) / strains_MB.unsqueeze(-1)
                little_MB1 = (FEW_LEFT * strains_MB < base_M1).unsqueeze(-1)
                sums_MBH = torch.where(little_MB1, (means_MBH - base_MH.unsqueeze(1)).to(sums_MBH.dtype), sums_MBH)
        return base_MH, received(kept, base_MH, sums_MBH, listed=self.lists_lost)

    def _few_lost(self, relation: Relation, states: DifferenceStates) -> tuple[Tensor, Tensor] | None:
        slots = self.kept[relation[0]].slots
        if states.delta is not None or slots is None or not 0 < FEWER * slots[0].shape[1] <= states.base_NH.shape[1]:
            return None
        return slots

    def _summed_differences(self, relation: Relation, states: DifferenceStates) -> Tensor:
        """Return the sums over in-edges of how much what sources send differs from the base, [M, B, H]."""
        edges, source, slots = self.cell[relation], self.kept[relation[0]], self._few_lost(relation, states)
        if slots is not None:
            return sums_by_slot(edges, source, states.base_NH, slots, states.delta_dtype, self.kernel)
        sent_NBH = self._sent_differences(relation[0], states)
        return spmm(edges, sent_NBH.flatten(1), kernel=self.kernel).view(edges.num_dst, *sent_NBH.shape[1:])

    def _own_sums(self, relation: Relation, states: DifferenceStates) -> Tensor:
        """Return the sums over in-edges of what the strains' own sources send, [M, B, H], as precise as the base."""
        edges, source = self.cell[relation], self.kept[relation[0]]
        base_N1H = source.of_base(states.base_NH).unsqueeze(1)
        x_NBH = base_N1H if states.delta is None else base_N1H + states.dense()
        own_NBH = source.weights(base_N1H.dtype).unsqueeze(-1) * x_NBH
        return spmm(edges, own_NBH.flatten(1), kernel=self.kernel).view(edges.num_dst, *own_NBH.shape[1:])

    def _masked_sums(self, relation: Relation, states: DifferenceStates, base_MH: Tensor) -> Tensor:
        """Return the differences of ``dense_differences`` for sums, [M, B, H], without a tensor of what is sent."""
        source, destination = self.kept[relation[0]], self.kept[relation[2]]
        return masked_spmm(
            self.cell[relation],
            None if states.delta is None else states.dense(),
            source.of_base(states.base_NH),
            source.strains_NB,
            base_MH,
            destination.strains_NB,
            states.delta_dtype,
            self._few_lost(relation, states),
        )

    def base_sums(self, relation: Relation, states: DifferenceStates) -> Tensor:
        """Return the sums over the edges that the base keeps, [M, H]."""
        edges, source, destination = self.cell[relation], self.kept[relation[0]], self.kept[relation[2]]

        def product() -> Tensor:
            sums_MH = spmm(edges, source.of_base(states.base_NH), kernel=self.kernel)
            return destination.of_base(sums_MH)

        return product() if self.kept_pass is None else self.kept_pass.once(product)

    def degrees(self, relation: Relation, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the weights of surviving in-edges of the base, [M, 1], and of strains, [M, B]; 1 if there is none.

        An edge weighs as much as the activity of its source; edges are counted where nothing is weakened.
        """
        if (relation, dtype) not in self._degrees:
            edges, kept = self.cell[relation], self.kept[relation[0]]
            # Counts are exact in float32 up to 16 million edges into one node.
            exact = torch.promote_types(dtype, torch.float32)
            weights = kept.base_N1.to(exact), kept.weights(exact)
            counts = (spmm(edges, weight, weighted=False, kernel=self.kernel) for weight in weights)
            base_M1, strains_MB = (torch.where(count == 0, 1, count).to(dtype) for count in counts)
            self._degrees[relation, dtype] = base_M1, strains_MB
        return self._degrees[relation, dtype]

    def _sent_differences(self, node_type: str, states: DifferenceStates) -> Tensor:
        """Return what ``sent`` gives, [N, B, H], computed once for all relations out of a node type."""
        known = self._sent.get(node_type)
        if known is None or known[0] is not states:
            delta = None if states.delta is None else states.dense()
            kept, dtype = self.kept[node_type], states.delta_dtype
            rows_NBH = sent(kept, states.base_NH, delta, dtype, listed=self.lists_lost)
            known = self._sent[node_type] = states, rows_NBH
        return known[1]


def change_of_means(sums: Tensor, base: Tensor, degree: Tensor, left: Tensor) -> Tensor:
    """Return by how much means differ, ``(Σ δ) / d' + (Σ b) (d − d') / (d d')`` with degrees d and d' that are left."""
    loss = (degree - left) / (degree * left)
    return sums * (1 / left).to(sums.dtype) + base.to(sums.dtype) * loss.to(sums.dtype)


PUSH_COST = 2.0  # of adding along an edge to its target, in gatherings from its source
MARK_COST = 16.0  # of marking the end of an edge in one strain, in sums over an edge for one strain


class Difference(NodeMask):
    """Do what ``NodeMask`` does with lists of the pairs that differ, as long as they are few.

    Before the first round no pair differs; after it those next to a deletion do. Where more than a share of all pairs
    differ (``dense_share``), all of them are computed. How many do depends on the genotypes: this is for a CPU.
    """

    name = "difference"
    lists_lost = True

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> DifferenceStates:
        assert isinstance(states, DifferenceStates)
        base_MH = self.base_sums(relation, states)
        if states.delta is not None and states.index is None:
            return states.with_difference(*self.dense_differences(relation, states, base_MH, reduce))
        changed = self.kept[relation[0]].changed
        sources = changed if states.index is None else union([states.index, changed])
        targets = self._receivers(relation, sources)
        if len(targets) > self.choices.dense_share * targets.mask_NB.numel():
            return states.with_difference(*self.dense_differences(relation, states, base_MH, reduce))
        return self._aggregate_listed(relation, states, base_MH, reduce, sources, targets)

    def _aggregate_listed(
        self, relation: Relation, states: DifferenceStates, base_MH: Tensor, reduce: str, sources: RowIndex,
        targets: RowIndex,
    ) -> DifferenceStates:  # fmt: skip
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
