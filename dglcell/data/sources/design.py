"""Which strains an in-silico screen lists: all or sampled gene sets, or query pairs crossed with an array."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.growth import distinct_rows, row_keys
from dglcell.errors import ConfigError

# Strains of one kind; their gene sets and solutions are held in memory.
MAX_STRAINS = 20_000_000


@dataclass(frozen=True)
class Design:
    """The strains to list, by number of deletions.

    Attributes:
        singles: [S1, 1] gene indices.
        pairs: [S2, 2]; in a query design the array gene is last.
        triples: [S3, 3]; in a query design the array gene is last.
    """

    singles: NDArray[np.int32]
    pairs: NDArray[np.int32]
    triples: NDArray[np.int32]


def gene_sets(genes: int, size: int, amount: str, rng: np.random.Generator, *, key: str) -> NDArray[np.int32]:
    """All, no, or some random sets of ``size`` genes.

    Args:
        genes: number of genes N.
        size: genes in a set, 1 to 3.
        amount: ``all``, ``none`` or a number.
        rng: draws the numbered ones.
        key: the configuration key that holds ``amount``, for messages.

    Returns:
        [S, size] ascending rows in lexicographic order.

    Raises:
        ConfigError: more sets than there are, or too many to hold.
    """
    total = math.comb(genes, size)
    count = {"all": total, "none": 0}.get(amount)
    if count is None:
        count = int(amount)
    if count > total:
        raise ConfigError(
            f"`{key}` asks for more strains than there are",
            got=f"{count:,}",
            expected=f"at most {total:,} for {genes:,} genes",
            do=f"set `{key}: all`",
        )
    if count > MAX_STRAINS:
        raise ConfigError(
            f"`{key}` asks for too many strains",
            got=f"{count:,}",
            expected=f"at most {MAX_STRAINS:,}",
            do=f"give a number, e.g. `{key}: 100000`, to sample",
        )
    ranks = np.arange(total) if count == total else rng.choice(total, size=count, replace=False)
    return distinct_rows(_unrank(ranks, genes, size), genes)


def _unrank(ranks: NDArray[np.int64], genes: int, size: int) -> NDArray[np.int32]:
    """[S, size] the sets with these ranks in the combinatorial number system, ascending within a row."""
    rows = np.zeros((len(ranks), size), dtype=np.int32)
    rest = ranks.astype(np.int64)
    for position in range(size, 0, -1):
        below = np.array([math.comb(gene, position) for gene in range(genes)], dtype=np.int64)
        largest = np.searchsorted(below, rest, side="right") - 1
        rows[:, position - 1] = largest
        rest = rest - below[largest]
    return rows


def cross(
    queries: NDArray[np.int32], array: NDArray[np.int32], genes: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Query pairs crossed with array genes, and the digenic controls that go with them.

    A gene set that several crosses make is listed once, for the first of them.

    Args:
        queries: [Q, 2].
        array: [A].
        genes: number of genes N.

    Returns:
        Triples [S, 3] (query, query, array) and pairs [S', 2] (query, array), in the order of the crosses.
    """
    triples = np.column_stack([np.repeat(queries, len(array), axis=0), np.tile(array, len(queries))])
    triples = triples[(triples[:, 2] != triples[:, 0]) & (triples[:, 2] != triples[:, 1])].astype(np.int32)
    triples = _first_of_each(triples, genes)
    return triples, _first_of_each(triples[:, [0, 2, 1, 2]].reshape(-1, 2), genes)


def _first_of_each(sets: NDArray[np.int32], genes: int) -> NDArray[np.int32]:
    _, first = np.unique(row_keys(np.sort(sets, axis=1), genes), return_index=True)
    return sets[np.sort(first)]


def subsets(sets: NDArray[np.int32], genes: int) -> NDArray[np.int32]:
    """The distinct subsets with one gene less of the rows of [S, k]."""
    size = sets.shape[1]
    smaller = [np.delete(sets, left_out, axis=1) for left_out in range(size)]
    return distinct_rows(np.concatenate(smaller), genes)
