"""A sum of row-wise functions as one differentiable operation.

For the backward pass either each block's graph is kept, or the inputs alone, from which the block is computed once
more; compiled updates always do the latter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.kernels.rows import add_rows, add_split
from dglcell.kernels.update import Into, Taken
from dglcell.perturbation.kept_base import KeptRows
from dglcell.perturbation.row_blocks import Blocks, Input, Part, Shape, autocast_as, autocast_now, compiled_updates


def sum_parts(
    parts: Sequence[Part], tables: Sequence[Tensor], shape: Shape, *, recompute: bool, kept: KeptRows | None = None
) -> Tensor:
    """[N + K, H] sum of the parts.

    Args:
        parts: what is summed.
        tables: that their inputs are rows of.
        shape: of the result.
        recompute: keep the tables alone for the backward pass.
        kept: base rows of an earlier batch, or where they go; there is no backward pass then.
    """
    if kept is not None:
        autocast = autocast_now(tables[0].device.type)
        updates = compiled_updates(parts, tables, autocast)
        forward = _Forward(parts, tables, shape, autocast, [False] * len(tables), updates, None)
        forward.kept = kept
        return forward.run()
    parameters = list({id(p): p for part in parts for p in part.parameters}.values())
    keep = torch.is_grad_enabled() and not recompute
    out: Tensor = _SumParts.apply(parts, shape, keep, len(tables), *tables, *parameters)
    return out


class _SumParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: Sequence[Part], shape: Shape, keep: bool, number: int, *tensors: Tensor) -> Tensor:
        ctx.parts, ctx.shape, ctx.number = parts, shape, number
        ctx.autocast = autocast_now(tensors[0].device.type)
        ctx.graphs = {} if keep else None
        ctx.save_for_backward(*tensors[:number])
        ctx.updates = compiled_updates(parts, tensors[:number], ctx.autocast)
        needed = ctx.needs_input_grad[4 : 4 + number]
        return _Forward(parts, tensors[:number], shape, ctx.autocast, needed, ctx.updates, ctx.graphs).run()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad[4 : 4 + ctx.number]
        backward = _Backward(
            ctx.parts, ctx.saved_tensors, ctx.shape, ctx.autocast, needed, ctx.updates, ctx.graphs, grad.contiguous()
        )
        backward.run()
        return (None, None, None, None, *backward.of_tables, *backward.of_parameters)


class _Forward(Blocks):
    """The sum: base rows first, then pairs; a term that does not have a pair gives its base row there."""

    out: Tensor
    base_of: dict[int, Tensor]
    kept: KeptRows | None = None

    def run(self) -> Tensor:
        """[N + K, H]."""
        with autocast_as(self.autocast):
            probe = [part.evaluate([self.rows_of(i, slice(0, 0)) for i in part.inputs]) for part in self.parts]
        dtype = probe[0].dtype
        for empty in probe[1:]:
            dtype = torch.promote_types(dtype, empty.dtype)
        width = probe[0].shape[1]
        self.out = probe[0].new_empty(self.shape.base + self.shape.pairs, width, dtype=dtype)
        self._fill_base(width)
        self.over_shares(self._pairs, self.shape.pairs)
        return self.out

    def _fill_base(self, width: int) -> None:
        """The base rows, or where they are kept, those of an earlier batch."""
        kept, N = self.kept, self.shape.base
        if kept is not None and kept.total is not None:
            self.out[:N], self.base_of = kept.total, kept.of_part
            return
        # Another batch may need the base rows of parts that this one does not.
        self.base_of = {
            i: self.out.new_empty(N, width)
            for i, part in enumerate(self.parts)
            if part.place is not None or kept is not None
        }
        self.over_shares(self._base, N)
        if kept is not None:
            kept.total, kept.of_part = self.out[:N].clone(), self.base_of

    def _rows(self, number: int, span: slice) -> Tensor:
        """A block of a part; its graph is kept where that is wanted."""
        part = self.parts[number]
        if self.graphs is None or part.function is None:
            return part.evaluate([self.rows_of(source, span) for source in part.inputs])
        graph = self.graphs[number, span.start] = self.graph(part, span)
        return graph[1].detach()

    def _put(self, number: int, span: slice, out: Tensor, place: Tensor | None = None, *, fresh: bool = False) -> None:
        """Add a block of a part to ``out``, or where that is fresh, write it: row by row, or to given places."""
        update, packed = self.updates[number], self.packed[number]
        if update is not None:
            inputs = self.taken(self.parts[number], span)
            update.forward(packed, inputs, span.stop - span.start, Taken(out, place), add=not fresh)
            return
        rows = self._rows(number, span)
        if place is not None:
            add_rows(out, place, rows, threads=1)
        elif fresh:
            out.copy_(rows)
        else:
            out += rows

    def _base(self, share: int, first: int, last: int) -> None:
        for span in self.blocks(first, last):
            for i in range(len(self.parts)):
                if i not in self.base_of:
                    self._put(i, span, self.out[span], fresh=i == 0)
                    continue
                rows = self.base_of[i][span]
                self._put(i, span, rows, fresh=True)
                if i == 0:
                    self.out[span] = rows
                else:
                    self.out[span] += rows

    def _pairs(self, share: int, first: int, last: int) -> None:
        N, out = self.shape.base, self.out[self.shape.base + first : self.shape.base + last]
        for i, part in enumerate(self.parts):
            if i == 0 and part.place is not None:
                out.zero_()
            low, high = part.pairs_between(first, last)
            for span in self.blocks(low, high):
                rows = slice(N + span.start, N + span.stop)
                if part.place is not None:
                    self._put(i, rows, out, part.place[span] - first)
                else:
                    self._put(i, rows, out[span.start - first : span.stop - first], fresh=i == 0)
            if part.place is not None:
                assert self.shape.nodes is not None
                missing = _missing(part.place[low:high] - first, last - first)
                base = self.base_of[i].index_select(0, self.shape.nodes[first + missing])
                add_rows(out, missing, base, threads=1)


@dataclass
class _Backward(Blocks):
    """Gradients of the tables and parameters."""

    grad: Tensor
    of_tables: list[Tensor | None] = field(init=False)
    of_parameters: list[Tensor] = field(init=False)

    def run(self) -> None:
        """Fill ``of_tables`` and ``of_parameters``."""
        self.of_tables = [
            torch.zeros_like(t, memory_format=torch.contiguous_format) if needed else None
            for t, needed in zip(self.tables, self.needed, strict=True)
        ]
        parameters = list({id(p): p for part in self.parts for p in part.parameters}.values())
        self._position = {id(p): i for i, p in enumerate(parameters)}
        N = self.shape.base
        self._base_grads = self._grads_of_base()
        self._total = [torch.zeros_like(p) for p in parameters]
        for work, number in ((self._pairs, self.shape.pairs), (self._base, N)):
            shares = len(self.shares(number))
            self._of_share = [[torch.zeros_like(p) for p in parameters] for _ in range(shares)]
            self._shared = [self._shared_rows() for _ in range(shares)]
            self.over_shares(work, number)
            for share in range(shares):
                for total, one in zip(self._total, self._of_share[share], strict=True):
                    total += one
                for table, rows in self._shared[share].items():
                    of_table = self.of_tables[table]
                    assert of_table is not None
                    of_table[: len(rows)] += rows
        self.of_parameters = self._total

    def _shared_rows(self) -> dict[int, Tensor]:
        """A share's own sums for rows that several shares add to."""
        shared: dict[int, int] = {}
        for part in self.parts:
            for source in part.inputs:
                if source.index is not None and self.needed[source.table]:
                    shared[source.table] = max(source.shared, shared.get(source.table, 0))
        return {table: torch.zeros_like(self.tables[table][:number]) for table, number in shared.items()}

    def _grads_of_base(self) -> list[Tensor]:
        """For every term, the gradient of its base rows: theirs, and that of the pairs which stand in for them."""
        N = self.shape.base
        own = self.grad[:N]
        grads = []
        for part in self.parts:
            if part.place is None:
                grads.append(own)
                continue
            assert self.shape.nodes is not None
            missing = _missing(part.place, self.shape.pairs)
            grads.append(own.clone())
            add_rows(grads[-1], self.shape.nodes[missing], self.grad.index_select(0, missing + N))
        return grads

    def _pairs(self, share: int, first: int, last: int) -> None:
        N = self.shape.base
        for i, part in enumerate(self.parts):
            for span in self.blocks(*part.pairs_between(first, last)):
                rows = slice(N + span.start, N + span.stop)
                if part.place is None:
                    self._block(share, i, rows, Taken(self.grad[rows]))
                else:
                    self._block(share, i, rows, Taken(self.grad, part.place[span], N))

    def _base(self, share: int, first: int, last: int) -> None:
        for span in self.blocks(first, last):
            for i, grad in enumerate(self._base_grads):
                self._block(share, i, span, Taken(grad[span]))

    def _block(self, share: int, number: int, span: slice, of_rows: Taken) -> None:
        part, update, packed = self.parts[number], self.updates[number], self.packed[number]
        if update is not None:
            into = [self._into(share, source, span) for source in part.inputs]
            found: Iterable[tuple[Tensor, Tensor]] = update.backward(
                packed, self.taken(part, span), span.stop - span.start, of_rows, into
            )
        else:
            grad = of_rows.table
            if of_rows.index is not None:
                grad = grad.index_select(0, of_rows.index + of_rows.shift)
            if part.function is None:
                self._add(share, part.inputs[0], span, grad)
                return
            found = self._through_graph(share, number, span, grad)
        for parameter, value in found:
            if parameter.requires_grad:
                self._of_share[share][self._position[id(parameter)]] += value

    def _through_graph(self, share: int, number: int, span: slice, grad: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
        """Add the gradients of a block's inputs by its graph, and give those of the parameters."""
        part = self.parts[number]
        inputs, rows = self.graph(part, span) if self.graphs is None else self.graphs.pop((number, span.start))
        if not rows.requires_grad:
            return []
        leaves = [x for x in inputs if x.requires_grad]
        wanted = [*leaves, *part.parameters]
        values = iter(torch.autograd.grad(rows, wanted, grad.to(rows.dtype), allow_unused=True))
        for source, x in zip(part.inputs, inputs, strict=True):
            if x.requires_grad:
                self._add(share, source, span, next(values))
        return [(p, value) for p, value in zip(part.parameters, values, strict=True) if value is not None]

    def _into(self, share: int, source: Input, span: slice) -> Into:
        of_table = self.of_tables[source.table]
        if of_table is None:
            return Into(None)
        if source.index is None:
            return Into(of_table[span])
        return Into(of_table, source.index[span], self._shared[share][source.table])

    def _add(self, share: int, source: Input, span: slice, value: Tensor | None) -> None:
        of_table = self.of_tables[source.table]
        if of_table is None or value is None:
            return
        if source.index is None:
            of_table[span] += value
        else:
            shared = self._shared[share][source.table]
            add_split(shared, of_table, source.index[span], value)


def _missing(place: Tensor, number: int) -> Tensor:
    """Positions below ``number`` that are not among ``place``."""
    absent = torch.ones(number, dtype=torch.bool, device=place.device)
    absent[place] = False
    return absent.nonzero().squeeze(1)
