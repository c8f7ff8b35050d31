"""How the rows of a sum of row-wise functions are dealt and cut: in blocks that fit the cache, over all threads.

Every thread works on blocks of its own with operators that use one thread: small operators scale badly when each is
cut among threads. For the backward pass either each block's graph is kept, or the inputs alone, from which the block
is computed once more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dglcell.kernels.chain import RowUpdate
from dglcell.kernels.threads import run_tasks
from dglcell.kernels.update import Taken

BLOCK_BYTES = {"cpu": 1 << 20, "cuda": 1 << 28}
"""Size of a block of the widest input, or of what lies between where that is wider: small enough for the cache of a
CPU, large enough to fill a GPU."""

SHARES = {"cpu": 8, "cuda": 1}
"""Into how many shares the rows are dealt. Fixed, so that the result is the same for any number of threads."""

ROWS_PER_SHARE = 1024


@dataclass(frozen=True)
class Shape:
    """Rows of a sum: N base rows, then K pairs.

    Attributes:
        base: N; 0 where every row stands for itself.
        pairs: K.
        nodes: [K] int64 base row of every pair; None where N is 0.
    """

    base: int
    pairs: int
    nodes: Tensor | None = None


@dataclass(frozen=True)
class Input:
    """An argument of a function: see ``dglcell.perturbation.row_wise.Rows``, with its table given by position."""

    table: int
    index: Tensor | None
    shared: int


@dataclass(frozen=True)
class Part:
    """A term of the sum: see ``dglcell.perturbation.row_wise.Term``."""

    function: Callable[..., Tensor] | None
    inputs: Sequence[Input]
    parameters: Sequence[nn.Parameter]
    place: Tensor | None
    compiled: RowUpdate | None = None
    width: int = 0

    def evaluate(self, inputs: Sequence[Tensor]) -> Tensor:
        """The term's rows."""
        return inputs[0] if self.function is None else self.function(*inputs)

    def pairs_between(self, first: int, last: int) -> tuple[int, int]:
        """Which of its pairs are between two of the sum's."""
        if self.place is None:
            return first, last
        low, high = torch.searchsorted(self.place, torch.tensor([first, last], device=self.place.device)).tolist()
        return low, high


Graph = tuple[list[Tensor], Tensor]
"""Inputs of a block that are leaves, and its rows."""


@dataclass
class Blocks:
    """What both directions of the sum share.

    Attributes:
        parts: what is summed.
        tables: that their inputs are rows of.
        shape: of the result.
        autocast: as in the forward pass.
        needed: which tables need gradients.
        updates: for every part, its compiled update where that is used.
        graphs: blocks kept for the backward pass, by part and first row; None to compute them once more.
    """

    parts: Sequence[Part]
    tables: Sequence[Tensor]
    shape: Shape
    autocast: tuple[str, torch.dtype, bool]
    needed: Sequence[bool]
    updates: Sequence[RowUpdate | None]
    graphs: dict[tuple[int, int], Graph] | None

    def __post_init__(self) -> None:
        dtype = self.tables[0].dtype
        self.packed = [None if update is None else update.pack(dtype) for update in self.updates]

    @property
    def device(self) -> torch.device:
        """Of all tables."""
        return self.tables[0].device

    def taken(self, part: Part, span: slice) -> list[Taken]:
        """Rows of the arguments, for a compiled update."""
        return [
            Taken(
                self.tables[i.table],
                None if i.index is None else i.index[span],
                0 if i.index is not None else span.start,
            )
            for i in part.inputs
        ]

    def rows_of(self, source: Input, span: slice) -> Tensor:
        """Rows of an argument."""
        table = self.tables[source.table]
        return table[span] if source.index is None else table.index_select(0, source.index[span])

    def graph(self, part: Part, span: slice) -> Graph:
        """A block with its graph."""
        inputs = [
            self.rows_of(source, span).detach().requires_grad_(self.needed[source.table]) for source in part.inputs
        ]
        with torch.enable_grad():
            return inputs, part.evaluate(inputs)

    def shares(self, number: int) -> list[tuple[int, int]]:
        """So many rows, dealt."""
        shares = max(1, min(SHARES.get(self.device.type, 1), number // ROWS_PER_SHARE))
        cuts = [number * i // shares for i in range(shares + 1)]
        return list(itertools.pairwise(cuts))

    def blocks(self, first: int, last: int) -> Iterator[slice]:
        """The rows of a share, cut."""
        widths = [part.width for part, update in zip(self.parts, self.updates, strict=True) if update is None]
        limit = rows_in_block(self.tables, max([0, *widths]))
        number = -(-(last - first) // limit)
        for i in range(number):
            yield slice(first + (last - first) * i // number, first + (last - first) * (i + 1) // number)

    def over_shares(self, work: Callable[[int, int, int], None], number: int) -> None:
        """Call ``work(share, first, last)`` for all shares of so many rows, over all threads."""
        threads = torch.get_num_threads()
        # Each thread has modes of its own.
        inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

        def alone(share: int, first: int, last: int) -> None:
            torch.set_num_threads(1)
            with torch.inference_mode(inference), torch.set_grad_enabled(gradients), autocast_as(self.autocast):
                work(share, first, last)

        shares = [(i, *bounds) for i, bounds in enumerate(self.shares(number))]
        if self.device.type != "cpu" or threads == 1:
            with autocast_as(self.autocast):
                for bounds in shares:
                    work(*bounds)
            return
        try:
            run_tasks(alone, shares)
        finally:
            torch.set_num_threads(threads)


def rows_in_block(tables: Sequence[Tensor], width: int = 0) -> int:
    """How many rows of these tables, with as many numbers between input and output as ``width``, make a block."""
    row_bytes = max(max(table.shape[1], width) * table.element_size() for table in tables)
    return max(1, BLOCK_BYTES.get(tables[0].device.type, 1 << 28) // row_bytes)


def compiled_updates(
    parts: Sequence[Part], tables: Sequence[Tensor], autocast: tuple[str, torch.dtype, bool]
) -> list[RowUpdate | None]:
    """The compiled updates that can be used."""
    even = not autocast[2] and all(t.dtype == tables[0].dtype and t.is_contiguous() for t in tables)
    return [
        part.compiled
        if even and part.compiled is not None and part.compiled.applies([tables[i.table] for i in part.inputs])
        else None
        for part in parts
    ]


def autocast_now(device_type: str) -> tuple[str, torch.dtype, bool]:
    """The state of autocast on a device: its type, the dtype, and whether it is on."""
    return device_type, torch.get_autocast_dtype(device_type), torch.is_autocast_enabled(device_type)


def autocast_as(state: tuple[str, torch.dtype, bool]) -> AbstractContextManager[Any]:
    """Autocast as `autocast_now` found it."""
    device_type, dtype, enabled = state
    # Weights that were rounded where gradients are off must not be taken from the cache where they are on.
    return torch.autocast(device_type, dtype=dtype, enabled=enabled, cache_enabled=False)
