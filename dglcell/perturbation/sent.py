"""Apply activities: which nodes a strain keeps, what lost and weakened nodes send, and what nodes receive.

A node of activity s sends s(b + δ) where the base's sends b. The difference is **sδ − (1 − s)b**: δ where the strain
keeps the node as it is, −b where it has lost it. A lost node receives nothing, which differs by −y from what the
base's node receives; a weakened node receives as before. This file has the rule in each form in which strategies use
it: for all pairs, for listed pairs, and for the few lost nodes of a strain. Triton's loops have it, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.errors import GraphError
from dglcell.graph.resident_graph import Derivation, ResidentGraph, ResidentRelation
from dglcell.kernels.rows import RowIndex, sum_rows, take_rows
from dglcell.kernels.spmm import spmm
from dglcell.perturbation.targets import Perturbs, Targets


def keep_masks(graph: ResidentGraph, batch: Perturbs) -> dict[str, Tensor]:
    """Return which nodes every strain keeps: node type → [N, B] bool.

    A node is lost exactly if it is deleted, or if ``graph.derive`` says that it is lost with others.
    """
    changes = batch.perturbations
    keep = {
        node_type: keep_nodes(number, changes.nodes[node_type])
        if node_type in changes.nodes
        else torch.ones(number, changes.num_strains, dtype=torch.bool, device=changes.device)
        for node_type, number in graph.num_nodes.items()
    }
    for rule in graph.derive:
        if isinstance(rule, Derivation):
            known_BK = changes.derived.get(rule.node_type)
            lost = rule.lost(keep, changes.tensors) if known_BK is None else listed(known_BK, len(keep[rule.node_type]))
            keep[rule.node_type] &= ~lost
        else:
            gone = spmm(graph[rule], (~keep[rule[0]]).to(torch.float32), weighted=False)
            keep[rule[2]] &= ~(gone > 0.5)
    return keep


def listed(nodes_BK: Tensor, number: int) -> Tensor:
    """Return which of N nodes each strain lists, [N, B] bool, from nodes with −1 behind them."""
    nodes_KB = nodes_BK.long().T
    found = torch.zeros(number + 1, len(nodes_BK), dtype=torch.bool, device=nodes_BK.device)
    return found.scatter_(0, torch.where(nodes_KB < 0, number, nodes_KB), True)[:number]


def activities(graph: ResidentGraph, batch: Perturbs, keep: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Return how much is left of every node in every strain: node type → [N, B] float.

    Only node types of which strains weaken some nodes are present. A node that is derived along a relation has the
    smallest activity among its sources and its own; 1 where it has neither. ``keep`` is what ``keep_masks`` gives.
    """
    changes = batch.perturbations
    out: dict[str, Tensor] = {}
    for node_type, targets in changes.nodes.items():
        if targets.activities is not None:
            # Fillers of −1 write the row behind the last node.
            shape = graph.num_nodes[node_type] + 1, changes.num_strains
            unsaid, said = targets.activities.new_full(shape, torch.inf), targets.activities
            if said.requires_grad:  # one of exactly 1 would not be listed, and its gradient be lost
                said = torch.where(said == 1, said + torch.finfo(said.dtype).eps, said)
            out[node_type] = unsaid.index_put((targets.nodes, targets.strains), said)[:-1]
    for rule in graph.derive:
        if isinstance(rule, Derivation) or not (rule[0] in out or rule[2] in out):
            continue
        edges, keep = graph[rule], keep or keep_masks(graph, batch)
        of_source_NB = _said(out[rule[0]]) if rule[0] in out else keep[rule[0]].double()
        least_MB = out.get(rule[2], of_source_NB.new_full((edges.num_dst, changes.num_strains), torch.inf))
        wide = torch.promote_types(least_MB.dtype, of_source_NB.dtype)
        to_EB = edges.dst.unsqueeze(1).expand(-1, changes.num_strains)
        out[rule[2]] = least_MB.to(wide).scatter_reduce(0, to_EB, of_source_NB[edges.src].to(wide), "amin")
    return {node_type: _said(least) for node_type, least in out.items()}


def _said(activity_NB: Tensor) -> Tensor:
    return torch.where(activity_NB.isinf(), 1, activity_NB)


