"""Sets of (node, strain) pairs against Python sets."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.perturbation.row_index import RowIndex, union

NODES, STRAINS = 6, 3
PAIRS = st.sets(st.tuples(st.integers(0, STRAINS - 1), st.integers(0, NODES - 1)))
"""(strain, node): as a tuple sorts."""


def index_of(pairs: set[tuple[int, int]]) -> RowIndex:
    mask_NB = torch.zeros(NODES, STRAINS, dtype=torch.bool)
    for strain, node in pairs:
        mask_NB[node, strain] = True
    return RowIndex.where(mask_NB)


def pairs_of(index: RowIndex) -> list[tuple[int, int]]:
    return list(zip(index.strains.tolist(), index.nodes.tolist(), strict=True))


@given(pairs=PAIRS)
def test_pairs_are_ordered_by_strain_then_node(pairs: set[tuple[int, int]]) -> None:
    index = index_of(pairs)
    assert pairs_of(index) == sorted(pairs)
    assert index.keys.tolist() == [strain * NODES + node for strain, node in sorted(pairs)]
    assert len(index) == len(pairs)
    assert (index.num_nodes, index.num_strains) == (NODES, STRAINS)


@given(pairs=PAIRS)
def test_the_table_says_where_every_pair_is(pairs: set[tuple[int, int]]) -> None:
    table = index_of(pairs).table
    assert (table.shape, table.dtype) == ((STRAINS, NODES), torch.int32)
    position = {pair: i for i, pair in enumerate(sorted(pairs))}
    for strain in range(STRAINS):
        for node in range(NODES):
            assert table[strain, node] == position.get((strain, node), len(pairs))


@given(pairs=PAIRS)
def test_positions_count_from_a_number(pairs: set[tuple[int, int]]) -> None:
    index = index_of(pairs)
    table = index.positions(missing=-1, first=10)
    assert torch.equal(table, torch.where(index.mask_BN, index.table + 10, -1))
    assert table.dtype == torch.int32


@given(sets=st.lists(PAIRS, min_size=1, max_size=3))
def test_a_union_has_every_pair_once_and_leaves_its_members_alone(sets: list[set[tuple[int, int]]]) -> None:
    members = [index_of(pairs) for pairs in sets]
    assert pairs_of(union(members)) == sorted(set().union(*sets))
    assert [pairs_of(member) for member in members] == [sorted(pairs) for pairs in sets]


def test_the_union_of_one_index_is_itself() -> None:
    index = index_of({(0, 1), (2, 0)})
    assert union([index, index]) is index


def test_no_pair_at_all() -> None:
    none = RowIndex.none(index_of({(0, 1)}))
    assert len(none) == 0
    assert none.table.shape == (STRAINS, NODES)
    assert not none.table.any()
