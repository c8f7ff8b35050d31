"""Sum what strains send; what lost nodes receive is put in place while rows are written.

What it computes is defined by ``dglcell.perturbation.sent``: a lost node sends −b and receives −y.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.graph.resident_graph import ResidentRelation
from dglcell.kernels import spmm, triton_products


def knows_who_is_lost(kernel: str, device_type: str) -> bool:
    """Return whether the kernel that would compute a product can do all that ``masked_spmm`` does."""
    return (spmm.default_kernel(device_type) if kernel == "auto" else kernel) == "triton"


def masked_spmm(
    relation: ResidentRelation,
    delta_NBH: Tensor | None,
    base_NH: Tensor,
    keep_NB: Tensor,
    received_MH: Tensor,
    keep_MB: Tensor,
    dtype: torch.dtype,
    slots: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Return by how much what strains receive along a relation differs from what the base receives, [M, B, H].

    Sums are taken in float32 at least, in the order of the edges, so that results and gradients are the same every
    time.

    Args:
        relation: E edges, with their fixed weights where they have any.
        delta_NBH: [N, B, H] differences of the sources; None where there are none.
        base_NH: [N, H] what the base's sources send; a lost source differs by minus this.
        keep_NB: [N, B] bool, which sources are kept.
        received_MH: [M, H] what the base receives; a lost destination differs by minus this.
        keep_MB: [M, B] bool, which destinations are kept.
        dtype: type of the result.
        slots: where no source differs, [B, K] the lost sources of each strain, and 1 for them and 0 for fillers: few
            enough to sum what they no longer send without a product over all edges.
    """
    delta = None if delta_NBH is None else delta_NBH.to(dtype)
    out: Tensor = _MaskedProduct.apply(delta, base_NH, received_MH, relation, keep_NB, keep_MB, dtype, slots)
    return out


class _MaskedProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        delta: Tensor | None,
        base: Tensor,
        received: Tensor,
        relation: ResidentRelation,
        keep_NB: Tensor,
        keep_MB: Tensor,
        dtype: torch.dtype,
        slots: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        ctx.relation, ctx.keep, ctx.has_delta = relation, (keep_NB, keep_MB), delta is not None
        ctx.dtypes = base.dtype, received.dtype
        weighted, lost = relation.weight is not None, triton_products.Lost(keep_MB, received)
        if slots is not None:
            nodes_BK, removed_BK = slots
            columns = nodes_BK.new_zeros(relation.num_src, 1, nodes_BK.numel(), dtype=dtype)
            columns = columns.scatter(0, nodes_BK.view(1, 1, -1), removed_BK.view(1, 1, -1).to(dtype))
            gone = triton_products.product(relation, columns, weighted=weighted, transposed=False)
            rows_BKH = base.index_select(0, nodes_BK.flatten()).view(*nodes_BK.shape, -1).to(dtype)
            return triton_products.slot_sums(gone.view(-1, *nodes_BK.shape), rows_BKH, lost)
        sent = triton_products.sent_rows(delta, base, keep_NB, dtype)
        return triton_products.product(relation, sent, weighted=weighted, transposed=False, outputs=lost)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MBH: Tensor) -> tuple[Tensor | None, ...]:
        relation, (keep_NB, keep_MB), grad = ctx.relation, ctx.keep, grad_MBH.contiguous()
        sent = triton_products.product(
            relation,
            grad,
            weighted=relation.weight is not None,
            transposed=True,
            keep_NB=keep_MB,
            outputs=triton_products.Lost(keep_NB),
            only_lost=not ctx.has_delta,
        )
        # The rows of lost nodes belong to the base's gradient and to no difference's.
        base = triton_products.lost_sum(sent, keep_NB, clear=True).to(ctx.dtypes[0])
        received = triton_products.lost_sum(grad, keep_MB, clear=False).to(ctx.dtypes[1])
        return sent if ctx.has_delta else None, base, received, None, None, None, None, None
