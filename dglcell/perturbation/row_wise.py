"""Row-wise functions, evaluated block by block: what lies between input and output stays in the cache.

Out come sums of several such functions, because that is what a layer is: one update for every relation, and a residual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from dglcell.kernels.chain import RowUpdate
from dglcell.kernels.rows import add_rows
from dglcell.perturbation.kept_base import KeptRows
from dglcell.perturbation.row_blocks import Input, Part, Shape, rows_in_block
from dglcell.perturbation.row_sums import sum_parts


@dataclass(frozen=True)
class Rows:
    """Rows of a table, in any order.

    Attributes:
        table: [S, H].
        index: [K] int64 which rows; None for all of them as they are.
        shared: how many of the table's first rows may occur anywhere, and several times, in ``index``. Each of those
            after them belongs to one row of a sum: no two rows of it may have it, in one term or in several.
    """

    table: Tensor
    index: Tensor | None = None
    shared: int = 0

    def all(self) -> Tensor:
        """[K, H], differentiable."""
        return self.table if self.index is None else _TakeRows.apply(self.table, self.index)


@dataclass(frozen=True)
class RowWise:
    """A function of rows, and the module whose parameters it uses.

    Attributes:
        function: tensors [K, …] → [K, H']; row k of the result depends on rows k of the inputs alone.
        module: owner of all parameters that the function reads.
        recompute: keep the inputs alone for the backward pass and compute what lies between once more.
        compiled: the same function, used where it can be; it always computes once more.
        width: how many numbers of a row lie between input and output at once, where these are more than the input's.
    """

    function: Callable[..., Tensor]
    module: nn.Module
    recompute: bool = True
    compiled: RowUpdate | None = None
    width: int = 0

    @property
    def random(self) -> bool:
        """Whether it would give something else when computed once more, or in another order."""
        return any(isinstance(m, nn.Dropout) and m.training and m.p > 0 for m in self.module.modules())

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Those that are trained."""
        return [p for p in self.module.parameters() if p.requires_grad]


@dataclass(frozen=True)
class Term:
    """One function of a sum.

    Attributes:
        update: the function; None for the sum's input as it is (a residual).
        inputs: its arguments: N base rows, then K' pairs.
        place: [K'] ascending positions of its pairs among those of the sum; None where they are the same. At other
            pairs of the sum the term is what it is at their base row.
    """

    update: RowWise | None
    inputs: Sequence[Rows]
    place: Tensor | None = None


def sum_terms(terms: Sequence[Term], shape: Shape, kept: KeptRows | None = None) -> Tensor:
    """[N + K, H] sum of row-wise functions, in blocks; of whole tensors where one of them is random.

    Args:
        terms: what is summed.
        shape: of the result.
        kept: base rows of the same sum over another batch, or where they go; where gradients are off.
    """
    updates = [term.update for term in terms if term.update is not None]
    if any(update.random for update in updates):
        return _sum_at_once(terms, shape)
    tables, parts = _inputs_of(terms)
    return sum_parts(parts, tables, shape, recompute=any(update.recompute for update in updates), kept=kept)


def _sum_at_once(terms: Sequence[Term], shape: Shape) -> Tensor:
    """The same with whole tensors, all of which autograd keeps."""
    total: Tensor | None = None
    for term in terms:
        inputs = [rows.all() for rows in term.inputs]
        part = inputs[0] if term.update is None else _rows_at_once(term.update, inputs)
        if term.place is not None:
            assert shape.nodes is not None
            row = torch.cat([torch.arange(shape.base, device=part.device), shape.nodes])
            row[shape.base + term.place] = torch.arange(shape.base, len(part), device=part.device)
            part = _TakeRows.apply(part, row)
        total = part if total is None else total + part
    assert total is not None
    return total


def _rows_at_once(update: RowWise, inputs: Sequence[Tensor]) -> Tensor:
    """The update's rows in one tensor.

    Where what lies between is wider than the inputs it is computed for some rows at a time, and once more for the
    backward pass, from the same random numbers.
    """
    if not update.recompute or update.width == 0:
        return update.function(*inputs)
    number = rows_in_block(inputs, update.width)
    portions = zip(*(x.split(number) for x in inputs), strict=True)
    return torch.cat([checkpoint(update.function, *portion, use_reentrant=False) for portion in portions])


def _inputs_of(terms: Sequence[Term]) -> tuple[list[Tensor], list[Part]]:
    """The tables, each once, and the terms with their inputs as positions among the tables."""
    tables = {id(rows.table): rows.table for term in terms for rows in term.inputs}
    slot = {key: i for i, key in enumerate(tables)}
    parts = [
        Part(
            None if term.update is None else term.update.function,
            [Input(slot[id(rows.table)], rows.index, rows.shared) for rows in term.inputs],
            [] if term.update is None else term.update.parameters,
            term.place,
            None if term.update is None else term.update.compiled,
            0 if term.update is None else term.update.width,
        )
        for term in terms
    ]
    return list(tables.values()), parts


class _TakeRows(torch.autograd.Function):
    """``table[index]``, with a backward pass that adds in order."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.shape = table.shape
        return table.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        out = grad.new_zeros(ctx.shape)
        add_rows(out, ctx.saved_tensors[0], grad)
        return out, None


def shared_sums(share_NB: Tensor, x_NH: Tensor) -> Tensor:
    """[B, H] weighted sums of rows that all strains share: the first strain's, plus what the others differ from it.

    The difference of two strains is what matters; so computed, its rounding error is small against it, not against
    the sums.
    """
    first_N1 = share_NB[:, :1]
    return first_N1.T @ x_NH + (share_NB - first_N1).T @ x_NH


def add_by(start_BH: Tensor, groups: Tensor, values_KH: Tensor) -> Tensor:
    """[B, H] ``start`` plus the sums of the values that belong to each of its rows.

    Args:
        start_BH: [B, H].
        groups: [K] int64 row of ``start``.
        values_KH: [K, H].
    """
    out: Tensor = _AddBy.apply(start_BH, groups, values_KH)
    return out


class _AddBy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, start: Tensor, groups: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(groups)
        out = start.clone(memory_format=torch.contiguous_format)
        add_rows(out, groups, values)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor]:
        return grad, None, grad.index_select(0, ctx.saved_tensors[0])
