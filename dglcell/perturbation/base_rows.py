"""Hold rows of a base beside the differences that belong to them.

Where every base row has B differences, ``rows`` is the number B. The differences are then [n, B, ...] beside
[n, 1, ...] of the base, which is not copied. Where differences are listed, ``rows`` has the base row of each, and they
are [k, ...] beside a copy of that row. B is a symbol and no ``int`` where the compiler has seen several values of it,
which is why these functions ask whether ``rows`` is a tensor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.kernels.rows import add_rows


def beside(x: Tensor, rows: int | Tensor) -> Tensor:
    """Return rows of the base, or functions of them, in a shape that broadcasts with ``paired`` differences."""
    return take_rows(x, rows) if isinstance(rows, Tensor) else x.unsqueeze(1)


def paired(delta: Tensor, rows: int | Tensor) -> Tensor:
    """Return differences [k, ...] in a shape that broadcasts with ``beside``."""
    return delta if isinstance(rows, Tensor) else delta.unflatten(0, (-1, rows))


def flat(delta: Tensor, rows: int | Tensor) -> Tensor:
    """Return differences as [k, ...] again; it is the inverse of ``paired``."""
    return delta if isinstance(rows, Tensor) else delta.flatten(0, 1)


def summed(delta: Tensor, number: int, rows: int | Tensor) -> Tensor:
    """Sum the ``paired`` differences of each of ``number`` base rows, in order, in single precision or better."""
    dtype = torch.promote_types(delta.dtype, torch.float32)
    if not isinstance(rows, Tensor):
        return delta.sum(1, dtype=dtype)
    out = delta.new_zeros(number, *delta.shape[1:], dtype=dtype)
    width = delta.shape[1:].numel()
    add_rows(out.view(-1, width), rows, delta.reshape(-1, width))
    return out


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """Return ``table[index]`` along the first dimension, with a backward pass that adds in order."""
    out: Tensor = _TakeRows.apply(table, index)
    return out


class _TakeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.number = len(table)
        return table.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return summed(grad, ctx.number, ctx.saved_tensors[0]).to(grad.dtype), None
