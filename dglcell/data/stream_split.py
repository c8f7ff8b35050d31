"""Splits and statistics of stores that do not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.data.config import NONE, TEST, TRAIN, UNUSED, VALIDATION, SplitConfig, StreamingConfig
from dglcell.data.dataset import StrainDataset, check_labelled, choose_phenotypes, refuse_nothing_left
from dglcell.data.partition import Bins, Keys, Parts, fill, gene_keys, shuffled
from dglcell.data.split import Split, every_strain_trains, read_split, refuse_empty_parts
from dglcell.data.store import Store
from dglcell.data.stream import BlockReader, Strains, StrainStream, StreamOrder, in_order
from dglcell.data.table import CLASSIFICATION, REGRESSION
from dglcell.data.transform import Moments
from dglcell.errors import DataError
from dglcell.graph.vocabulary import NameReport, Vocabulary, enforce_name_policy

# One pass over a store before its training part is streamed: what can be used, and what the labels are like.


SAMPLE = 4096
"""Training strains, the first of the store, that are kept in memory, to try batch sizes and strategies on."""
SURVEY_SPAN = 16
"""Blocks that one thread looks at at a time."""


@dataclass(frozen=True)
class Survey:
    """What a run needs to know of a store whose training part it streams.

    Attributes:
        stream: the training part.
        resident: the strains of validation and test, whose predictions are kept in memory as well, and a few of
            training.
        moments: of the training labels.
    """

    stream: StrainStream
    resident: StrainDataset
    moments: Moments


@dataclass(frozen=True)
class _Found:
    """What a span of blocks holds.

    Attributes:
        usable: [n] strains that have genes of the cell graph and labels.
        lacking: [n] strains that have other genes.
        unknown: store indices of these genes.
        counts: training strains in each block.
        moments: of their labels.
        labelled, other: [T] whether a usable strain has a label; one that is neither 0 nor 1.
        most: deletions of any usable strain.
        kept: strains to be kept in memory.
    """

    usable: NDArray[np.bool_]
    lacking: NDArray[np.bool_]
    unknown: frozenset[int]
    counts: list[int]
    moments: Moments
    labelled: Tensor
    other: Tensor
    most: int
    kept: Strains


def survey(
    store: Store,
    vocabulary: Vocabulary,
    part: Parts,
    config: StreamingConfig,
    *,
    phenotypes: list[str] | None = None,
    unknown: str = "refuse",
    seed: int = 0,
) -> Survey:
    """Read all of a store once, and keep little of it.

    Args:
        store: the strains.
        vocabulary: gene vocabulary of the cell graph.
        part: [S] the split.
        config: of the stream.
        phenotypes, unknown: see ``StrainDataset.from_table``.
        seed: of the training order.

    Raises:
        GraphError: unknown genes under ``refuse``.
        DataError: a phenotype that the store lacks or without labels, no strain left, or a damaged block.
    """
    chosen = tuple(choose_phenotypes(store.meta.phenotypes, phenotypes))
    mapping = vocabulary.indices(store.meta.names)
    # An unknown gene keeps its index in the store, as −1 − index, so that it can be named.
    own = np.where(mapping < 0, -1 - np.arange(len(mapping)), mapping).astype(np.int32)
    reader = BlockReader(store, own, chosen)
    blocks = range(len(store.meta.blocks))
    spans = [blocks[i : i + SURVEY_SPAN] for i in range(0, len(blocks), SURVEY_SPAN)]
    found = list(in_order(lambda work: _look(reader, part, *work), _with_room(store, part, spans), config.readers))
    lacking = sorted({store.meta.names[gene] for one in found for gene in one.unknown})
    dropped = sum(int(one.lacking.sum()) for one in found)
    report = NameReport(len(store.meta.names), tuple(lacking), rows_dropped=dropped)
    enforce_name_policy(report, unknown, where=f"store of '{store.meta.provenance.source}'", key="data.unknown_genes")
    usable = np.concatenate([one.usable for one in found])
    for name, labelled in zip(chosen, torch.stack([one.labelled for one in found]).any(0).tolist(), strict=True):
        check_labelled(name, labelled)
    if not usable.any():
        refuse_nothing_left(len(store), dropped)
    other = torch.stack([one.other for one in found]).any(0).tolist()
    most = max(one.most for one in found)
    resident = StrainDataset(
        **_columns([one.kept for one in found]),
        phenotypes=chosen,
        units=tuple(store.meta.units.get(name, "") for name in chosen),
        max_deletions=most,
        names=report,
        known_kinds=tuple(REGRESSION if yes else CLASSIFICATION for yes in other),
    )
    order = StreamOrder(np.array([n for one in found for n in one.counts], np.int64), config.window, seed)
    part = np.where(usable, part, np.uint8(UNUSED))
    stream = StrainStream(reader, part, TRAIN, order, most, config.readers)
    moments = found[0].moments
    for one in found[1:]:
        moments += one.moments
    return Survey(stream, resident, moments)


def _with_room(store: Store, part: Parts, spans: Sequence[range]) -> Iterator[tuple[range, int]]:
    """How many training strains of each span of blocks are kept in memory."""
    ends, room = np.cumsum([0, *store.meta.blocks]), SAMPLE
    for span in spans:
        yield span, room
        room = max(0, room - int((part[ends[span.start] : ends[span.stop]] == TRAIN).sum()))


def _look(reader: BlockReader, part: Parts, span: range, room: int) -> _Found:
    pieces = reader.read(span, lambda here: None)
    strains = Strains.join(pieces)
    ends = strains.counts.cumsum(0)
    wrong = (strains.genes < 0).nonzero().squeeze(1)
    lacking = torch.zeros(strains.num_strains, dtype=torch.bool)
    lacking[torch.searchsorted(ends, wrong, right=True)] = True
    usable = ~lacking & ~strains.labels.isnan().all(1)
    here = torch.from_numpy(part[strains.rows.numpy()])
    training = usable & (here == TRAIN)
    kept = (here == VALIDATION) | (here == TEST) | (training & (training.cumsum(0) <= room))
    labels = strains.labels[usable]
    return _Found(
        usable.numpy(),
        lacking.numpy(),
        frozenset((-1 - strains.genes[wrong]).unique().tolist()),
        [int(x.sum()) for x in training.split([piece.num_strains for piece in pieces])],
        Moments.of(strains.labels[training]),
        (~labels.isnan()).any(0),
        ((labels != 0) & (labels != 1) & ~labels.isnan()).any(0),
        int(strains.counts[usable].max()) if len(labels) else 0,
        _take(strains, usable & kept),
    )


def _take(strains: Strains, wanted: Tensor) -> Strains:
    """Some of the strains."""
    genes = strains.genes[wanted.repeat_interleave(strains.counts)]
    return Strains(genes, *(column[wanted] for column in strains[1:]))


def _columns(kept: Sequence[Strains]) -> dict[str, Tensor]:
    """Tensors of a resident data set."""
    strains = Strains.join(kept)
    offsets = torch.cat([strains.counts.new_zeros(1), strains.counts.cumsum(0)])
    return {"genes": strains.genes, "offsets": offsets, "labels": strains.labels, "rows": strains.rows}


# Splits of stores that do not fit into memory.


SMALL_LEVEL = 2**20
"""Strains with some number of deletions, up to which their keys are kept in memory."""
BUCKET_BITS = 16
SPLIT_SPAN = 64


def make_streamed_split(config: SplitConfig, store: Store, readers: int) -> Split:
    """The split that ``make_split`` makes of the same store, in memory of a byte for each strain.

    Args:
        config: validated, of a kind in ``STREAMED_KINDS`` and without a subset.
        store: the strains.
        readers: threads.

    Raises:
        DataError: a part would be empty, or a file is missing or unfit, or a block is damaged.
    """
    if config.path is not None:
        split = read_split(Path(config.path), config, store, store.sha256)
    elif config.kind == NONE:
        split = Split(every_strain_trains(len(store)), NONE, config.seed, {}, store.sha256)
    else:
        bins, parameters = Bins.of_fractions(config.fractions), dict[str, Any](fractions=list(config.fractions))
        if config.folds is not None and config.fold is not None:
            bins, parameters = Bins.of_folds(config.folds, config.fold), {"folds": config.folds, "fold": config.fold}
        parts = _random_parts(store, bins, config.seed, config.by_deletions, readers)
        split = Split(
            parts, config.kind, config.seed, {**parameters, "by_deletions": config.by_deletions}, store.sha256
        )
    refuse_empty_parts(split)
    return split


def _random_parts(store: Store, bins: Bins, seed: int, by_deletions: bool, readers: int) -> Parts:
    """What ``random_parts`` gives: strains in the order of their keys, level by level, cut at the shares.

    The keys are never all in memory. One pass counts them in buckets of their first bits, which tells in which buckets
    the cuts lie; a second takes the keys of these buckets, which tells the cuts; a third compares keys with cuts.
    """
    names = gene_keys(store.meta.names)

    def passes() -> Iterator[tuple[NDArray[np.int64], Keys]]:
        blocks = range(len(store.meta.blocks))
        spans = [blocks[i : i + SPLIT_SPAN] for i in range(0, len(blocks), SPLIT_SPAN)]
        return in_order(lambda span: _levels_and_keys(store, span, names, seed, by_deletions), spans, readers)

    levels = _Levels(bins)
    for level, keys in passes():
        levels.count(level, keys)
    levels.find_buckets()
    for level, keys in passes():
        levels.collect(level, keys)
    levels.find_cuts()
    parts = np.full(len(store), UNUSED, np.uint8)
    start = 0
    for level, keys in passes():
        parts[start : start + len(keys)] = bins.parts_of(levels.bins_of(level, keys))
        start += len(keys)
    return parts


def _levels_and_keys(
    store: Store, span: range, names: Keys, seed: int, by_deletions: bool
) -> tuple[NDArray[np.int64], Keys]:
    """The level and the key of each strain of some blocks."""
    levels, keys = [], []
    for block in store.blocks(span):
        ends = np.cumsum(block.counts, dtype=np.int64)
        sums = np.zeros(len(block.genes) + 1, np.uint64)
        np.cumsum(names[block.genes], out=sums[1:])
        keys.append(sums[ends] - sums[ends - block.counts])
        levels.append(block.counts * by_deletions)
    return np.concatenate(levels).astype(np.int64), shuffled(np.concatenate(keys), seed)


class _Levels:
    """Where the strains of each level are cut, found in steps."""

    def __init__(self, bins: Bins) -> None:
        self.shares = bins.shares
        self._buckets: dict[int, NDArray[np.int64]] = {}
        self._sought: dict[int, list[int]] = {}
        self._keys: dict[int, list[Keys]] = {}
        self._cuts: dict[int, Keys] = {}
        self._bins: dict[int, dict[str, NDArray[Any]]] = {}

    def count(self, level: NDArray[np.int64], keys: Keys) -> None:
        """First pass."""
        for value in np.unique(level).tolist():
            buckets = np.bincount(_bucket(keys[level == value]), minlength=1 << BUCKET_BITS)
            self._buckets[value] = self._buckets.get(value, 0) + buckets

    def find_buckets(self) -> None:
        """Those whose keys are wanted: where a cut lies, or all of a small level."""
        for value, buckets in self._buckets.items():
            strains = int(buckets.sum())
            self._keys[value] = []
            if strains <= SMALL_LEVEL:
                self._sought[value] = list(range(len(buckets)))
                continue
            if buckets.max() > min(self.shares) * strains:
                raise DataError(
                    "one gene set makes up more of the store than a part of the split may",
                    got=f"{int(buckets.max()):,} of {strains:,} strains",
                    expected=f"{min(self.shares):.2%} or less",
                    do="merge its rows when the store is built, or set `data.streaming: null`",
                )
            self._sought[value] = np.searchsorted(np.cumsum(buckets), self._targets(value), side="right").tolist()

    def collect(self, level: NDArray[np.int64], keys: Keys) -> None:
        """Second pass."""
        for value in np.unique(level).tolist():
            mine = keys[level == value]
            if len(self._sought[value]) < 1 << BUCKET_BITS:
                mine = mine[np.isin(_bucket(mine), self._sought[value])]
            self._keys[value].append(mine)

    def find_cuts(self) -> None:
        """The least key of every bin but the first; of small levels the bin of every key."""
        for value, kept in self._keys.items():
            keys = np.concatenate(kept)
            if int(self._buckets[value].sum()) <= SMALL_LEVEL:
                distinct, first = np.unique(keys, return_index=True)
                self._bins[value] = {"keys": distinct, "bins": fill(keys, self.shares)[first]}
            else:
                pairs = zip(self._sought[value], self._targets(value), strict=True)
                self._cuts[value] = np.array([self._cut(value, keys, *pair) for pair in pairs], np.uint64)
        self._keys.clear()

    def bins_of(self, level: NDArray[np.int64], keys: Keys) -> NDArray[np.int64]:
        """Third pass: the bin of each strain."""
        bins = np.empty(len(keys), np.int64)
        for value in np.unique(level).tolist():
            mine = level == value
            if value in self._cuts:
                bins[mine] = np.searchsorted(self._cuts[value], keys[mine], side="right")
            else:
                known = self._bins[value]
                bins[mine] = known["bins"][np.searchsorted(known["keys"], keys[mine])]
        return bins

    def _targets(self, value: int) -> NDArray[np.float64]:
        """Strains before each cut."""
        return np.cumsum(self.shares)[:-1] * int(self._buckets[value].sum())

    def _cut(self, value: int, keys: Keys, bucket: int, target: float) -> int:
        """The least key whose strains lie, by the middle of their group, behind the target."""
        mine, sizes = np.unique(keys[_bucket(keys) == bucket], return_counts=True)
        middle = self._buckets[value][:bucket].sum() + np.cumsum(sizes) - sizes / 2
        behind = int(np.searchsorted(middle, target, side="left"))
        return int(mine[behind]) if behind < len(mine) else (bucket + 1) << (64 - BUCKET_BITS)


def _bucket(keys: Keys) -> NDArray[np.int64]:
    return (keys >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
