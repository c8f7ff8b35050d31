"""Which strains make up each batch: a pure function of seed, epoch and rank."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import Sampler


class EpochBatches(Sampler[Tensor]):
    """Batches of strain numbers, shuffled anew every epoch.

    Every rank gets the same number of batches. In training the strains are topped up with the first ones of the
    epoch's order where they do not divide evenly; in evaluation (``shuffle=False``) none is seen twice, and batches may
    be smaller than ``batch_size``, even empty where there are fewer strains than ranks.

    Args:
        strains: [n] int64 strain numbers of the part, on the host.
        batch_size: B on this rank.
        shuffle: whether the order changes by epoch.
        seed: of the order.
        rank: of this process.
        world_size: number of processes.

    Attributes:
        epoch: that the next pass belongs to.
        first: batch that the next pass begins with; the passes after it are whole.
    """

    def __init__(
        self, strains: Tensor, batch_size: int, *, shuffle: bool, seed: int, rank: int = 0, world_size: int = 1
    ) -> None:
        self.strains, self.batch_size, self.shuffle, self.seed = strains, batch_size, shuffle, seed
        self.rank, self.world_size = rank, world_size
        self.epoch = 0
        self.first = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; Lightning calls this."""
        self.epoch = epoch

    def __len__(self) -> int:
        # Of rank 0, which has the most strains: ranks that stop early would leave the others waiting.
        return max(1, math.ceil(math.ceil(len(self.strains) / self.world_size) / self.batch_size))

    def __iter__(self) -> Iterator[Tensor]:
        order = self.strains
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
            order = order[torch.randperm(len(order), generator=generator)]
        mine = self._of_this_rank(order)
        batches = mine.split(self.batch_size) if self.shuffle else mine.tensor_split(len(self))
        first, self.first = self.first, 0
        yield from batches[first:]

    def _of_this_rank(self, order: Tensor) -> Tensor:
        if self.shuffle and len(order) % self.world_size:
            order = torch.cat([order, order[: self.world_size - len(order) % self.world_size]])
        return order[self.rank :: self.world_size]
