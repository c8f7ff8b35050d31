from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dglcell.graph.cell_graph import Edges, merge_pairs

NODES = 8
Triple = tuple[int, int, float]
rows = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.integers(-5, 5).map(float)), max_size=40
)


def edges_of(triples: list[Triple]) -> Edges:
    array = np.array(triples, dtype=np.float64).reshape(-1, 3)
    return Edges(array[:, 0].astype(np.int64), array[:, 1].astype(np.int64), array[:, 2].astype(np.float32))


def triples_of(edges: Edges) -> list[Triple]:
    assert edges.weight is not None
    return list(zip(edges.src.tolist(), edges.dst.tolist(), edges.weight.tolist(), strict=True))


@given(rows)
def test_symmetrised_undirected_pairs(triples: list[Triple]) -> None:
    """Against a dictionary: the largest weight of the pair, in both directions, self-pairs once."""
    largest: dict[frozenset[int], float] = {}
    for a, b, weight in triples:
        pair = frozenset((a, b))
        largest[pair] = max(weight, largest.get(pair, -np.inf))
    expected = sorted((a, b, w) for pair, w in largest.items() for a in pair for b in pair if a != b or len(pair) == 1)
    assert sorted(triples_of(merge_pairs(edges_of(triples), ordered=False).symmetrised())) == expected


@given(rows)
def test_directed_pairs_stay_directed(triples: list[Triple]) -> None:
    largest: dict[tuple[int, int], float] = {}
    for a, b, weight in triples:
        largest[a, b] = max(weight, largest.get((a, b), -np.inf))
    merged = triples_of(merge_pairs(edges_of(triples), ordered=True))
    assert merged == [(a, b, w) for (a, b), w in largest.items()]


@given(rows)
def test_unsymmetrised_pairs_keep_the_direction_of_their_first_row(triples: list[Triple]) -> None:
    first = {frozenset((a, b)): (a, b) for a, b, _ in reversed(triples)}
    merged = merge_pairs(edges_of(triples), ordered=False)
    assert set(zip(merged.src.tolist(), merged.dst.tolist(), strict=True)) == set(first.values())
    assert len(merged) == len(first)


@given(rows)
def test_every_node_gets_one_self_loop(triples: list[Triple]) -> None:
    before = merge_pairs(edges_of(triples), ordered=True)
    after = before.with_self_loops(NODES)
    loops = {a: w for a, b, w in triples_of(after) if a == b}
    kept = {a: w for a, b, w in triples_of(before) if a == b}
    assert loops == {node: kept.get(node, 1.0) for node in range(NODES)}
    assert len(after) == len(before) + NODES - len(kept)


@given(rows)
def test_sorted_by_destination_then_source(triples: list[Triple]) -> None:
    ends = [(b, a) for a, b, _ in triples_of(edges_of(triples).sorted())]
    assert ends == sorted((b, a) for a, b, _ in triples)
