"""Updates of rows made of several: one for each relation, and one that mixes their results.

What one gives to the next exists for some rows at a time. Compiled updates and torch's operators can follow each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from dglcell.kernels.rows import add_rows, add_split
from dglcell.kernels.update import Into, Taken, on_compiled_device

ROWS = 1024
"""Rows that one update gives to the next at a time."""


class RowUpdate(Protocol):
    """A function of rows that knows its gradients, as ``dglcell.kernels.update.Update`` does."""

    def applies(self, tables: Sequence[Tensor]) -> bool:
        """Whether it can be used on rows of these tables."""

    def pack(self, dtype: torch.dtype) -> Any:
        """Its parameters as they are wanted below."""

    def forward(self, packed: Any, inputs: Sequence[Taken], number: int, out: Taken, *, add: bool) -> None:
        """Write rows to ``out``, or add them."""

    def backward(
        self, packed: Any, inputs: Sequence[Taken], number: int, grad: Taken, into: Sequence[Into]
    ) -> Iterable[tuple[Tensor, Tensor]]:
        """Add gradients of the inputs' rows, and give those of the parameters."""


@dataclass(frozen=True)
class PlainUpdate:
    """A function of rows by torch's operators.

    Attributes:
        function: tensors [K, …] → [K, H'].
        module: owner of all parameters that the function reads.
    """

    function: Callable[..., Tensor]
    module: nn.Module

    def applies(self, tables: Sequence[Tensor]) -> bool:
        """See ``RowUpdate.applies``."""
        return on_compiled_device([*tables, *self.module.parameters()])

    def pack(self, dtype: torch.dtype) -> None:
        """The function knows its parameters."""

    def forward(self, packed: None, inputs: Sequence[Taken], number: int, out: Taken, *, add: bool) -> None:
        """See ``RowUpdate.forward``."""
        put_rows(self.function(*(rows_of(source, number) for source in inputs)), out, add=add)

    def backward(
        self, packed: None, inputs: Sequence[Taken], number: int, grad: Taken, into: Sequence[Into]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """See ``RowUpdate.backward``."""
        leaves = [
            rows_of(source, number).detach().requires_grad_(target.own is not None)
            for source, target in zip(inputs, into, strict=True)
        ]
        with torch.enable_grad():
            rows = self.function(*leaves)
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        wanted = [*(x for x in leaves if x.requires_grad), *parameters]
        if not wanted:
            return iter(())
        values = iter(torch.autograd.grad(rows, wanted, rows_of(grad, number), materialize_grads=True))
        for x, target in zip(leaves, into, strict=True):
            if x.requires_grad:
                add_gradient(next(values), target)
        return zip(parameters, values, strict=True)


@dataclass(frozen=True)
class Step:
    """One of the first updates of a chain.

    Attributes:
        update: None for rows as they are.
        inputs: which of the chain's arguments it sees.
    """

    update: RowUpdate | None
    inputs: Sequence[int]


class Chain:
    """``mix(step 1, …, step K)``: a mixture of K updates that all give rows of the same width.

    Args:
        steps: the updates, or rows as they are.
        mix: a function of K rows of equal width.
    """

    def __init__(self, steps: Sequence[Step], mix: RowUpdate) -> None:
        self.steps, self.mix = steps, mix

    def applies(self, tables: Sequence[Tensor]) -> bool:
        """See ``RowUpdate.applies``."""
        return self.mix.applies(tables[:1]) and all(
            step.update is None or step.update.applies([tables[i] for i in step.inputs]) for step in self.steps
        )

    def pack(self, dtype: torch.dtype) -> list[Any]:
        """See ``RowUpdate.pack``."""
        return [None if u is None else u.pack(dtype) for u in (*(step.update for step in self.steps), self.mix)]

    def forward(self, packed: list[Any], inputs: Sequence[Taken], number: int, out: Taken, *, add: bool) -> None:
        """See ``RowUpdate.forward``."""
        for first, n in _portions(number):
            here = [_from(source, first, n) for source in inputs]
            hidden_KNH = self._hidden(packed, here, n)
            self.mix.forward(packed[-1], [Taken(x) for x in hidden_KNH], n, _from(out, first, n), add=add)

    def backward(
        self, packed: list[Any], inputs: Sequence[Taken], number: int, grad: Taken, into: Sequence[Into]
    ) -> Iterable[tuple[Tensor, Tensor]]:
        """See ``RowUpdate.backward``."""
        total: dict[int, tuple[Tensor, Tensor]] = {}
        for first, n in _portions(number):
            here = [_from(source, first, n) for source in inputs]
            targets = [_into_from(target, first, n) for target in into]
            hidden_KNH = self._hidden(packed, here, n)
            of_hidden = torch.zeros_like(hidden_KNH)
            sources, grads = [Taken(x) for x in hidden_KNH], [Into(x) for x in of_hidden]
            _collect(self.mix.backward(packed[-1], sources, n, _from(grad, first, n), grads), total)
            for step, known, x_NH in zip(self.steps, packed[:-1], of_hidden, strict=True):
                mine = [targets[i] for i in step.inputs]
                if step.update is None:
                    add_gradient(x_NH, mine[0])
                else:
                    _collect(step.update.backward(known, [here[i] for i in step.inputs], n, Taken(x_NH), mine), total)
        return total.values()

    def _hidden(self, packed: list[Any], inputs: Sequence[Taken], number: int) -> Tensor:
        """[K, n, H] what the steps give to the mixture."""
        table = inputs[self.steps[0].inputs[0]].table
        hidden_KNH = table.new_empty(len(self.steps), number, table.shape[1])
        for step, known, x_NH in zip(self.steps, packed[:-1], hidden_KNH, strict=True):
            mine = [inputs[i] for i in step.inputs]
            if step.update is None:
                x_NH.copy_(rows_of(mine[0], number))
            else:
                step.update.forward(known, mine, number, Taken(x_NH), add=False)
        return hidden_KNH


def rows_of(source: Taken, number: int) -> Tensor:
    """[n, H] the rows."""
    if source.index is None:
        return source.table[source.shift : source.shift + number]
    return source.table.index_select(0, source.index + source.shift if source.shift else source.index)


def put_rows(rows_NH: Tensor, out: Taken, *, add: bool) -> None:
    """Write rows where they belong, or add them; to given places they can only be added."""
    if out.index is not None:
        assert add
        add_rows(out.table, out.index + out.shift if out.shift else out.index, rows_NH, threads=1)
        return
    target = out.table[out.shift : out.shift + len(rows_NH)]
    if add:
        target += rows_NH
    else:
        target.copy_(rows_NH)


def add_gradient(rows_NH: Tensor, target: Into) -> None:
    """Add the gradient of taken rows."""
    if target.own is None:
        return
    if target.index is None:
        target.own[: len(rows_NH)] += rows_NH
        return
    assert target.shared is not None
    add_split(target.shared, target.own, target.index, rows_NH)


def _portions(number: int) -> Iterator[tuple[int, int]]:
    for first in range(0, number, ROWS):
        yield first, min(ROWS, number - first)


def _from(source: Taken, first: int, number: int) -> Taken:
    if source.index is None:
        return Taken(source.table, None, source.shift + first)
    return Taken(source.table, source.index[first : first + number], source.shift)


def _into_from(target: Into, first: int, number: int) -> Into:
    if target.own is None or target.index is None:
        return Into(None if target.own is None else target.own[first : first + number])
    return Into(target.own, target.index[first : first + number], target.shared)


def _collect(found: Iterable[tuple[Tensor, Tensor]], total: dict[int, tuple[Tensor, Tensor]]) -> None:
    """Add gradients of parameters to those found before."""
    for parameter, value in found:
        if id(parameter) in total:
            total[id(parameter)][1].add_(value)
        else:
            total[id(parameter)] = parameter, value
