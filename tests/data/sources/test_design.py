"""Which strains a screen lists."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.data.sources.insilico import cross, gene_sets, subsets


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("genes", [3, 4, 11])
def test_all_sets_in_lexicographic_order(genes: int, size: int) -> None:
    sets = gene_sets(genes, size, "all", np.random.default_rng(0), key="k")
    assert [tuple(row) for row in sets.tolist()] == list(itertools.combinations(range(genes), size))


@settings(deadline=None)
@given(st.integers(3, 40), st.integers(2, 3), st.integers(1, 200), st.integers(0, 9))
def test_sampled_sets_are_distinct_sets(genes: int, size: int, count: int, seed: int) -> None:
    count = min(count, math.comb(genes, size))
    sets = gene_sets(genes, size, str(count), np.random.default_rng(seed), key="k")
    assert len({tuple(row) for row in sets.tolist()}) == len(sets) == count
    assert (np.diff(sets, axis=1) > 0).all()
    assert 0 <= sets.min() <= sets.max() < genes


def test_sampling_is_uniform() -> None:
    rng = np.random.default_rng(0)
    seen = np.zeros(10)
    for _ in range(300):
        seen[np.unique(gene_sets(10, 3, "5", rng, key="k"))] += 1
    assert seen.max() / seen.min() < 1.3


def test_no_sets() -> None:
    assert gene_sets(5, 2, "none", np.random.default_rng(0), key="k").shape == (0, 2)


def test_crosses_have_the_array_gene_last_and_each_gene_set_once() -> None:
    queries = np.array([[5, 1], [1, 2]], dtype=np.int32)
    triples, pairs = cross(queries, np.array([0, 2, 5], dtype=np.int32), genes=6)
    # 5+1 × 5 and 1+2 × 2 would delete a gene twice; 1+2 × 5 is 5+1 × 2 again.
    assert triples.tolist() == [[5, 1, 0], [5, 1, 2], [1, 2, 0]]
    assert pairs.tolist() == [[5, 0], [1, 0], [5, 2], [1, 2], [2, 0]]


def test_subsets_with_one_gene_less() -> None:
    assert subsets(np.array([[3, 0, 2], [0, 1, 2]], dtype=np.int32), genes=4).tolist() == [
        [0, 1],
        [0, 2],
        [0, 3],
        [1, 2],
        [2, 3],
    ]
    assert subsets(np.zeros((0, 3), dtype=np.int32), genes=4).shape == (0, 2)
