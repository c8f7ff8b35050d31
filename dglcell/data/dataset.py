"""The resident data set: integers and labels of every strain, gathered into batches on the device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Sampler

from dglcell.data.table import CLASSIFICATION, REGRESSION, StrainTable
from dglcell.errors import DataError, did_you_mean
from dglcell.graph.vocabulary import NameReport, Vocabulary, enforce_name_policy
from dglcell.perturbation.genotype import GenotypeBatch, strains_of

# The resident data set: integers and labels of every strain, gathered into batches on the device.


# Tens of millions of strains are worked on in pieces of so many entries, so that intermediates stay small.
PIECE = 2**20


@dataclass(frozen=True)
class StrainBatch:
    """B strains of a data set.

    Attributes:
        genotypes: their deleted genes.
        labels: [B, T] float32 in original units; NaN where missing.
        strains: [B] int64, their numbers in the data set.
    """

    genotypes: GenotypeBatch
    labels: Tensor
    strains: Tensor


@dataclass(frozen=True)
class StrainDataset:
    """S strains as index-only tensors on one device.

    Attributes:
        genes: [P] int32 gene indices of the cell graph, strain by strain.
        offsets: [S + 1] int64.
        labels: [S, T] float32; NaN where missing.
        phenotypes: T names.
        units: T units.
        max_deletions: most deletions of any strain.
        rows: [S] int64, the strain's number in the store.
        names: how the store's gene names met the cell graph's.
    """

    genes: Tensor
    offsets: Tensor
    labels: Tensor
    phenotypes: tuple[str, ...]
    units: tuple[str, ...]
    max_deletions: int
    rows: Tensor
    names: NameReport

    @classmethod
    def from_table(
        cls, table: StrainTable, vocabulary: Vocabulary, phenotypes: list[str] | None = None, unknown: str = "refuse"
    ) -> StrainDataset:
        """Map a strain table onto a cell graph's genes, checking it once and for all.

        Args:
            table: as read from a store.
            vocabulary: gene vocabulary of the cell graph.
            phenotypes: which columns are predicted; all where None.
            unknown: ``refuse`` strains with genes that the cell graph lacks, or ``drop`` them.

        Raises:
            GraphError: unknown genes under ``refuse``.
            DataError: a phenotype that the table lacks, a phenotype without labels, or no strain left.
        """
        chosen = check_phenotypes(table, phenotypes)
        genes = _translate(table.genes, vocabulary.indices(table.names))
        keep = np.ones(len(table), dtype=bool)
        lacking = np.flatnonzero(genes < 0)
        keep[np.searchsorted(table.offsets, lacking, side="right") - 1] = False
        unknown_names = tuple(sorted({table.names[i] for i in np.unique(table.genes[lacking])}))
        report = NameReport(len(table.names), unknown_names, rows_dropped=int((~keep).sum()))
        enforce_name_policy(report, unknown, where=f"store of '{table.provenance.source}'", key="data.unknown_genes")
        columns = [table.phenotypes[name].astype(np.float32, copy=False) for name in chosen]
        # One column is a matrix as it is.
        labels = np.stack(columns, axis=1) if len(columns) > 1 else columns[0][:, None]
        # A strain without any of the chosen labels has nothing to teach.
        keep &= ~np.logical_and.reduce([np.isnan(column) for column in columns])
        if not keep.any():
            refuse_nothing_left(len(table), report.rows_dropped)
        offsets = table.offsets
        if not keep.all():
            counts = table.num_deletions
            genes, labels = genes[np.repeat(keep, counts)], labels[keep]
            offsets = np.concatenate([[0], np.cumsum(counts[keep])])
        return cls(
            genes=torch.as_tensor(genes),
            offsets=torch.as_tensor(offsets),
            labels=torch.as_tensor(labels),
            phenotypes=tuple(chosen),
            units=tuple(table.units.get(name, "") for name in chosen),
            max_deletions=max(int(np.diff(offsets[i : i + PIECE + 1]).max()) for i in range(0, len(labels), PIECE)),
            rows=torch.arange(len(keep)) if keep.all() else torch.as_tensor(np.flatnonzero(keep)),
            names=report,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """What each phenotype asks for: classification if all its labels are 0 or 1, of all parts, else regression."""
        binary = [bool(((column == 0) | (column == 1) | column.isnan()).all()) for column in self.labels.unbind(1)]
        return tuple(CLASSIFICATION if yes else REGRESSION for yes in binary)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.genes.device

    def to(self, device: torch.device | str) -> StrainDataset:
        """The data set on ``device``."""
        moved = {name: getattr(self, name).to(device) for name in ("genes", "offsets", "labels", "rows")}
        return StrainDataset(
            **moved,
            phenotypes=self.phenotypes,
            units=self.units,
            max_deletions=self.max_deletions,
            names=self.names,
        )

    def gather(self, strains: Tensor, num_genes: int) -> StrainBatch:
        """The batch of the given strains, on the device of the data set, without synchronisation.

        Args:
            strains: [B] int64 on the same device.
            num_genes: P, their deletions in total, or more, which are filled up. The host knows it, so the device need
                not be asked.
        """
        starts = self.offsets[strains]
        counts = self.offsets[strains + 1] - starts
        offsets = torch.cat([counts.new_zeros(1), torch.cumsum(counts, 0)])
        numbers = torch.arange(num_genes, device=self.device)
        positions = numbers + (starts - offsets[:-1])[strains_of(offsets, num_genes)]
        genes = self.genes[positions.clamp(max=len(self.genes) - 1)].long()
        genes = torch.where(numbers < offsets[-1], genes, -1)
        return StrainBatch(GenotypeBatch(genes, offsets, self.max_deletions), self.labels[strains], strains)


def _translate(genes: NDArray[np.int32], mapping: NDArray[np.int64]) -> NDArray[np.int32]:
    """``mapping[genes]``; numpy makes all indices int64 first, so a piece at a time. The same array where all keep
    their indices.
    """
    if np.array_equal(mapping, np.arange(len(mapping))):
        return genes
    translated, mapping = np.empty(len(genes), np.int32), mapping.astype(np.int32)
    for start in range(0, len(genes), PIECE):
        translated[start : start + PIECE] = mapping[genes[start : start + PIECE]]
    return translated


def check_phenotypes(table: StrainTable, phenotypes: list[str] | None) -> list[str]:
    """The phenotypes to predict.

    Raises:
        DataError: the table lacks one, or one has no label at all.
    """
    chosen = choose_phenotypes(tuple(table.phenotypes), phenotypes)
    for name in chosen:
        check_labelled(name, not np.isnan(table.phenotypes[name]).all())
    return chosen


def choose_phenotypes(there: Sequence[str], phenotypes: list[str] | None) -> list[str]:
    """The phenotypes to predict, all that are there where None.

    Raises:
        DataError: one is not there.
    """
    chosen = list(phenotypes) if phenotypes else list(there)
    lacking = [name for name in chosen if name not in there]
    if lacking:
        raise DataError(
            f"the store has no phenotype '{lacking[0]}'",
            got=", ".join(chosen),
            expected="among " + ", ".join(there),
            do=did_you_mean(lacking[0], there, "set `data.phenotypes`"),
        )
    return chosen


def check_labelled(name: str, labelled: bool) -> None:
    """Refuse a phenotype without any label."""
    if not labelled:
        raise DataError(f"phenotype '{name}' has no label at all", do="leave it out of `data.phenotypes`")


def refuse_nothing_left(strains: int, dropped: int) -> None:
    """Refuse that no strain can be used: of so many, so many have genes that the cell graph lacks."""
    raise DataError(
        "no strain is left",
        got=f"{strains:,} strains, {dropped:,} of them with genes that the cell graph lacks",
        expected="strains of genes of the cell graph with at least one label",
        do="choose a cell graph that has these genes, or another phenotype",
    )


# Which strains make up each batch: a pure function of seed, epoch and rank.


class EpochBatches(Sampler[Tensor]):
    """Batches of strain numbers, shuffled anew every epoch.

    Every rank gets the same number of batches. In training also as many strains: where they do not divide evenly, the
    first ones of the epoch's order come again as fillers, which are to count for nothing; filler i is written as
    −1 − i. In evaluation (``shuffle=False``) there are none, and batches may be smaller than ``batch_size``, even empty
    where there are fewer strains than ranks.

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
        if self.shuffle:
            fillers = torch.arange(-len(order) % self.world_size) % len(order)
            order = torch.cat([order, -1 - order[fillers]])
        return order[self.rank :: self.world_size]
