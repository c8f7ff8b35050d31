"""Sets of (node, strain) pairs against Python sets."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.perturbation.row_index import RowIndex, union

STRAINS = 3
PAIRS = st.sets(st.tuples(st.integers(0, 5), st.integers(0, STRAINS - 1)))


def index_of(pairs: set[tuple[int, int]]) -> RowIndex:
    mask = torch.zeros(6, STRAINS, dtype=torch.bool)
    for node, strain in pairs:
        mask[node, strain] = True
    return RowIndex.where(mask)


def pairs_of(index: RowIndex) -> list[tuple[int, int]]:
    return list(zip(index.nodes.tolist(), index.strains.tolist(), strict=True))


@given(pairs=PAIRS)
def test_pairs_are_ordered_by_node_then_strain(pairs: set[tuple[int, int]]) -> None:
    assert pairs_of(index_of(pairs)) == sorted(pairs)
    assert len(index_of(pairs)) == len(pairs)


@given(pairs=PAIRS, others=PAIRS)
def test_found_pairs_are_where_they_are_said_to_be(pairs: set[tuple[int, int]], others: set[tuple[int, int]]) -> None:
    found, position = index_of(pairs).find(index_of(others))
    for pair, there, at in zip(sorted(others), found.tolist(), position.tolist(), strict=True):
        assert there == (pair in pairs)
        if there:
            assert sorted(pairs)[at] == pair


@given(sets=st.lists(PAIRS, min_size=1, max_size=3))
def test_a_union_has_every_pair_once(sets: list[set[tuple[int, int]]]) -> None:
    assert pairs_of(union([index_of(pairs) for pairs in sets])) == sorted(set().union(*sets))


def test_the_union_of_one_index_is_itself() -> None:
    index = RowIndex(torch.tensor([0, 3]), 2)
    assert union([index, index]) is index


def test_pairs_of_one_strain_keep_the_order_of_the_nodes() -> None:
    assert pairs_of(index_of(set()).of(torch.tensor([4, 0, 2]), 1)) == [(4, 1), (0, 1), (2, 1)]