def keep_nodes(number: int, targets: Targets) -> Tensor:
    """Return which of N nodes every strain keeps by its targets alone, [N, B] bool."""
    # The additional last row takes the fillers' −1.
    keep = torch.ones(number + 1, targets.num_strains, dtype=torch.bool, device=targets.nodes.device)
    left = keep.new_zeros(()) if targets.activities is None else targets.activities != 0
    keep.index_put_((targets.nodes, targets.strains), left)
    return keep[:number]


Slots = tuple[Tensor, Tensor]
"""[B, K] the nodes that each strain has lost or weakened, and [B, K] how much of each is gone, see ``padded``."""


class Kept:
    """Hold which nodes of one type the base and the strains keep, and how much of them.

    Attributes:
        base_N1, strains_NB: [N, 1] and [N, B] bool; every strain has lost what the base has not.
        activities_NB: [N, B] float, zero where a strain has lost the node; None where no kept node is weakened.
        slots: the lost and weakened nodes as a list by strain, where K is known on the host; else None.
        whole: whether the base is known to keep all nodes.
    """

    def __init__(
        self, base_N1: Tensor, strains_NB: Tensor, slots: Slots | None = None, *, activities_NB: Tensor | None = None,
        whole: bool = False,
    ) -> None:  # fmt: skip
        self.base_N1, self.strains_NB, self.slots, self.whole = base_N1, strains_NB, slots, whole
        self.activities_NB = None if activities_NB is None else activities_NB * strains_NB
        self._minus_lost: dict[torch.dtype, Tensor] = {}

    def of_base(self, x_NH: Tensor) -> Tensor:
        """Return rows of the base, zero where it has lost the node."""
        return x_NH if self.whole else x_NH * self.base_N1

    def check(self, states: tuple[int, int]) -> None:
        """Refuse to be combined with the states of other nodes or strains, [N, B]."""
        if self.strains_NB.shape != states:
            got, expected = (
                f"{nodes:,} nodes, {strains} strains" for nodes, strains in (states, self.strains_NB.shape)
            )
            raise GraphError("what is kept is not of these states", got=got, expected=expected)

    def times(self, copies: int) -> Kept:
        """Return this for several copies of the nodes, one copy after the other."""
        activities = None if self.activities_NB is None else self.activities_NB.repeat(copies, 1)
        base, strains = self.base_N1.repeat(copies, 1), self.strains_NB.repeat(copies, 1)
        return Kept(base, strains, activities_NB=activities, whole=self.whole)

    def weights(self, dtype: torch.dtype) -> Tensor:
        """Return how much each node counts in a strain, [N, B]: its activity."""
        return (self.strains_NB if self.activities_NB is None else self.activities_NB).to(dtype)

    def columns(self, dtype: torch.dtype) -> Tensor:
        """Return ``weights`` with the base in front, [N, 1 + B]."""
        return torch.cat([self.base_N1.to(dtype), self.weights(dtype)], dim=1)

    @cached_property
    def log_activities(self) -> Tensor | None:
        """Return what is added to softmax logits, [N, B], 0 for lost nodes; None where no kept node is weakened."""
        if self.activities_NB is None:
            return None
        return self.activities_NB.masked_fill(~self.strains_NB, 1).log()

    def minus_lost(self, dtype: torch.dtype) -> Tensor:
        """Return −1 for the pairs that the strain does not keep, 0 for the others, [N, B]; made once for a type."""
        if dtype not in self._minus_lost:
            self._minus_lost[dtype] = self.strains_NB.to(dtype) - 1
        return self._minus_lost[dtype]

    @cached_property
    def lost(self) -> RowIndex:
        """Return the pairs that the base keeps and the strain does not."""
        return RowIndex(~self.strains_NB & self.base_N1)

    @cached_property
    def changed(self) -> RowIndex:
        """Return the pairs that the base keeps and the strain does not keep whole: those that send something else."""
        if self.activities_NB is None:
            return self.lost
        return RowIndex((self.activities_NB != 1) & self.base_N1)

    @cached_property
    def absent(self) -> RowIndex:
        """Return the pairs that the strain does not keep, whether the base does or not."""
        return RowIndex(~self.strains_NB)


def sent(kept: Kept, base_NH: Tensor, delta_NBH: Tensor | None, dtype: torch.dtype, *, listed: bool = False) -> Tensor:
    """Return by how much what the nodes send differs from what the base's nodes send, [N, B, H] in ``dtype``.

    Where lost pairs are ``listed``, other rows are only copied.
    """
    delta = None if delta_NBH is None else delta_NBH.to(dtype)
    base = kept.of_base(base_NH).to(dtype)
    if kept.activities_NB is not None:
        activity = kept.activities_NB.unsqueeze(-1)
        return _weakened(activity, base.unsqueeze(1), delta, dtype)
    out: Tensor = _LostInstead.apply(delta, base, kept, listed)
    return out


