"""Hold rows of a base beside the differences that belong to them, and sets of (node, strain) pairs that differ.

Where every base row has B differences, ``rows`` is the number B. The differences are then [n, B, ...] beside
[n, 1, ...] of the base, which is not copied. Where differences are listed, ``rows`` has the base row of each, and they
are [k, ...] beside a copy of that row. B is a symbol and no ``int`` where the compiler has seen several values of it,
which is why these functions ask whether ``rows`` is a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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
    """Return ``table[index]`` along the first dimension, with a backward pass that adds in order.

    Args:
        table: [S, ...].
        index: [K] int64.
    """
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


@dataclass(frozen=True, eq=False)
class RowIndex:
    """Hold K different (node, strain) pairs of one node type, ordered by node, then strain.

    Because of this order, the strains' rows of a node lie together, beside the base's row of the node.

    Attributes:
        mask_NB: [N, B] bool, which pairs are in the set.
    """

    mask_NB: Tensor

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes, N."""
        return self.mask_NB.shape[0]

    @property
    def num_strains(self) -> int:
        """Return the number of strains, B."""
        return self.mask_NB.shape[1]

    @cached_property
    def keys(self) -> Tensor:
        """Return ``node · B + strain`` of every pair, [K] int64, ascending."""
        return self.mask_NB.flatten().nonzero().squeeze(1)

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def nodes(self) -> Tensor:
        """Return the node of every pair, [K] int64."""
        return self.keys.div(self.num_strains, rounding_mode="floor")

    @cached_property
    def strains(self) -> Tensor:
        """Return the strain of every pair, [K] int64."""
        return self.keys - self.nodes * self.num_strains

    @cached_property
    def starts(self) -> Tensor:
        """Return where each node's pairs start, [N + 1] int64; those of node v are ``starts[v]:starts[v + 1]``."""
        counts = self.mask_NB.sum(1)
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    @cached_property
    def table(self) -> Tensor:
        """Return the position of every pair, [N, B] int32; −1 for pairs that are not in the set."""
        table = torch.full(self.mask_NB.shape, -1, dtype=torch.int32, device=self.mask_NB.device)
        numbers = torch.arange(len(self), dtype=torch.int32, device=table.device)
        table.view(-1).index_copy_(0, self.keys, numbers)
        return table

    def positions(self, of: RowIndex) -> Tensor:
        """Return the positions here of the pairs of another index, [K'] int64; −1 for those that are not here."""
        return self.table.flatten()[of.keys].long()


def union(indices: Sequence[RowIndex]) -> RowIndex:
    """Return the pairs that are in any of the indices; if one of them has all, it is that object itself."""
    different = list({id(index): index for index in indices}.values())
    if len(different) == 1:
        return different[0]
    mask_NB = different[0].mask_NB.clone()
    for index in different[1:]:
        mask_NB |= index.mask_NB
    number = int(mask_NB.sum())
    return next((index for index in different if len(index) == number), RowIndex(mask_NB))
