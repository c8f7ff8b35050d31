"""Sets of (node, strain) pairs against Python sets."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.perturbation.base_rows import RowIndex, union
from tests.examples import examples

NODES, STRAINS = 6, 3
PAIRS = st.sets(st.tuples(st.integers(0, NODES - 1), st.integers(0, STRAINS - 1)))
"""(node, strain): as a tuple sorts."""


def index_of(pairs: set[tuple[int, int]]) -> RowIndex:
    mask_NB = torch.zeros(NODES, STRAINS, dtype=torch.bool)
    for pair in pairs:
        mask_NB[pair] = True
    return RowIndex(mask_NB)


def pairs_of(index: RowIndex) -> list[tuple[int, int]]:
    return list(zip(index.nodes.tolist(), index.strains.tolist(), strict=True))


@examples(15)
@given(pairs=PAIRS)
def test_pairs_are_ordered_by_node_then_strain(pairs: set[tuple[int, int]]) -> None:
    index = index_of(pairs)
    assert pairs_of(index) == sorted(pairs)
    assert index.keys.tolist() == [node * STRAINS + strain for node, strain in sorted(pairs)]
    assert (len(index), index.num_nodes, index.num_strains) == (len(pairs), NODES, STRAINS)
    for node in range(NODES):
        mine = slice(*index.starts[node : node + 2].tolist())
        assert pairs_of(index)[mine] == [pair for pair in sorted(pairs) if pair[0] == node]


@examples(15)
@given(pairs=PAIRS, others=PAIRS)
def test_the_table_says_where_every_pair_is(pairs: set[tuple[int, int]], others: set[tuple[int, int]]) -> None:
    index, position = index_of(pairs), {pair: i for i, pair in enumerate(sorted(pairs))}
    assert (index.table.shape, index.table.dtype) == ((NODES, STRAINS), torch.int32)
    assert index.table.tolist() == [[position.get((v, b), -1) for b in range(STRAINS)] for v in range(NODES)]
    assert index.positions(index_of(others)).tolist() == [position.get(pair, -1) for pair in sorted(others)]


@examples(15)
@given(sets=st.lists(PAIRS, min_size=1, max_size=3))
def test_a_union_has_every_pair_once_and_leaves_its_members_alone(sets: list[set[tuple[int, int]]]) -> None:
    members = [index_of(pairs) for pairs in sets]
    assert pairs_of(union(members)) == sorted(set().union(*sets))
    assert [pairs_of(member) for member in members] == [sorted(pairs) for pairs in sets]


def test_the_union_with_subsets_is_the_index_itself() -> None:
    index = index_of({(0, 1), (2, 0)})
    assert union([index, index]) is index
    assert union([index_of({(2, 0)}), index, index_of(set())]) is index
