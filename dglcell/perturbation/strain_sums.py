"""Layers strain by strain: what a strain's nodes receive, and what they make of it, stays in the cache.

With all strains side by side every relation writes what is received to memory and reads it again, and so its gradient;
that takes longer than the arithmetic. The states of one strain fit in the cache of a core: it takes one relation after
the other and keeps nothing but their sum. For the backward pass products are taken once more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dglcell.graph.resident import CompactEdges, ResidentRelation
from dglcell.kernels.chain import RowUpdate, add_gradient
from dglcell.kernels.strain_product import Tile, fits, scratch_tensor, sum_tiles, tiles_of, whole_tiles
from dglcell.kernels.threads import run_tasks
from dglcell.kernels.update import Into, Taken, on_compiled_device

ROWS_WORTH, STRAINS_WORTH = 1024, 4
"""Nodes and strains below which the calls for each strain cost more than they save."""

SHARES = 64
"""Into how many shares the strains are dealt, at most. Fixed, so that sums are the same for any number of threads."""


@dataclass(frozen=True, eq=False)
class Message:
    """What nodes receive: ``scale · A · (keep · x)``.

    Attributes:
        edges: A.
        keep_NB: [N, B] bool of source nodes.
        scale_MB: [M, B], bool or a factor.
    """

    edges: ResidentRelation
    keep_NB: Tensor
    scale_MB: Tensor


@dataclass(frozen=True)
class Source:
    """An argument of a term: rows of a table, or what they send."""

    table: int
    message: Message | None = None


@dataclass(frozen=True)
class StrainTerm:
    """A term of the sum.

    Attributes:
        update: None for its argument as it is.
        sources: its arguments.
        parameters: of the update.
    """

    update: RowUpdate | None
    sources: Sequence[Source]
    parameters: Sequence[nn.Parameter] = ()


def worthwhile(terms: Sequence[StrainTerm], tables_BNH: Sequence[Tensor]) -> bool:
    """Whether the sum can be taken strain by strain, and is large enough."""
    if torch.is_autocast_enabled(tables_BNH[0].device.type) or not on_compiled_device(tables_BNH):
        return False
    if len(tables_BNH[0]) < STRAINS_WORTH or max(t.shape[1] for t in tables_BNH) < ROWS_WORTH:
        return False
    dtype = tables_BNH[0].dtype
    sent = [tables_BNH[s.table] for term in terms for s in term.sources if s.message is not None]
    return all(fits(x.shape[2], dtype) for x in sent) and all(
        term.update is None or term.update.applies([tables_BNH[s.table] for s in term.sources]) for term in terms
    )


def sum_by_strain(terms: Sequence[StrainTerm], tables_BNH: Sequence[Tensor]) -> Tensor:
    """[B, M, H] sum of terms, differentiable in the tables and in the parameters of updates.

    Args:
        terms: ``worthwhile`` ones, at least one of them an update; all H wide.
        tables_BNH: what their arguments are taken from.
    """
    parameters = list({id(p): p for term in terms for p in term.parameters}.values())
    out: Tensor = _StrainSums.apply(terms, len(tables_BNH), *(t.contiguous() for t in tables_BNH), *parameters)
    return out


class _StrainSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, terms: Sequence[StrainTerm], number: int, *tensors: Tensor) -> Tensor:
        ctx.terms, ctx.number, ctx.parameters = terms, number, tensors[number:]
        ctx.save_for_backward(*tensors[:number])
        work = _Work(terms, tensors[:number])
        first = terms[0].sources[0]
        rows = tensors[first.table].shape[1] if first.message is None else first.message.edges.num_dst
        out_BMH = tensors[0].new_empty(len(tensors[0]), rows, tensors[first.table].shape[2])
        work.over_strains(lambda share, strain: work.forward(strain, out_BMH[strain]))
        return out_BMH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BMH: Tensor) -> tuple[Tensor | None, ...]:
        tables, grad_BMH = ctx.saved_tensors, grad_BMH.contiguous()
        work = _Work(ctx.terms, tables)
        needed = ctx.needs_input_grad[2 : 2 + ctx.number]
        of_tables = [torch.zeros_like(t) if n else None for t, n in zip(tables, needed, strict=True)]
        position = {id(p): i for i, p in enumerate(ctx.parameters)}
        of_share = [[torch.zeros_like(p) for p in ctx.parameters] for _ in work.shares]

        def one(share: int, strain: int) -> None:
            into = [None if t is None else t[strain] for t in of_tables]
            for parameter, value in work.backward(strain, grad_BMH[strain], into):
                if id(parameter) in position:
                    of_share[share][position[id(parameter)]] += value

        work.over_strains(one)
        totals = [torch.zeros_like(p) for p in ctx.parameters]
        for values in of_share:
            for total, value in zip(totals, values, strict=True):
                total += value
        return None, None, *of_tables, *totals


@dataclass
class _Work:
    """Both directions, for one strain at a time."""

    terms: Sequence[StrainTerm]
    tables: Sequence[Tensor]

    def __post_init__(self) -> None:
        self.packed = [None if term.update is None else term.update.pack(self.dtype) for term in self.terms]
        self.keep_of_table = {
            source.table: source.message.keep_NB
            for term in self.terms
            for source in term.sources
            if source.message is not None
        }

    @property
    def dtype(self) -> torch.dtype:
        return self.tables[0].dtype

    @cached_property
    def shares(self) -> list[range]:
        """Strains, dealt."""
        strains = len(self.tables[0])
        number = min(strains, SHARES)
        cuts = [strains * i // number for i in range(number + 1)]
        return [range(*bounds) for bounds in itertools.pairwise(cuts)]

    def over_strains(self, work: Callable[[int, int], None]) -> None:
        """Call ``work(share, strain)`` for every strain, over all threads."""
        threads, inference = torch.get_num_threads(), torch.is_inference_mode_enabled()

        def share_of(share: int, strains: range) -> None:
            torch.set_num_threads(1)
            # Each thread has modes of its own.
            with torch.inference_mode(inference), torch.no_grad():
                for strain in strains:
                    work(share, strain)

        try:
            run_tasks(share_of, list(enumerate(self.shares)))
        finally:
            torch.set_num_threads(threads)

    def forward(self, strain: int, out_MH: Tensor) -> None:
        """Write a strain's sum."""
        tiles = self._tiles(strain)
        for number, (term, packed) in enumerate(zip(self.terms, self.packed, strict=True)):
            inputs = [self._rows(source, i, strain, tiles) for i, source in enumerate(term.sources)]
            if term.update is not None:
                taken = [Taken(rows) for rows in inputs]
                term.update.forward(packed, taken, len(out_MH), Taken(out_MH), add=number > 0)
            elif number == 0:
                out_MH.copy_(inputs[0])
            else:
                out_MH += inputs[0]

    def backward(
        self, strain: int, grad_MH: Tensor, of_tables: Sequence[Tensor | None]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Add a strain's gradients to those of its tables, and give those of the parameters."""
        tiles = self._tiles(strain)
        sent = {
            table: self._scratch(f"sent {table}", tuple(self.tables[table].shape[1:])).zero_()
            for table in tiles
            if of_tables[table] is not None
        }
        for term, packed in zip(self.terms, self.packed, strict=True):
            inputs = [self._rows(source, i, strain, tiles) for i, source in enumerate(term.sources)]
            into = [
                self._into(source, i, x, of_tables)
                for i, (source, x) in enumerate(zip(term.sources, inputs, strict=True))
            ]
            if term.update is not None:
                taken = [Taken(rows) for rows in inputs]
                yield from term.update.backward(packed, taken, len(grad_MH), Taken(grad_MH), into)
            else:
                add_gradient(grad_MH, into[0])
            for source, target in zip(term.sources, into, strict=True):
                if source.message is not None and target.own is not None:
                    self._send_back(source.message, strain, target.own, sent[source.table])
        for table, of_sent in sent.items():
            of_sent[self._lost(table, strain)] = 0
            of_table = of_tables[table]
            assert of_table is not None
            of_table += of_sent

    def _tiles(self, strain: int) -> dict[int, list[Tile]]:
        """What the nodes of every table send, if anything."""
        return {
            table: tiles_of(self.tables[table][strain], self._lost(table, strain), f"tile {table}")
            for table in self.keep_of_table
        }

    def _lost(self, table: int, strain: int) -> Tensor:
        return (~self.keep_of_table[table][:, strain]).nonzero().squeeze(1)

    def _rows(self, source: Source, number: int, strain: int, tiles: dict[int, list[Tile]]) -> Tensor:
        """[M, H] an argument."""
        message = source.message
        if message is None:
            return self.tables[source.table][strain]
        out_MH = self._scratch(f"received {number}", (message.edges.num_dst, self.tables[source.table].shape[2]))
        sum_tiles(self._edges(message, transposed=False), tiles[source.table], out_MH, add=False)
        _scale(out_MH, message.scale_MB[:, strain])
        return out_MH

    def _into(self, source: Source, number: int, rows: Tensor, of_tables: Sequence[Tensor | None]) -> Into:
        """Where an argument's gradient is added; for what is received, zeros."""
        of_table = of_tables[source.table]
        if of_table is None or source.message is None:
            return Into(of_table)
        return Into(self._scratch(f"of received {number}", tuple(rows.shape)).zero_())

    def _send_back(self, message: Message, strain: int, of_received_MH: Tensor, of_sent_NH: Tensor) -> None:
        """Add the gradient of what was sent, given that of what was received."""
        _scale(of_received_MH, message.scale_MB[:, strain])
        tiles = whole_tiles(of_received_MH, "returned")
        sum_tiles(self._edges(message, transposed=True), tiles, of_sent_NH, add=True)

    def _edges(self, message: Message, *, transposed: bool) -> CompactEdges:
        return message.edges.compact(None if message.edges.weight is None else self.dtype, transposed=transposed)

    def _scratch(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return scratch_tensor(name, shape, self.dtype)


def _scale(rows_MH: Tensor, scale_M: Tensor) -> None:
    if scale_M.dtype == torch.bool:
        rows_MH[(~scale_M).nonzero().squeeze(1)] = 0
    else:
        rows_MH *= scale_M.unsqueeze(1)
