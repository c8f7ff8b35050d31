"""Growth of a network between two versions, against a loop over pairs of names."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.errors import ConfigError
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.edges import Edges
from dglcell.graph.growth import share_of_zeros_gone
from dglcell.graph.schema import GENE, gene_relation
from dglcell.graph.vocabulary import Vocabulary


def cell_of(genes: list[str], networks: dict[str, list[tuple[int, int]]]) -> CellGraph:
    """A cell of sorted genes and of edges between their positions."""
    ends = {name: np.array(pairs, dtype=np.int64).reshape(-1, 2) for name, pairs in networks.items()}
    relations = {gene_relation(name): Edges(pairs[:, 0], pairs[:, 1]) for name, pairs in ends.items()}
    return CellGraph.assemble({GENE: Vocabulary(tuple(genes))}, relations)


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[str], list[tuple[int, int]]]:
    genes = sorted(draw(st.sets(st.sampled_from("abcdefgh"), min_size=1)))
    position = st.integers(0, len(genes) - 1)
    return genes, draw(st.lists(st.tuples(position, position), max_size=20))


def pairs_of(genes: list[str], edges: list[tuple[int, int]]) -> set[frozenset[str]]:
    return {frozenset((genes[u], genes[v])) for u, v in edges if u != v}


@settings(max_examples=60)
@given(old=networks(), new=networks(), counted=st.sampled_from(["common", "all"]))
def test_the_share_of_zeros_gone_equals_a_loop_over_names(
    old: tuple[list[str], list[tuple[int, int]]], new: tuple[list[str], list[tuple[int, int]]], counted: str
) -> None:
    known = set(old[0]) & set(new[0])
    before, after = ({pair for pair in pairs_of(*version) if pair <= known} for version in (old, new))
    if counted == "common":
        known = {gene for pair in before for gene in pair} & {gene for pair in after for gene in pair}
    zeros = [pair for pair in map(frozenset, combinations(sorted(known), 2)) if pair not in before]
    expected = sum(pair in after for pair in zeros) / max(1, len(zeros))
    versions = [(cell_of(genes, {"net": edges}), "net") for genes, edges in (old, new)]
    assert share_of_zeros_gone(*versions, counted) == pytest.approx(expected)


def test_unknown_sets_of_genes_are_refused() -> None:
    version = cell_of(["a", "b"], {"net": [(0, 1)]}), "net"
    with pytest.raises(ConfigError, match=r"which genes count is unknown\n  got:      some\n  expected: common or all"):
        share_of_zeros_gone(version, version, "some")
