"""The relation between genes with similar neighbours, against the definition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.errors import ConfigError, GraphError
from dglcell.graph import derived
from dglcell.graph.catalogue import NetworkConfig
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.cell_graph import Edges
from dglcell.graph.derived import SimilarityConfig, similar_genes
from dglcell.graph.schema import gene_relation


def by_definition(relations: list[Edges], genes: int, config: SimilarityConfig) -> np.ndarray:
    """[N, N] weight of the edge u → v at [v, u], from dense counts."""
    counts = np.eye(genes)
    for edges in relations:
        for u, v in zip(edges.src, edges.dst, strict=True):
            counts[v, u] += u != v
    weights = np.zeros((genes, genes))
    for v in range(genes):
        cosines = [counts[v] @ counts[u] / np.linalg.norm(counts[v]) / np.linalg.norm(counts[u]) for u in range(genes)]
        others = sorted((u for u in range(genes) if u != v), key=lambda u: (-round(cosines[u], 9), u))
        chosen = others[: config.neighbours]
        total = config.damping + sum(cosines[u] ** config.power for u in chosen)
        for u in chosen:
            weights[v, u] = cosines[u] ** config.power / total
    return weights


@settings(max_examples=40, deadline=None)
@given(
    genes=st.integers(2, 9),
    seed=st.integers(0, 1000),
    neighbours=st.integers(1, 9),
    power=st.sampled_from([0.5, 1.0, 4.0]),
    block=st.sampled_from([1, 4, 512]),
)
def test_weights_are_shares_of_the_largest_cosines(
    genes: int, seed: int, neighbours: int, power: float, block: int
) -> None:
    rng, config = np.random.default_rng(seed), SimilarityConfig(neighbours, power, damping=0.2)
    relations = [Edges(rng.integers(0, genes, n), rng.integers(0, genes, n)) for n in (0, 3, 15)]
    expected = by_definition(relations, genes, config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derived, "BLOCK", block)
        if not expected.any():
            with pytest.raises(GraphError, match="no two genes have a neighbour in common"):
                similar_genes(relations, genes, config)
            return
        edges = similar_genes(relations, genes, config)
    got = np.zeros((genes, genes))
    assert edges.weight is not None
    got[edges.dst, edges.src] = edges.weight
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert len(edges) == np.count_nonzero(expected)
    assert got.sum(1).max() < 1


def test_a_cell_has_the_relation_where_asked_for(tmp_path: Path) -> None:
    table = tmp_path / "complex.csv"
    table.write_text("a,b\nG1,HUB\nG2,HUB\nG3,OTHER\n")
    networks = {"physical": NetworkConfig(path=str(table), columns=["a", "b"])}
    config = CellConfig(networks=networks, similarity=SimilarityConfig(neighbours=1))
    cell = build_cell(config)
    edges = cell.edges(gene_relation("similar"))
    names = cell.genes.names
    pairs = {(names[u], names[v]) for u, v in zip(edges.src.tolist(), edges.dst.tolist(), strict=True)}
    assert ("G1", "G2") not in pairs or ("G2", "G1") in pairs
    assert {v for _, v in pairs} == set(cell.genes.names)
    assert edges.weight is not None
    assert edges.weight.max() < 1
    assert gene_relation("similar") not in build_cell(CellConfig(networks=networks)).relations


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"neighbours": 0}, r"`cell.similarity.neighbours` is too small"),
        ({"power": 0.0}, r"`cell.similarity.power` must be positive"),
        ({"damping": -1.0}, r"`cell.similarity.damping` must be positive"),
    ],
)
def test_bad_configurations_are_refused(changes: dict, message: str) -> None:
    config = CellConfig(model="textbook", similarity=SimilarityConfig(**changes))
    with pytest.raises(ConfigError, match=message):
        config.validate()
