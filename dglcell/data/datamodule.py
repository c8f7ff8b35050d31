"""Feed strain numbers to the trainer; batches are gathered on the device from the resident data set."""

from __future__ import annotations

from typing import NamedTuple

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dglcell.data.dataset import EpochBatches
from dglcell.data.strains import Strains


class StrainNumbers(NamedTuple):
    """A loader yields strain numbers on the host, in a tuple, whose tensors are pinned by loaders."""

    strains: Tensor  #: [B] int64
    num_genes: int  #: P
    fillers: int = 0  #: how many of the last strains only make the ranks' batches equally long


class _Numbers(Dataset[StrainNumbers]):
    """Map a batch of ``EpochBatches`` to its strains, deletions and fillers."""

    def __init__(self, offsets: Tensor) -> None:
        self.counts = offsets.diff()

    def __getitem__(self, strains: Tensor) -> StrainNumbers:
        is_filler = strains < 0
        strains = torch.where(is_filler, -1 - strains, strains)
        return StrainNumbers(strains, int(self.counts[strains].sum()), int(is_filler.sum()))


class StrainDataModule(pl.LightningDataModule):
    """Offer the parts of a split as loaders of strain numbers; the first epoch begins with its batch ``first_batch``.

    Args:
        dataset: all strains, on the host; moved to the device of a rank once.
        parts: part name (``train``, ``validation``, ``test``) → [n] int64 strain numbers.
        batch_size, eval_batch_size: B in training and in evaluation, per rank.
        seed: seed of the training order.
    """

    def __init__(
        self, dataset: Strains, parts: dict[str, Tensor], *, batch_size: int, eval_batch_size: int, seed: int
    ) -> None:
        super().__init__()
        self.dataset, self.parts = dataset, parts
        self.batch_size, self.eval_batch_size, self.seed = batch_size, eval_batch_size, seed
        self.first_batch = 0
        self._resident = dataset
        self._numbers = _Numbers(dataset.offsets)

    def train_dataloader(self) -> DataLoader[StrainNumbers]:
        """Return shuffled batches of the training part."""
        return self.loader("train", shuffle=True)

    def val_dataloader(self) -> DataLoader[StrainNumbers]:
        """Return batches of the validation part, in order."""
        return self.loader("validation", shuffle=False)

    def loader(self, part: str, *, shuffle: bool) -> DataLoader[StrainNumbers]:
        """Return a loader over one part, for this rank."""
        batches = EpochBatches(
            self.parts[part],
            self.batch_size if shuffle else self.eval_batch_size,
            shuffle=shuffle,
            seed=self.seed,
            rank=self.trainer.global_rank if self.trainer else 0,
            world_size=self.trainer.world_size if self.trainer else 1,
        )
        if shuffle:
            batches.first = self.first_batch
        return DataLoader(
            self._numbers,
            sampler=batches,
            batch_size=None,
            pin_memory=torch.cuda.is_available(),
            # The loader has its own generator: else it would draw from torch's, and once more when a run continues.
            generator=torch.Generator(),
        )

    def transfer_batch_to_device(self, batch: StrainNumbers, device: torch.device, dataloader_idx: int) -> Strains:
        """Gather the strains on the device; fillers have no labels, so that they count for nothing."""
        if self._resident.device != device:
            self._resident = self.dataset.to(device)
        # On a GPU a batch has as many genes as its strains may have, so that shapes do not change.
        size = batch.num_genes if device.type == "cpu" else len(batch.strains) * self.dataset.max_deletions
        taken = self._resident.take(batch.strains.to(device, non_blocking=True), size)
        for labels in taken.phenotypes.values():
            labels[len(labels) - batch.fillers :] = torch.nan
        return taken
