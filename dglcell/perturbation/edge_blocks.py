"""Compute results over edges in blocks, so that no tensor is as large as edges × strains.

Blocks are rectangles of nodes with about as many in-edges each. What lies between a block's rows and its result is
computed anew in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from dglcell.graph.resident import Rectangle, ResidentRelation
from dglcell.kernels.rows import add_rows

Block = tuple[slice, int, slice]
"""These are rows, the number of slots for in-edges, and strains."""

BLOCK_BYTES = {"cpu": 2**22, "cuda": 2**28}
"""The largest tensors of a block have so many bytes, by device: they stay in the cache of a CPU, and take few
launches on a GPU."""


class _Sums:
    """Hold the sums of gradients of a table's rows during a backward pass."""

    def __init__(self, shape: torch.Size, dtype: torch.dtype) -> None:
        self.shape, self.dtype = shape, dtype
        self.total: Tensor | None = None

    def add(self, rows: Tensor, columns: slice, grad: Tensor) -> None:
        if self.total is None:
            self.total = torch.zeros(self.shape, dtype=self.dtype, device=grad.device)
        if len(self.shape) == 2 or grad.shape[1] == self.shape[1]:
            add_rows(self.total.view(len(self.total), -1), rows, grad.reshape(len(rows), -1))
        else:
            self.total[:, columns].index_add_(0, rows, grad)

    def take(self) -> Tensor | None:
        """Return the sums, and clear them for the next backward pass."""
        total, self.total = self.total, None
        return total


class Table:
    """Hold a tensor from which blocks take rows.

    Its gradient is added up block by block in one place: autograd by itself would make a tensor as large as the whole
    table for every block.
    """

    def __init__(self, x: Tensor, dtype: torch.dtype) -> None:
        self._sums = _Sums(x.shape, dtype)
        self.x: Tensor = _Whole.apply(x, self._sums)

    def take(self, rows: Tensor, columns: slice = slice(None)) -> Tensor:
        """Return rows of some columns, ``[*rows.shape, ...]``, in the type of the sums."""
        out: Tensor = _Take.apply(self.x, self._sums, rows.flatten(), columns)
        return out.unflatten(0, rows.shape)


class _Whole(torch.autograd.Function):
    """Pass the table through. Its backward pass runs after those of all ``_Take``, which pass no gradient on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sums: _Sums) -> Tensor:
        ctx.sums, ctx.dtype = sums, x.dtype
        ctx.set_materialize_grads(False)
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, None]:
        total = ctx.sums.take()
        return None if total is None else total.to(ctx.dtype), None


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sums: _Sums, rows: Tensor, columns: slice) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.sums, ctx.columns = sums, columns
        return (x if x.dim() == 2 else x[:, columns]).index_select(0, rows).to(sums.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, ...]:
        ctx.sums.add(ctx.saved_tensors[0], ctx.columns, grad)
        return None, None, None, None


def in_blocks(
    block: Callable[[Tensor, int, slice], Tensor], order: Tensor, blocks: Iterator[Block], out: Tensor
) -> Tensor:
    """Assemble a result from blocks, each computed in full precision and again in the backward pass.

    Args:
        block: function (rows of the result, number of slots for in-edges, strains) → [rows, strains, H].
        order: [n] rows of the result, in the order in which the blocks count them.
        blocks: the blocks that ``cut`` yields.
        out: [m, B, H] zeros, which are filled.
    """

    def compute(rows: Tensor, width: int, columns: slice) -> Tensor:
        with torch.autocast(out.device.type, enabled=False):
            return block(rows, width, columns)

    places, pieces = [], []
    for rows, width, columns in blocks:
        places.append((order[rows], columns))
        if torch.is_grad_enabled():
            pieces.append(checkpoint(compute, order[rows], width, columns, use_reentrant=False))
        else:
            pieces.append(compute(order[rows], width, columns))
    together: Tensor = _Together.apply(out, places, *pieces)
    return together


class _Together(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, out: Tensor, places: list[tuple[Tensor, slice]], *pieces: Tensor) -> Tensor:
        ctx.places, ctx.dtypes = places, [piece.dtype for piece in pieces]
        for (rows, columns), piece in zip(places, pieces, strict=True):
            out[:, columns].index_copy_(0, rows, piece.to(out.dtype))
        ctx.mark_dirty(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        parts = zip(ctx.places, ctx.dtypes, strict=True)
        grads = [grad[:, columns].index_select(0, rows).to(dtype) for (rows, columns), dtype in parts]
        return None, None, *grads


def in_edges(edges: ResidentRelation, nodes: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return the in-edges of nodes that have 1 … ``width`` of them, [n, width], and which of these are real.

    The last one is repeated.
    """
    first, degree = edges.in_starts[nodes].unsqueeze(1), edges.in_degrees[nodes].unsqueeze(1)
    slots = torch.arange(width, device=nodes.device)
    return first + torch.minimum(slots, degree - 1), slots < degree


def block_rows(x: Tensor) -> int:
    """Return how many rows as wide as those of ``x`` a block may have."""
    row_bytes = x.shape[-1] * torch.promote_types(x.dtype, torch.float32).itemsize
    return BLOCK_BYTES.get(x.device.type, BLOCK_BYTES["cpu"]) // row_bytes


def cut(shapes: list[Rectangle], num_strains: int, limit: int) -> Iterator[Block]:
    """Cut rectangles so that rows × width × strains is no more than ``limit``.

    A node that has too many in-edges even alone is computed for a few strains at a time. The in-edges of one node in
    one strain are never divided.

    Yields:
        The rows, the width and the strains of each block.
    """
    for shape in shapes:
        strains = min(num_strains, max(1, limit // shape.width))
        step = max(1, limit // (shape.width * strains))
        for row in range(shape.first, shape.last, step):
            rows = slice(row, min(row + step, shape.last))
            for strain in range(0, num_strains, strains):
                yield rows, shape.width, slice(strain, min(strain + strains, num_strains))
