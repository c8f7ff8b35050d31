"""Splits of stores that do not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.partition import UNUSED, Bins, Keys, Parts, fill, gene_keys, shuffled
from dglcell.data.split import Split, read_split, refuse_empty_parts
from dglcell.data.split_config import SplitConfig
from dglcell.data.store import Store
from dglcell.data.stream import in_order
from dglcell.errors import ConfigError, DataError

KINDS = ("random", "file")
"""Those that need no more than a pass over the store at a time."""
SMALL_LEVEL = 2**20
"""Strains with some number of deletions, up to which their keys are kept in memory."""
BUCKET_BITS = 16
SPAN = 64


def check_streamed_split(config: SplitConfig) -> None:
    """Refuse splits that need all strains at once.

    Raises:
        ConfigError: naming the key.
    """
    if config.kind not in KINDS:
        raise ConfigError(
            f"`split.kind: {config.kind}` needs all strains in memory, and `data.streaming` keeps them out",
            expected=" or ".join(KINDS),
            do="make the split once with `data.streaming: null`, and give the run's split.npz as `split.path` with "
            "`split.kind: file`",
        )
    if config.subset is not None:
        raise ConfigError(
            "`split.subset` needs all strains in memory, and `data.streaming` keeps them out",
            do="set `data.streaming: null`: a subset fits into memory; or give a split that was saved with its subset "
            "(`split.kind: file`)",
        )


def make_streamed_split(config: SplitConfig, store: Store, readers: int) -> Split:
    """The split that ``make_split`` makes of the same store, in memory of a byte for each strain.

    Args:
        config: validated, of a kind in ``KINDS`` and without a subset.
        store: the strains.
        readers: threads.

    Raises:
        DataError: a part would be empty, or a file is missing or unfit, or a block is damaged.
    """
    if config.path is not None:
        split = read_split(Path(config.path), config, store, store.sha256)
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
        spans = [blocks[i : i + SPAN] for i in range(0, len(blocks), SPAN)]
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
