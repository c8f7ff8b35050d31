"""In which order a streamed part is read: a pure function of seed and epoch, the same for every number of ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Segment:
    """Strains of an epoch that lie in one window.

    Attributes:
        window: its number.
        blocks: store blocks of the window, in the order in which they are put together.
        size: strains of the part in these blocks.
        chosen: which of the window's strains, as places in its order, are wanted.
    """

    window: int
    blocks: Numbers
    size: int
    chosen: Numbers


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
        its end, as in ``EpochBatches``.

        Args:
            epoch: from 0.
            rank: of this process.
            world_size: number of processes.
            skip: how many of this rank's strains to leave out at the beginning.
        """
        missing = min(-len(self) % world_size, len(self))
        windows = self.windows(epoch)
        sizes = [int(self.counts[blocks].sum()) for blocks in windows]
        starts = np.cumsum([0, *sizes])
        passes = [(len(self), 0), (missing, len(self))] if missing else [(len(self), 0)]
        begin = rank + world_size * skip
        for strains, shift in passes:
            for window, blocks in enumerate(windows):
                first, last = int(starts[window]) + shift, min(int(starts[window + 1]), strains) + shift
                start = max(first, begin)
                start += (rank - start) % world_size
                if start < last:
                    chosen = np.arange(start - first, last - first, world_size)
                    yield Segment(window, blocks, sizes[window], chosen)

    def _permutation(self, size: int, epoch: int, of: str) -> Numbers:
        digest = hashlib.sha256(f"{self.seed} {epoch} {of}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        return torch.randperm(size, generator=generator).numpy()