def _weakened(activity: Tensor, base: Tensor, delta: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return sδ − (1 − s)b, the rule of this file, for rows that broadcast."""
    gone = ((activity - 1) * base).to(dtype)
    return gone if delta is None else torch.addcmul(gone, activity.to(dtype), delta)


def sent_by(kept: Kept, base_NH: Tensor, delta_DH: Tensor, pairs: RowIndex) -> Tensor:
    """Compute ``sent`` for D listed pairs, [D, H] in the type of the base."""
    base_DH = take_rows(kept.of_base(base_NH), pairs.nodes)
    delta_DH = delta_DH.to(base_DH.dtype)
    if kept.activities_NB is not None:
        activity = kept.activities_NB.flatten().index_select(0, pairs.keys).unsqueeze(1)
        return _weakened(activity, base_DH, delta_DH, base_DH.dtype)
    kept_D1 = kept.strains_NB.flatten()[pairs.keys].unsqueeze(1)
    return torch.where(kept_D1, delta_DH, -base_DH)


def sums_by_slot(
    edges: ResidentRelation, kept: Kept, base_NH: Tensor, slots: Slots, dtype: torch.dtype, kernel: str
) -> Tensor:
    """Return the sums of ``sent`` over in-edges, [M, B, H], where no state differs yet and only a few nodes send less.

    What the sources in ``slots`` no longer send is computed from their few rows and the weights of their edges, without
    a product over all edges for every strain and column.
    """
    nodes_BK, removed_BK = slots
    columns = nodes_BK.new_zeros(edges.num_src, nodes_BK.numel(), dtype=dtype)
    columns = columns.scatter(0, nodes_BK.view(1, -1), removed_BK.view(1, -1).to(dtype))
    gone_MBK = spmm(edges, columns, kernel=kernel).view(edges.num_dst, *nodes_BK.shape)
    rows_BKH = F.embedding(nodes_BK, kept.of_base(base_NH)).to(dtype)
    return torch.einsum("mbk,bkh->mbh", gone_MBK, -rows_BKH)


def received(kept: Kept, base_MH: Tensor, sums_MBH: Tensor, *, listed: bool = False) -> Tensor:
    """Return by how much what nodes receive differs from the base, [M, B, H], from sums of ``sent`` over in-edges.

    A lost node receives nothing, which differs by −y from the base.
    """
    out: Tensor = _LostInstead.apply(sums_MBH, base_MH.to(sums_MBH.dtype), kept, listed)
    return out


class _LostInstead(torch.autograd.Function):
    """Replace the rows of lost nodes by −b; the other rows are the strains', or zeros where None.

    On a CPU it takes three quarters of the time where lost pairs are listed; on a GPU the host would wait for the list.
    """

    @staticmethod
    def forward(ctx: Any, rows_NBH: Tensor | None, base_NH: Tensor, kept: Kept, listed: bool) -> Tensor:
        ctx.kept, ctx.has_rows = kept, rows_NBH is not None
        ctx.lost = lost = kept.absent if listed and rows_NBH is not None else None
        if lost is None or rows_NBH is None:
            rows = base_NH.new_zeros(()) if rows_NBH is None else rows_NBH
            return torch.where(kept.strains_NB.unsqueeze(-1), rows, -base_NH.unsqueeze(1))
        out = rows_NBH.clone(memory_format=torch.contiguous_format)
        out.flatten(0, 1).index_copy_(0, lost.keys, -base_NH.index_select(0, lost.nodes))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NBH: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        kept, lost, grad = ctx.kept, ctx.lost, grad_NBH.contiguous()
        if lost is None:
            base_NH = torch.bmm(kept.minus_lost(grad.dtype).unsqueeze(1), grad).squeeze(1)
            return grad * kept.strains_NB.unsqueeze(-1) if ctx.has_rows else None, base_NH, None, None
        grad = grad.clone()
        flat = grad.flatten(0, 1)
        base_NH = sum_rows(-flat.index_select(0, lost.keys), lost.nodes, len(grad)).to(grad.dtype)
        flat.index_fill_(0, lost.keys, 0)
        return grad, base_NH, None, None
