"""As many training batches as are asked for, however few an epoch has."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from dglcell.data.datamodule import StrainDataModule, StrainNumbers
from dglcell.data.dataset import EpochBatches


class RepeatedEpochs(Sampler[Tensor]):
    """The first batches of one epoch after the other, each in an order of its own.

    Args:
        epoch: batches of an epoch.
        number: of batches.
    """

    def __init__(self, epoch: EpochBatches, number: int) -> None:
        self.epoch, self.number = epoch, number

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Iterator[Tensor]:
        return itertools.islice(self._all(), self.number)

    def _all(self) -> Iterator[Tensor]:
        for epoch in itertools.count():
            self.epoch.set_epoch(epoch)
            yield from self.epoch


class RepeatedData(StrainDataModule):
    """A data module whose training epoch is so many batches long.

    Attributes:
        number: of batches.
    """

    number = 0

    def train_dataloader(self) -> DataLoader[StrainNumbers]:
        """Shuffled batches of the training part, over several epochs."""
        loader = super().train_dataloader()
        assert isinstance(loader.sampler, EpochBatches)
        batches = RepeatedEpochs(loader.sampler, self.number)
        return DataLoader(loader.dataset, sampler=batches, batch_size=None, pin_memory=loader.pin_memory)
