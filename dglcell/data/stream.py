"""Strains that are read from their store as they are needed, in shuffled windows, by several threads."""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.data.blocks import PHENOTYPE, Block
from dglcell.data.partition import Parts
from dglcell.data.store import Store

# In which order a streamed part is read: a pure function of seed and epoch, the same for every number of ranks.


Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Segment:
    """Strains of an epoch that lie in one window.

    Attributes:
        window: its number.
        blocks: store blocks of the window, in the order in which they are put together.
        size: strains of the part in these blocks.
        chosen: which of the window's strains, as places in its order, are wanted.
        fills: whether they come again, only to give every rank as many strains.
    """

    window: int
    blocks: Numbers
    size: int
    chosen: Numbers
    fills: bool


@dataclass(frozen=True)
class StreamOrder:
    """The order of the n strains of one part in each epoch.

    Blocks are shuffled and put together to windows of about ``window`` strains, the last of whose blocks may exceed
    it; the strains of a window are shuffled. So strains that are far apart in the store meet in a batch, though no more
    than a window is in memory.

    Args:
        counts: [K] strains of the part in each block of the store.
        window: strains that are shuffled together.
        seed: of the order.
    """

    counts: Numbers
    window: int
    seed: int

    def __len__(self) -> int:
        return self._strains

    @cached_property
    def _strains(self) -> int:
        return int(self.counts.sum())

    def windows(self, epoch: int) -> list[Numbers]:
        """The blocks of each window of an epoch; blocks without a strain of the part are left out."""
        blocks = np.flatnonzero(self.counts)
        blocks = blocks[self._permutation(len(blocks), epoch, "blocks")]
        before = np.cumsum(self.counts[blocks]) - self.counts[blocks]
        window = before // self.window
        return np.split(blocks, np.flatnonzero(np.diff(window)) + 1) if len(blocks) else []

    def shuffle(self, segment: Segment, epoch: int) -> Numbers:
        """Where the chosen strains of a window stand among those of its blocks, put together as they come."""
        return self._permutation(segment.size, epoch, str(segment.window))[segment.chosen]

    def segments(self, epoch: int, rank: int = 0, world_size: int = 1, skip: int = 0) -> Iterator[Segment]:
        """What one rank reads, in order: every ``world_size``-th strain of the epoch.

        All ranks get equally many: where the strains do not divide evenly, the first ones of the epoch come again at
        its end as fillers, as in ``EpochBatches``.

        Args:
            epoch: from 0.
            rank: of this process.
            world_size: number of processes.
            skip: how many of this rank's strains to leave out at the beginning.
        """
        windows = self.windows(epoch)
        sizes = [int(self.counts[blocks].sum()) for blocks in windows]
        starts = np.cumsum([0, *sizes])
        end = len(self) + -len(self) % world_size
        begin = rank + world_size * skip
        for shift in range(0, end, len(self)):
            for window, blocks in enumerate(windows):
                first, last = int(starts[window]) + shift, min(int(starts[window + 1]) + shift, end)
                start = max(first, begin)
                start += (rank - start) % world_size
                if start < last:
                    chosen = np.arange(start - first, last - first, world_size)
                    yield Segment(window, blocks, sizes[window], chosen, fills=shift > 0)

    def _permutation(self, size: int, epoch: int, of: str) -> Numbers:
        digest = hashlib.sha256(f"{self.seed} {epoch} {of}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        return torch.randperm(size, generator=generator).numpy()


Input = TypeVar("Input")
Output = TypeVar("Output")


class Strains(NamedTuple):
    """Some strains, on the host.

    Attributes:
        genes: [P] int32 gene indices of the cell graph, strain by strain.
        counts: [n] int64 deletions of each strain.
        labels: [n, T] float32.
        rows: [n] int64 the strains' numbers in the store.
    """

    genes: Tensor
    counts: Tensor
    labels: Tensor
    rows: Tensor

    @property
    def num_strains(self) -> int:
        """n."""
        return len(self.counts)

    def split(self, sizes: Sequence[int]) -> list[Strains]:
        """Consecutive strains, so many at a time; views."""
        ends = torch.cat([self.counts.new_zeros(1), self.counts.cumsum(0)])
        deletions = ends[np.cumsum([0, *sizes])].diff().tolist()
        columns = (self.genes.split(deletions), *(x.split(list(sizes)) for x in self[1:]))
        return [Strains(*parts) for parts in zip(*columns, strict=True)]

    @staticmethod
    def join(pieces: Sequence[Strains]) -> Strains:
        """The strains of all pieces, one after the other."""
        return pieces[0] if len(pieces) == 1 else Strains(*map(torch.cat, zip(*pieces, strict=True)))


@dataclass(frozen=True)
class BlockReader:
    """Turns blocks of a store into strains of a cell graph.

    Attributes:
        store: the strains on disk.
        mapping: [names of the store] int32 gene index of the cell graph; −1 where it lacks the gene.
        phenotypes: the T phenotypes that are wanted.
    """

    store: Store
    mapping: NDArray[np.int32]
    phenotypes: tuple[str, ...]
    _label_rows: list[int] = field(init=False)
    _starts: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        row = {label: i for i, label in enumerate(self.store.meta.layout.labels)}
        object.__setattr__(self, "_label_rows", [row[PHENOTYPE, name] for name in self.phenotypes])
        object.__setattr__(self, "_starts", np.cumsum([0, *self.store.meta.blocks]))

    def read(self, blocks: Iterable[int], wanted: Callable[[slice], NDArray[np.bool_] | None]) -> list[Strains]:
        """The wanted strains of some blocks, a piece for each block.

        Args:
            blocks: their numbers.
            wanted: numbers of a block's strains in the store → which of them; None for all.

        Raises:
            DataError: a block is damaged.
        """
        numbers = list(blocks)
        return [self._strains(n, found, wanted) for n, found in zip(numbers, self.store.blocks(numbers), strict=True)]

    def _strains(self, number: int, block: Block, wanted: Callable[[slice], NDArray[np.bool_] | None]) -> Strains:
        here = slice(int(self._starts[number]), int(self._starts[number + 1]))
        keep = wanted(here)
        genes, counts, labels = block.genes, block.counts, block.labels[self._label_rows]
        rows = np.arange(here.start, here.stop)
        if keep is not None and not keep.all():
            genes, counts, labels, rows = genes[np.repeat(keep, counts)], counts[keep], labels[:, keep], rows[keep]
        return Strains(
            torch.from_numpy(self.mapping[genes]),
            torch.from_numpy(counts.astype(np.int64)),
            torch.from_numpy(np.ascontiguousarray(labels.T, dtype=np.float32)),
            torch.from_numpy(rows),
        )


@dataclass(frozen=True)
class StrainStream:
    """One part of a split, read from disk.

    Attributes:
        reader: of the store.
        part: [S] the part of each strain of the store.
        code: of the part that is streamed.
        order: of its strains.
        max_deletions: most deletions of any of them.
        readers: threads that read ahead; each holds a window, and so does the caller.
    """

    reader: BlockReader
    part: Parts
    code: int
    order: StreamOrder
    max_deletions: int
    readers: int

    def __len__(self) -> int:
        return len(self.order)

    def batches(
        self, epoch: int, batch_size: int, rank: int = 0, world_size: int = 1, first: int = 0
    ) -> Iterator[Strains]:
        """The batches of one rank in an epoch, from the ``first`` on.

        Raises:
            DataError: a block is damaged, or the store was built anew.
        """
        segments = self.order.segments(epoch, rank, world_size, skip=first * batch_size)
        pieces: list[Strains] = []
        room = batch_size
        for window in in_order(lambda segment: self.read(segment, epoch), segments, self.readers):
            sizes = _cut(window.num_strains, room, batch_size)
            for piece in window.split(sizes):
                pieces.append(piece)
                room -= piece.num_strains
                if room == 0:
                    yield Strains.join(pieces)
                    pieces, room = [], batch_size
        if pieces:
            yield Strains.join(pieces)

    def read(self, segment: Segment, epoch: int) -> Strains:
        """The chosen strains of a window, shuffled; without labels where they only fill up."""
        found = Strains.join(self.reader.read(segment.blocks.tolist(), lambda here: self.part[here] == self.code))
        chosen = torch.from_numpy(self.order.shuffle(segment, epoch))
        counts = found.counts[chosen]
        ends = counts.cumsum(0)
        shift = (found.counts.cumsum(0) - found.counts)[chosen] - (ends - counts)
        positions = torch.arange(int(ends[-1])) + shift.repeat_interleave(counts)
        labels = found.labels[chosen]
        if segment.fills:
            labels.fill_(torch.nan)
        return Strains(found.genes[positions], counts, labels, found.rows[chosen])


def _cut(strains: int, room: int, size: int) -> list[int]:
    """Sizes of pieces: first what is missing in a batch, then whole batches, then the rest."""
    head = min(room, strains)
    whole, rest = divmod(strains - head, size)
    return [head, *([size] * whole), *([rest] if rest else [])]


def in_order(work: Callable[[Input], Output], items: Iterable[Input], threads: int) -> Iterator[Output]:
    """``map`` with threads that work ahead, one item each, and no more."""
    remaining = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[Output]] = deque(pool.submit(work, item) for item in itertools.islice(remaining, threads))
        try:
            while ahead:
                done = ahead.popleft().result()
                ahead.extend(pool.submit(work, item) for item in itertools.islice(remaining, 1))
                yield done
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
