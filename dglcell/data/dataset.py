"""Select the strains of a store that a cell graph and a run can use, normalise their labels, and batch them."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Sampler

from dglcell.data.columns import COVARIATE, PHENOTYPE, ROW, SEEN, Column, translated
from dglcell.data.strains import Strains
from dglcell.errors import DataError, count, did_you_mean, listing
from dglcell.graph.vocabulary import REFUSE, Vocabulary, refuse_names

log = logging.getLogger("dglcell")


def strains_of_cell(
    strains: Strains, vocabulary: Vocabulary, phenotypes: list[str] | None = None, unknown: str = "refuse"
) -> Strains:
    """Map strains of a store onto a cell graph's genes, and check them once.

    Args:
        phenotypes: which columns are predicted; all where None.
        unknown: ``refuse`` strains with genes that the cell graph lacks, or ``drop`` them.

    Returns:
        The strains with a label, in tensors on the host, with the chosen phenotypes and their numbers in the store.
    """
    columns = {Column(PHENOTYPE, name): strains.phenotypes[name] for name in _chosen(strains, phenotypes)}
    meant = Vocabulary(vocabulary.names).meant(strains.names)  # case does not count
    places, times = np.unique(meant[meant >= 0], return_counts=True)
    for place in places[times > 1][:1]:  # its strains could fall into two parts of a split
        got = listing([name for name, of in zip(strains.names, meant, strict=True) if of == place])
        what, do = f"gene '{vocabulary.names[place]}' is written in several ways", "write it in one way"
        raise DataError(f"store of '{strains.provenance.source}': {what}", got=got, do=do)
    targets = translated(strains.targets, meant)
    keep = np.ones(len(strains), dtype=bool)
    lacking = np.flatnonzero(targets < 0)
    keep[np.searchsorted(strains.offsets, lacking, side="right") - 1] = False
    dropped = len(strains) - int(keep.sum())
    names = sorted({strains.names[i] for i in np.unique(strains.targets[lacking])})
    if unknown == REFUSE:
        where = f"store of '{strains.provenance.source}'"
        refuse_names(names, len(strains.names), vocabulary, where=where, key="data.unknown_genes")
    # A strain without any of the chosen labels has nothing to teach.
    keep &= ~np.logical_and.reduce([np.isnan(values) for values in columns.values()])
    if not keep.any():
        got = f"{len(strains):,} strains, {dropped:,} of them with genes that the cell graph lacks"
        expected = "strains of genes of the cell graph with at least one label"
        do = "choose a cell graph that has these genes, or another phenotype"
        raise DataError("no strain is left", got=got, expected=expected, do=do)
    if dropped:
        log.info("%s left out: the cell graph lacks %s", count(dropped, "strain"), count(len(names), "gene"))
    units = {column.name: strains.units.get(column.name, "") for column in columns}
    columns |= {column: values for column, values in strains.columns.items() if column.kind in (COVARIATE, SEEN)}
    columns[Column(ROW)] = np.arange(len(strains))
    usable = strains.with_(names=vocabulary.names, targets=targets, columns=columns, units=units)
    return (usable if keep.all() else usable.take(np.flatnonzero(keep))).to("cpu")


def _chosen(strains: Strains, phenotypes: list[str] | None) -> list[str]:
    """Return the phenotypes to predict: all that the strains have where None is given."""
    there = strains.phenotypes
    chosen = list(phenotypes) if phenotypes else list(there)
    for name in chosen:
        if name not in there:
            do = did_you_mean(name, there, "set `data.phenotypes`")
            what, expected = f"the store has no phenotype '{name}'", f"among {', '.join(there)}"
            raise DataError(what, got=", ".join(chosen), expected=expected, do=do)
        if np.isnan(there[name]).all():
            raise DataError(f"phenotype '{name}' has no label at all", do="leave it out of `data.phenotypes`")
    return chosen


# Which strains make up each batch: a pure function of seed, epoch and rank.


class EpochBatches(Sampler[Tensor]):
    """Yield batches of strain numbers, shuffled anew every ``epoch``; the next pass begins with the batch ``first``.

    Every rank gets the same number of batches. In training also as many strains: where they do not divide evenly, the
    first ones of the epoch's order come again as fillers, which are to count for nothing; filler i is written as
    −1 − i. In evaluation (``shuffle=False``) there are none, and batches may be smaller than ``batch_size``, even empty
    where there are fewer strains than ranks.

    Args:
        strains: [n] int64 strain numbers of the part, on the host.
        batch_size: B on this rank.
        rank, world_size: number of this process, and of all.
    """

    def __init__(
        self, strains: Tensor, batch_size: int, *, shuffle: bool, seed: int, rank: int = 0, world_size: int = 1
    ) -> None:
        self.strains, self.batch_size, self.shuffle, self.seed = strains, batch_size, shuffle, seed
        self.rank, self.world_size = rank, world_size
        self.epoch = 0
        self.first = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; Lightning calls this method."""
        self.epoch = epoch

    def __len__(self) -> int:
        # Of rank 0, which has the most strains: ranks that stop early would leave the others waiting.
        return max(1, math.ceil(math.ceil(len(self.strains) / self.world_size) / self.batch_size))

    def __iter__(self) -> Iterator[Tensor]:
        order = self.strains
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
            order = order[torch.randperm(len(order), generator=generator)]
            fillers = torch.arange(-len(order) % self.world_size) % len(order)
            order = torch.cat([order, -1 - order[fillers]])
        mine = order[self.rank :: self.world_size]
        batches = mine.split(self.batch_size) if self.shuffle else mine.tensor_split(len(self))
        first, self.first = self.first, 0
        yield from batches[first:]


