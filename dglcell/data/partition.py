"""How strains are divided into parts: at random, or by query pair.

Nothing here draws random numbers. Whatever is shuffled is sorted by a hash of the seed and of gene names, so that
a split does not depend on the order of strains or names, nor on the version of numpy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from dglcell.data.table import StrainTable

PARTS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST, UNUSED = 0, 1, 2, 255

Parts = NDArray[np.uint8]
Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class Bins:
    """What strains are dealt into: three parts, or equal folds that take turns at being parts.

    Attributes:
        shares: of the strains, one for each bin; they sum to 1.
        parts: the part that each bin is.
    """

    shares: tuple[float, ...]
    parts: tuple[int, ...]

    @classmethod
    def of_fractions(cls, fractions: Sequence[float]) -> Bins:
        """Training, validation and test with these shares."""
        return cls(tuple(fractions), (TRAIN, VALIDATION, TEST))

    @classmethod
    def of_training(cls, fractions: Sequence[float]) -> Bins:
        """Training and validation alone, in the proportion of these shares of all three parts."""
        both = fractions[TRAIN] + fractions[VALIDATION]
        return cls((fractions[TRAIN] / both, fractions[VALIDATION] / both), (TRAIN, VALIDATION))

    @classmethod
    def of_folds(cls, folds: int, fold: int) -> Bins:
        """Equal folds: ``fold`` is test, the next one (after the last, the first) validation, the others training."""
        parts = [TRAIN] * folds
        parts[fold], parts[(fold + 1) % folds] = TEST, VALIDATION
        return cls((1 / folds,) * folds, tuple(parts))

    def parts_of(self, bins: NDArray[np.int64]) -> Parts:
        """[S] the part of each strain's bin."""
        return np.array(self.parts, np.uint8)[bins]


def gene_keys(names: Sequence[str]) -> Keys:
    """[N] 64 bits of the sha256 of each name."""
    digests = b"".join(hashlib.sha256(name.encode()).digest()[:8] for name in names)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def shuffled(keys: Keys, seed: int) -> Keys:
    """Keys whose order is random in ``seed``; different keys stay different (splitmix64, Steele et al. 2014)."""
    mixed = keys ^ np.frombuffer(hashlib.sha256(str(seed).encode()).digest()[:8], dtype="<u8")[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def gene_set_keys(table: StrainTable) -> Keys:
    """[S] a key of each strain's gene set, whatever the order of its genes.

    A sum of hashes modulo 2^64: equal sets have equal keys; different ones collide with a chance of about
    1e-5 in 20 million strains, and would then share a part.
    """
    sums = np.zeros(len(table.genes) + 1, np.uint64)
    np.cumsum(gene_keys(table.names)[table.genes], out=sums[1:])
    return sums[table.offsets[1:]] - sums[table.offsets[:-1]]


def query_pair_keys(table: StrainTable) -> tuple[NDArray[np.int64], Keys]:
    """The strains with a query pair, ascending, and a key of each one's pair.

    The query pair is the first two genes of a strain, in either order: tables list the genes of the query strain
    first and the array gene last, so that of the three pairs of a trigenic strain only the one that was built into
    the query strain counts. A double mutant is its own query pair; strains with fewer deletions have none.
    """
    rows = np.flatnonzero(table.num_deletions >= 2)
    first, keys = table.offsets[rows], gene_keys(table.names)
    return rows, keys[table.genes[first]] + keys[table.genes[first + 1]]


def random_parts(table: StrainTable, bins: Bins, seed: int, by_deletions: bool) -> Parts:
    """Divide at random; strains with the same gene set share a part.

    Args:
        table: the strains.
        bins: what they are dealt into.
        seed: of the shuffle.
        by_deletions: meet the shares among the strains of each number of deletions.
    """
    level = table.num_deletions if by_deletions else np.zeros(len(table), np.int64)
    return bins.parts_of(fill_levels(shuffled(gene_set_keys(table), seed), level, bins.shares))


def pair_disjoint_parts(table: StrainTable, bins: Bins, seed: int, by_deletions: bool) -> Parts:
    """Divide so that no query pair (`query_pair_keys`) is in two parts.

    Query pairs that share a gene set (the same triple found from two sides) stay together, so that no gene
    set is in two parts either. Strains with fewer than two deletions have no pair and are always training.
    The other pairs of a triple, of a query gene and the array gene, may recur in any part.

    Args:
        table: the strains.
        bins: what the strains with a pair are dealt into, as nearly as whole pairs allow.
        seed: of the shuffle.
        by_deletions: meet the shares among pairs of double mutants alone, among those of triples, and so
            on. A few large query pairs of a trigenic screen would else all go to training.
    """
    parts = np.full(len(table), TRAIN, np.uint8)
    paired, pairs = query_pair_keys(table)
    order = shuffled(_join_pairs(pairs, gene_set_keys(table)[paired]), seed)
    ranks, group = np.unique(order, return_inverse=True)
    most = np.zeros(len(ranks), np.int64)
    if by_deletions:
        np.maximum.at(most, group, table.num_deletions[paired])
    parts[paired] = bins.parts_of(fill_levels(order, most[group], bins.shares))
    return parts


def fill_levels(order: Keys, level: NDArray[np.int64], shares: Sequence[float]) -> NDArray[np.int64]:
    """`fill` among the strains of each level on their own."""
    bins = np.empty(len(order), np.int64)
    for value in np.unique(level):
        chosen = level == value
        bins[chosen] = fill(order[chosen], shares)
    return bins


def fill(order: Keys, shares: Sequence[float]) -> NDArray[np.int64]:
    """[S] the bin of each strain: bins are filled one after the other with whole groups, in the order of their keys.

    Each bin gets a group if there are as many groups as bins.

    Args:
        order: [S] key of each strain; equal for a group.
        shares: of the strains in each bin.
    """
    _, group, sizes = np.unique(order, return_inverse=True, return_counts=True)
    # A group larger than the smallest bin would overfill it, so these go first, into training.
    turn = np.argsort(sizes <= min(shares) * len(order), kind="stable")
    middle = np.cumsum(sizes[turn]) - sizes[turn] / 2
    filled = np.searchsorted(np.cumsum(shares)[:-1] * len(order), middle, side="right")
    if len(filled) >= len(shares):
        filled = _no_bin_empty(filled, len(shares))
    bins = np.empty(len(sizes), np.int64)
    bins[turn] = filled
    return bins[group]


def _no_bin_empty(filled: NDArray[np.int64], bins: int) -> NDArray[np.int64]:
    """The ascending bin numbers with the fewest changes that let them take every value from 0 on."""
    position = np.arange(len(filled))
    filled = np.append(filled[:-1], bins - 1)
    # No step is larger than one, first seen from the end, then from the beginning.
    filled = position + np.maximum.accumulate((filled - position)[::-1])[::-1]
    filled[0] = 0
    return position + np.minimum.accumulate(filled - position)


def _join_pairs(pairs: Keys, sets: Keys) -> Keys:
    """[S] the key of each strain's query pair, made equal for pairs that occur with the same gene set."""
    keys, pair = np.unique(pairs, return_inverse=True)
    by_set = np.argsort(sets, kind="stable")
    left, right = pair[by_set[:-1]], pair[by_set[1:]]
    joined = (sets[by_set[:-1]] == sets[by_set[1:]]) & (left != right)
    if not joined.any():
        return pairs
    links = coo_array((np.ones(int(joined.sum())), (left[joined], right[joined])), shape=(len(keys), len(keys)))
    count, component = connected_components(links, directed=False)
    smallest = np.full(count, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(smallest, component, keys)
    return smallest[component][pair]
