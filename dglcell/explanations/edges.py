"""List the edges that carry differences, so that the backward pass gives each of them its share.

What a node receives along a relation is a sum over its in-edges, so that its share is divided exactly by what each of
them brings. A list has a one for every edge in every strain, and the gradient for it is the share of the edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.graph.resident import ResidentRelation
from dglcell.graph.schema import Relation
from dglcell.perturbation.row_index import RowIndex

BLOCK = 2**16
"""So many edges are multiplied at a time."""

Mean = tuple[Tensor, Tensor, Tensor]
"""Of a mean: [D, 1] how much of each source is removed, [K, H] what this adds for each unit, and [K, 1] degrees."""


@dataclass(frozen=True)
class CarriedEdges:
    """Hold the P edges of a relation in strains that carry a difference in a layer.

    Attributes:
        layer: number of the layer, from 1.
        edge_P: numbers of the edges, in the order of ``ResidentRelation``.
        strain_P: the strain of each.
        target_P: which of the listed targets it leads to.
        source_P: which of the listed sources it comes from; None where all in-edges are listed.
        carried_P: ones, whose gradient is the share.
    """

    layer: int
    relation: Relation
    edge_P: Tensor
    strain_P: Tensor
    target_P: Tensor
    source_P: Tensor | None
    carried_P: Tensor

    @classmethod
    def into(cls, layer: int, edges: ResidentRelation, targets: RowIndex, dtype: torch.dtype) -> CarriedEdges:
        """Return all in-edges of listed targets, target by target."""
        edge_P, target_P = edges.in_edges(targets.nodes)
        carried_P = torch.ones(len(edge_P), dtype=dtype, device=edge_P.device, requires_grad=True)
        return cls(layer, edges.relation, edge_P, targets.strains[target_P], target_P, None, carried_P)

    @classmethod
    def of_sources(
        cls, layer: int, edges: ResidentRelation, sources: RowIndex, targets: RowIndex, dtype: torch.dtype
    ) -> CarriedEdges:
        """Return the in-edges of listed targets that come from listed sources."""
        edge_P, target_P = edges.in_edges(targets.nodes)
        source_P = sources.table[edges.src[edge_P], targets.strains[target_P]].long()
        some = source_P >= 0
        edge_P, target_P, source_P = edge_P[some], target_P[some], source_P[some]
        carried_P = torch.ones(len(edge_P), dtype=dtype, device=edge_P.device, requires_grad=True)
        return cls(layer, edges.relation, edge_P, targets.strains[target_P], target_P, source_P, carried_P)


def along_edges(
    known: CarriedEdges, edges: ResidentRelation, sent_DH: Tensor, like_KH: Tensor, mean: Mean | None = None
) -> Tensor:
    """Return zeros, [K, H], that depend on what edges carry as the sums or means of listed targets do.

    Args:
        known: edges from listed sources to listed targets.
        like_KH: has the shape and the type of what the targets receive.
        mean: for means, how they depend on what is removed.
    """
    weight_P = None if edges.weight is None else edges.weight[known.edge_P]
    out: Tensor = _AlongEdges.apply(known.carried_P, known, weight_P, sent_DH.detach(), like_KH, mean)
    return out


class _AlongEdges(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        carried_P: Tensor,
        known: CarriedEdges,
        weight_P: Tensor | None,
        sent_DH: Tensor,
        like_KH: Tensor,
        mean: Mean | None,
    ) -> Tensor:
        ctx.known, ctx.weight_P, ctx.sent_DH, ctx.mean = known, weight_P, sent_DH, mean
        return torch.zeros_like(like_KH)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_KH: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        known, sent_DH = ctx.known, ctx.sent_DH
        grad_KH = grad_KH.to(sent_DH.dtype)
        if ctx.mean is not None:
            removed_D1, of_removed_KH, degree_K1 = ctx.mean
            grad_KH = grad_KH / degree_K1
        blocks = zip(known.source_P.split(BLOCK), known.target_P.split(BLOCK), strict=True)
        share_P = torch.cat([(sent_DH[source] * grad_KH[target]).sum(1) for source, target in blocks])
        if ctx.weight_P is not None:
            share_P = share_P * ctx.weight_P
        if ctx.mean is not None:
            of_removed_K = (of_removed_KH * grad_KH).sum(1)
            share_P = share_P + removed_D1[known.source_P, 0] * of_removed_K[known.target_P]
        return share_P, None, None, None, None, None