class Normaliser(nn.Module):
    """Convert phenotypes to normalised units, (label − shift) / scale; buffers travel with checkpoints.

    Under ``standard`` these are mean and standard deviation of the training labels, [T] each, else 0 and 1. Under
    ``logistic`` labels are 0 to 1 and models predict their logits.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, kind: str, shift: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("shift", shift.float())
        self.register_buffer("scale", scale.float())

    @classmethod
    def fit(cls, labels_ST: Tensor, phenotypes: tuple[str, ...], kind: str = "standard") -> Normaliser:
        """Compute statistics of the training labels, with NaN left out."""
        shifts, scales = [], []
        for name, column in zip(phenotypes, labels_ST.double().unbind(1), strict=True):
            values = column[~column.isnan()]
            _check_labels(name, values)
            standard = kind == "standard"
            shifts.append(values.mean() if standard else values.new_zeros(()))
            scales.append(values.std(unbiased=False) if standard else values.new_ones(()))
            least, most = (getattr(torch.finfo(torch.float32), name) for name in ("tiny", "max"))
            if not least <= float(scales[-1]) <= most:
                raise DataError(
                    f"phenotype '{name}': the spread of its training labels does not fit into single precision",
                    got=f"{float(scales[-1]):.4g}, labels {values.min().item():.4g} … {values.max().item():.4g}",
                    expected=f"{least:.4g} … {most:.4g}",
                    do="give the phenotype in another unit",
                )
        return cls(kind, torch.stack(shifts), torch.stack(scales))

    def normalise(self, labels: Tensor) -> Tensor:
        """Convert original to normalised units, [..., T]."""
        return (labels - self.shift) / self.scale

    def expect(self, outputs: Tensor) -> Tensor:
        """Convert what a model predicts to normalised units, [..., T]."""
        return outputs.sigmoid() if self.kind == "logistic" else outputs

    def restore(self, outputs: Tensor) -> Tensor:
        """Convert what a model predicts to original units, [..., T]."""
        return self.expect(outputs) * self.scale + self.shift


def _check_labels(name: str, values: Tensor) -> None:
    if len(values) == 0:
        raise DataError(f"phenotype '{name}' has no label in the training part", do="choose another split")
    low, high = values.min().item(), values.max().item()
    if low == high:
        do = "add strains, or let more of them train with `split.fractions`"
        if len(values) > 1:
            do = "leave it out of `data.phenotypes`, or choose another split"
        got = f"{low:g} in {count(len(values), 'strain')}"
        raise DataError(f"phenotype '{name}' is constant in the training part", got=got, do=do)


def check_range(labels_ST: Tensor, phenotypes: tuple[str, ...], kind: str) -> None:
    """Refuse labels that cannot be normalised in this way."""
    for name, values in zip(phenotypes, labels_ST.unbind(1), strict=True):
        wrong = (values < 0) | (values > 1)
        if kind == "logistic" and wrong.any():
            what = f"`data.normalise: logistic`: labels of phenotype '{name}' are no probabilities"
            do = "leave it out of `data.phenotypes`, or set `data.normalise: standard`"
            raise DataError(what, got=f"{values[wrong][0].item():.4g}", expected="0 … 1", do=do)
