"""Feeds strain numbers to the trainer: of resident strains, or of strains read from disk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from dglcell.data.dataset import EpochBatches, StrainBatch, StrainDataset
from dglcell.data.stream import Strains, StrainStream
from dglcell.perturbation.genotype import GenotypeBatch

# Feeds strain numbers to the trainer; the batch itself is gathered on the device from the resident data set.


class StrainNumbers(NamedTuple):
    """What a loader yields: strain numbers on the host and how many genes they delete in total.

    A tuple, because loaders pin and Lightning converts the tensors of tuples.

    Attributes:
        strains: [B] int64.
        num_genes: P.
        fillers: how many of the last strains only make the ranks' batches equally long.
    """

    strains: Tensor
    num_genes: int
    fillers: int = 0


class _Numbers(Dataset[StrainNumbers]):
    """Maps a batch of ``EpochBatches`` to its strains, deletions and fillers."""

    def __init__(self, offsets: Tensor) -> None:
        self.counts = offsets.diff()

    def __getitem__(self, strains: Tensor) -> StrainNumbers:
        is_filler = strains < 0
        strains = torch.where(is_filler, -1 - strains, strains)
        return StrainNumbers(strains, int(self.counts[strains].sum()), int(is_filler.sum()))


class StrainDataModule(pl.LightningDataModule):
    """The parts of a split as loaders of strain numbers.

    Args:
        dataset: all strains, on the host; moved to the device of a rank once.
        parts: part name (``train``, ``validation``, ``test``) → [n] int64 strain numbers.
        batch_size: B in training, per rank.
        eval_batch_size: B in evaluation, per rank.
        seed: of the training order.

    Attributes:
        first_batch: of the first epoch, where a run continues in the middle of one.
    """

    def __init__(
        self, dataset: StrainDataset, parts: dict[str, Tensor], *, batch_size: int, eval_batch_size: int, seed: int
    ) -> None:
        super().__init__()
        self.dataset, self.parts = dataset, parts
        self.batch_size, self.eval_batch_size, self.seed = batch_size, eval_batch_size, seed
        self.first_batch = 0
        self._resident = dataset
        self._numbers = _Numbers(dataset.offsets)

    def train_dataloader(self) -> DataLoader[StrainNumbers]:
        """Shuffled batches of the training part."""
        return self.loader("train", shuffle=True)

    def val_dataloader(self) -> DataLoader[StrainNumbers]:
        """Batches of the validation part, in order."""
        return self.loader("validation", shuffle=False)

    def test_dataloader(self) -> DataLoader[StrainNumbers]:
        """Batches of the test part, in order."""
        return self.loader("test", shuffle=False)

    def loader(self, part: str, *, shuffle: bool) -> DataLoader[StrainNumbers]:
        """A loader over one part, for this rank."""
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
            # Of its own: it would draw from torch's, and a run that continues would draw once more.
            generator=torch.Generator(),
        )

    def rows(self, strains: list[int]) -> list[int]:
        """Numbers in the store of strains of training batches."""
        rows: list[int] = self.dataset.rows[strains].tolist()
        return rows

    def transfer_batch_to_device(self, batch: StrainNumbers, device: torch.device, dataloader_idx: int) -> StrainBatch:
        """Copy a few kilobytes of strain numbers and gather genotypes and labels on the device.

        Fillers have no labels: so they count for nothing in losses, gradients and metrics.
        """
        if self._resident.device != device:
            self._resident = self.dataset.to(device)
        size = genes_in_batch(len(batch.strains), batch.num_genes, self.dataset.max_deletions, device)
        gathered = self._resident.gather(batch.strains.to(device, non_blocking=True), size)
        gathered.labels[len(gathered.labels) - batch.fillers :] = torch.nan
        return gathered


def genes_in_batch(strains: int, genes: int, max_deletions: int, device: torch.device) -> int:
    """How many entries a batch's genes have: on a GPU as many as B strains can delete, so that shapes do not change."""
    return genes if device.type == "cpu" else strains * max_deletions


# Feeds streamed training strains to the trainer; validation and test are resident.


class StreamedBatches(Sampler[Strains]):
    """The batches of one rank, read from disk, in another order every epoch.

    Every rank gets as many strains, as from ``EpochBatches``; fillers have no labels.

    Args:
        stream: the training part.
        batch_size: B on this rank.
        rank: of this process.
        world_size: number of processes.

    Attributes:
        epoch: that the next pass belongs to.
        first: batch that the next pass begins with; the passes after it are whole.
    """

    def __init__(self, stream: StrainStream, batch_size: int, *, rank: int = 0, world_size: int = 1) -> None:
        self.stream, self.batch_size = stream, batch_size
        self.rank, self.world_size = rank, world_size
        self.epoch = 0
        self.first = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; Lightning calls this."""
        self.epoch = epoch

    def __len__(self) -> int:
        return math.ceil(math.ceil(len(self.stream) / self.world_size) / self.batch_size)

    def __iter__(self) -> Iterator[Strains]:
        first, self.first = self.first, 0
        yield from self.stream.batches(self.epoch, self.batch_size, self.rank, self.world_size, first)


class _AsTheyAre(Dataset[Strains]):
    """Gives every batch back."""

    def __getitem__(self, strains: Strains) -> Strains:
        return strains


class StreamedDataModule(StrainDataModule):
    """The training part from a stream, the others from memory.

    Args:
        stream: the training part.
        resident: the strains of the other parts, on the host.
        parts: part name → [n] int64 strain numbers of ``resident``.
        batch_size: B in training, per rank.
        eval_batch_size: B in evaluation, per rank.
        seed: of everything but the stream, which has its own.
    """

    def __init__(
        self,
        stream: StrainStream,
        resident: StrainDataset,
        parts: dict[str, Tensor],
        *,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
    ) -> None:
        super().__init__(resident, parts, batch_size=batch_size, eval_batch_size=eval_batch_size, seed=seed)
        self.stream = stream

    def train_dataloader(self) -> DataLoader[Strains]:  # type: ignore[override]
        """Shuffled batches of the training part."""
        rank, world_size = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        batches = StreamedBatches(self.stream, self.batch_size, rank=rank, world_size=world_size)
        batches.first = self.first_batch
        return DataLoader(
            _AsTheyAre(),
            sampler=batches,
            batch_size=None,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),
        )

    def rows(self, strains: list[int]) -> list[int]:
        """Numbers in the store of strains of training batches, which are named by these."""
        return strains

    def transfer_batch_to_device(
        self, batch: StrainNumbers | Strains, device: torch.device, dataloader_idx: int
    ) -> StrainBatch:
        """Copy strains, or a few kilobytes of strain numbers, to the device."""
        if isinstance(batch, StrainNumbers):
            return super().transfer_batch_to_device(batch, device, dataloader_idx)
        return to_batch(batch, self.stream.max_deletions, device)


def to_batch(strains: Strains, max_deletions: int, device: torch.device) -> StrainBatch:
    """The strains as a batch on a device, without synchronisation; they are named by their numbers in the store."""
    genes, counts, labels, rows = (x.to(device, non_blocking=True) for x in strains)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    fillers = genes_in_batch(len(counts), len(genes), max_deletions, device) - len(genes)
    genes = torch.nn.functional.pad(genes.long(), (0, fillers), value=-1)
    return StrainBatch(GenotypeBatch(genes, offsets, max_deletions), labels, rows)
