"""How strains are divided into parts: by gene set, by query pair, or by gene.

Nothing here draws random numbers. Whatever is shuffled is sorted by a hash of the seed and of gene names, so that
a split does not depend on the order of strains or names, nor on the version of numpy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from dglcell.data.table import StrainTable

PARTS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST, UNUSED = 0, 1, 2, 255

Parts = NDArray[np.uint8]
Keys = NDArray[np.uint64]


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


def random_parts(table: StrainTable, fractions: Sequence[float], seed: int, by_deletions: bool) -> Parts:
    """Divide at random; strains with the same gene set share a part.

    Args:
        table: the strains.
        fractions: of strains in training, validation and test.
        seed: of the shuffle.
        by_deletions: meet the fractions among the strains of each number of deletions.
    """
    level = table.num_deletions if by_deletions else np.zeros(len(table), np.int64)
    return _parts_of_levels(shuffled(gene_set_keys(table), seed), level, fractions)


def pair_disjoint_parts(table: StrainTable, fractions: Sequence[float], seed: int, by_deletions: bool) -> Parts:
    """Divide so that no query pair is in two parts.

    The query pair of a strain is its first two genes, in either order; a double mutant is its own query pair.
    Query pairs that share a gene set (the same triple found from two sides) stay together, so that no gene
    set is in two parts either. Strains with fewer than two deletions have no pair and are always training.

    Args:
        table: the strains.
        fractions: of strains with a pair in training, validation and test, as nearly as whole pairs allow.
        seed: of the shuffle.
        by_deletions: meet the fractions among pairs of double mutants alone, among those of triples, and so
            on. A few large query pairs of a trigenic screen would else all go to training.
    """
    parts = np.full(len(table), TRAIN, np.uint8)
    paired = table.num_deletions >= 2
    first = table.offsets[:-1][paired]
    keys = gene_keys(table.names)
    pairs = keys[table.genes[first]] + keys[table.genes[first + 1]]
    order = shuffled(_join_pairs(pairs, gene_set_keys(table)[paired]), seed)
    ranks, group = np.unique(order, return_inverse=True)
    most = np.zeros(len(ranks), np.int64)
    if by_deletions:
        np.maximum.at(most, group, table.num_deletions[paired])
    parts[paired] = _parts_of_levels(order, most[group], fractions)
    return parts


def gene_disjoint_parts(table: StrainTable, fractions: Sequence[float], seed: int, rule: str) -> Parts:
    """Divide the genes, and the strains by their genes.

    Rule ``any``: a strain with a test gene is test, else one with a validation gene is validation. No test gene
    occurs outside the test part, no validation gene in training. The fractions are of strains; genes that alone
    would overfill a part are training genes.

    Rule ``all``: a strain is in the part of its genes if they all belong to one part, else in none (``UNUSED``).
    The fractions are of genes.

    Strains without deletions are training.
    """
    frequency = np.bincount(table.genes, minlength=len(table.names))
    order = shuffled(gene_keys(table.names), seed)
    too_frequent = (frequency > min(fractions) * len(table)) & (rule == "any")
    # Genes that occur nowhere come last, where they cannot use up a part.
    turn = np.lexsort((order, too_frequent, frequency == 0))
    rank = np.empty(len(turn), np.int64)
    rank[turn] = np.arange(len(turn))
    perturbed = table.num_deletions > 0
    starts = table.offsets[:-1][perturbed]
    if not len(starts):
        return np.full(len(table), TRAIN, np.uint8)
    lowest = np.minimum.reduceat(rank[table.genes], starts)
    highest = np.maximum.reduceat(rank[table.genes], starts)
    if rule == "any":
        reached = np.cumsum(np.bincount(lowest, minlength=len(rank)))
        test_end = _nearest(reached, fractions[TEST] * len(table))
        validation_end = _nearest(reached, (fractions[TEST] + fractions[VALIDATION]) * len(table))
        highest = lowest
    else:
        genes = int((frequency > 0).sum())
        test_end = round(fractions[TEST] * genes)
        validation_end = round((fractions[TEST] + fractions[VALIDATION]) * genes)
    parts = np.full(len(table), TRAIN, np.uint8)
    parts[perturbed] = np.select(
        [highest < test_end, (lowest >= test_end) & (highest < validation_end), lowest >= validation_end],
        [np.uint8(TEST), np.uint8(VALIDATION), np.uint8(TRAIN)],
        np.uint8(UNUSED),
    )
    return parts


def _parts_of_levels(order: Keys, level: NDArray[np.int64], fractions: Sequence[float]) -> Parts:
    """`_parts_of_groups` among the strains of each level on their own."""
    parts = np.empty(len(order), np.uint8)
    for value in np.unique(level):
        chosen = level == value
        parts[chosen] = _parts_of_groups(order[chosen], fractions)
    return parts


def _parts_of_groups(order: Keys, fractions: Sequence[float]) -> Parts:
    """Fill the parts with whole groups, in the order of their keys; each part gets one if there are three.

    Args:
        order: [S] key of each strain; equal for a group.
        fractions: of strains in each part.
    """
    _, group, sizes = np.unique(order, return_inverse=True, return_counts=True)
    # A group larger than the smallest part would overfill it, so these go first, into training.
    turn = np.argsort(sizes <= min(fractions) * len(order), kind="stable")
    middle = np.cumsum(sizes[turn]) - sizes[turn] / 2
    filled = np.searchsorted(np.cumsum(fractions)[:-1] * len(order), middle, side="right")
    if len(filled) >= len(PARTS):
        filled[0], filled[-1] = TRAIN, TEST
        if VALIDATION not in filled:
            filled[-2] = VALIDATION
    parts = np.empty(len(sizes), np.uint8)
    parts[turn] = filled
    return parts[group]


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


def _nearest(reached: NDArray[np.int64], target: float) -> int:
    """How many genes to take so that the strains they reach come nearest to ``target``."""
    return int(np.argmin(np.abs(np.concatenate([[0], reached]) - target)))
