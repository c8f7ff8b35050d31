"""Compute sparse products by Triton's loops, and products that put in place what lost nodes receive.

What the latter compute is defined by ``dglcell.perturbation.sent``: a lost node sends −b and receives −y.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.graph.resident_graph import ResidentRelation

TILE = (256, 1, 8)
"""What a program of ``sum_pieces`` computes: numbers, strains × columns; warps that share it; edges read at once. It is
the fastest of six tiles on an H100 and of twelve on an H200, by 3 to 25 %, in every product of a training step. None
changes the order of a sum, and so none changes a bit of the result."""


@dataclass(frozen=True)
class Lost:
    """Describe which strains have lost a node among the results, and what stands for its row."""

    keep: Tensor  #: [M, B] bool, which nodes are kept
    #: [M, H] whose negative stands for a lost node's row; None where that row is as any other
    instead: Tensor | None = None


def product(
    relation: ResidentRelation,
    x_NBH: Tensor,
    *,
    weighted: bool,
    transposed: bool,
    keep_NB: Tensor | None = None,
    outputs: Lost | None = None,
    only_lost: bool = False,
) -> Tensor:
    """Return the sums over in-edges, [M, B, H]; over out-edges if ``transposed``, in the type of ``x``, contiguous.

    Args:
        relation, weighted: the E edges, and whether to multiply by their fixed weights.
        x_NBH: rows of the nodes at the other ends.
        transposed: whether rows of the result are sources.
        keep_NB: bool, which nodes at the other ends are kept; the rows of others are left out.
        outputs: which rows of the result are lost.
        only_lost: whether all but the lost rows are left undefined.
    """
    (_, B, H), dtype, (size, warps, unroll) = x_NBH.shape, x_NBH.dtype, TILE
    from dglcell.kernels import loops_triton as compiled

    sums, split = _sum_type(dtype), relation.pieces(transposed=transposed)
    sum_dtype = torch.promote_types(dtype, torch.float32)
    edges = relation.compact(sum_dtype if weighted else None, transposed=transposed)
    device = split.pieces.device
    out = torch.empty(len(edges.starts) - 1, B, H, dtype=dtype, device=device)
    partial = torch.empty(split.partial, B, H, dtype=sum_dtype, device=device)
    # Unused arguments have to be some tensor.
    keep_in, weights = out if keep_NB is None else _bytes(keep_NB), out if edges.weights is None else edges.weights
    received, keep_out = (out, out) if outputs is None else (outputs.instead, _bytes(outputs.keep))
    masked_out = received is not None and outputs is not None
    received = out if received is None else received.contiguous()
    flags = weighted, keep_NB is not None

    BH = min(size, _power_of_2(H))
    BB = min(size // BH, _power_of_2(B))
    tiles = -(-B // BB) * -(-H // BH)
    tensors = (edges.neighbours, weights, x_NBH, keep_in, received, keep_out, out, partial)
    compiled.sum_pieces[len(split.pieces), tiles](
        split.pieces, *tensors, B, H, *flags, masked_out, only_lost, sums, BB, BH, unroll, num_warps=warps
    )  # fmt: skip
    if len(split.rows):
        parts = (split.rows, partial, received, keep_out, out)
        compiled.add_pieces[len(split.rows), tiles](*parts, B, H, masked_out, sums, BB, BH, num_warps=warps)
    return out


def sent_rows(x_NBH: Tensor | None, base_NH: Tensor, keep_NB: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what nodes send, [N, B, H]: their rows (None for zeros), or minus the base's where they are lost."""
    from dglcell.kernels import loops_triton as compiled

    (N, B), H = keep_NB.shape, base_NH.shape[1]
    out = base_NH.new_empty(N, B, H, dtype=dtype)
    BH = min(256, _power_of_2(H))
    rows = out if x_NBH is None else x_NBH.contiguous()
    compiled.send[N, -(-H // BH)](
        rows, base_NH.contiguous(), _bytes(keep_NB), out, B, H, x_NBH is not None, 1024 // BH, BH, num_warps=4
    )
    return out


def slot_sums(gone_MBK: Tensor, rows_BKH: Tensor, lost: Lost) -> Tensor:
    """Return minus what the K lost sources of each strain sent, [M, B, H], or minus what a lost node received.

    ``gone`` has the weights of their edges, and ``rows`` the base's rows, in the type of the result.
    """
    from dglcell.kernels import loops_triton as compiled

    (M, B, K), H = gone_MBK.shape, rows_BKH.shape[2]
    assert lost.instead is not None
    out = rows_BKH.new_empty(M, B, H)
    BH = min(64, _power_of_2(H))
    BB = min(2048 // BH, _power_of_2(B))
    tensors = gone_MBK.contiguous(), rows_BKH.contiguous(), lost.instead.contiguous(), _bytes(lost.keep), out
    compiled.sum_slots[M, -(-B // BB) * -(-H // BH)](*tensors, B, K, H, _sum_type(out.dtype), BB, BH, num_warps=4)
    return out


def lost_sum(x_NBH: Tensor, keep_NB: Tensor, *, clear: bool) -> Tensor:
    """Return minus the sums of rows over the strains that have lost a node, [N, H]; float32 at least.

    ``clear`` sets these rows of ``x``, which is contiguous, to zero.
    """
    from dglcell.kernels import loops_triton as compiled

    N, B, H = x_NBH.shape
    out = x_NBH.new_empty(N, H, dtype=torch.promote_types(x_NBH.dtype, torch.float32))
    BH = min(256, _power_of_2(H))
    keep = _bytes(keep_NB)
    sums = _sum_type(x_NBH.dtype)
    compiled.sum_lost[N, -(-H // BH)](x_NBH, keep, out, B, H, clear, sums, 512 // BH, BH, num_warps=2)
    return out


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
        ctx: Any, delta: Tensor | None, base: Tensor, received: Tensor, relation: ResidentRelation, keep_NB: Tensor,
        keep_MB: Tensor, dtype: torch.dtype, slots: tuple[Tensor, Tensor] | None,
    ) -> Tensor:  # fmt: skip
        ctx.relation, ctx.keep, ctx.has_delta = relation, (keep_NB, keep_MB), delta is not None
        ctx.dtypes = base.dtype, received.dtype
        weighted, lost = relation.weight is not None, Lost(keep_MB, received)
        if slots is not None:
            nodes_BK, removed_BK = slots
            columns = nodes_BK.new_zeros(relation.num_src, 1, nodes_BK.numel(), dtype=dtype)
            columns = columns.scatter(0, nodes_BK.view(1, 1, -1), removed_BK.view(1, 1, -1).to(dtype))
            gone = product(relation, columns, weighted=weighted, transposed=False)
            rows_BKH = base.index_select(0, nodes_BK.flatten()).view(*nodes_BK.shape, -1).to(dtype)
            return slot_sums(gone.view(-1, *nodes_BK.shape), rows_BKH, lost)
        sent = sent_rows(delta, base, keep_NB, dtype)
        return product(relation, sent, weighted=weighted, transposed=False, outputs=lost)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MBH: Tensor) -> tuple[Tensor | None, ...]:
        relation, (keep_NB, keep_MB), grad = ctx.relation, ctx.keep, grad_MBH.contiguous()
        masks: dict[str, Any] = {"keep_NB": keep_MB, "outputs": Lost(keep_NB), "only_lost": not ctx.has_delta}
        sent = product(relation, grad, weighted=relation.weight is not None, transposed=True, **masks)
        # The rows of lost nodes belong to the base's gradient and to no difference's.
        base = lost_sum(sent, keep_NB, clear=True).to(ctx.dtypes[0])
        received = lost_sum(grad, keep_MB, clear=False).to(ctx.dtypes[1])
        return sent if ctx.has_delta else None, base, received, None, None, None, None, None


def _sum_type(dtype: torch.dtype) -> Any:
    import triton.language as tl

    return tl.float64 if dtype == torch.float64 else tl.float32


def _power_of_2(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


def _bytes(keep: Tensor) -> Tensor:
    return keep.contiguous().view(torch.uint8)
