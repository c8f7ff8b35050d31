"""How alike genes are in networks."""

from __future__ import annotations

import numpy as np
import pytest

from dglcell.baselines import similarity
from dglcell.baselines.similarity import gene_similarity
from dglcell.graph.cell_graph import CellGraph, Edges
from dglcell.graph.schema import CATALYSES, GENE, REACTION, Relation, gene_relation
from dglcell.graph.vocabulary import Vocabulary


def cell_of(num_genes: int, relations: dict[Relation, list[tuple[int, int]]], reactions: int = 0) -> CellGraph:
    vocabularies = {GENE: Vocabulary.of(f"g{i:04}" for i in range(num_genes))}
    if reactions:
        vocabularies[REACTION] = Vocabulary.of(f"r{i}" for i in range(reactions))
    edges = {name: Edges(*np.array(pairs, np.int64).T) for name, pairs in relations.items()}
    return CellGraph.assemble(vocabularies, edges)


def plain_similarity(num_genes: int, networks: list[list[tuple[int, int]]]) -> np.ndarray:
    total = np.zeros((num_genes, num_genes))
    for pairs in networks:
        links = np.zeros((num_genes, num_genes))
        for a, b in pairs:
            links[a, b] = links[b, a] = a != b
        walk = links / np.maximum(links.sum(1, keepdims=True), 1)
        profile = walk + 0.8 * walk @ walk + 0.64 * walk @ walk @ walk
        length = np.linalg.norm(profile, axis=1)
        cosine = profile @ profile.T / np.maximum(np.outer(length, length), 1e-30)
        total += cosine**2
    scale = np.sqrt(np.maximum(total.diagonal(), 1))
    return total / np.outer(scale, scale)


def test_it_is_the_sum_of_squared_cosines_of_walks() -> None:
    rng = np.random.default_rng(0)
    networks = [[(int(a), int(b)) for a, b in rng.integers(0, 20, (size, 2))] for size in (25, 40)]
    cell = cell_of(22, {gene_relation("one"): networks[0], gene_relation("two"): networks[1]})
    genes = np.array([3, 21, 7, 7, 12, 0])
    found = gene_similarity(cell, genes)
    assert found.genes.tolist() == [0, 3, 7, 12, 21]
    np.testing.assert_allclose(found.matrix, plain_similarity(22, networks)[:, found.genes], atol=1e-6)
    assert not found.matrix[21].any(), "gene 21 has no neighbour"


def test_genes_of_a_metabolic_model_are_linked_by_their_reactions() -> None:
    cell = cell_of(5, {CATALYSES: [(0, 0), (1, 0), (2, 0), (3, 1)]}, reactions=2)
    found = gene_similarity(cell, np.arange(5)).matrix
    np.testing.assert_allclose(found, plain_similarity(5, [[(0, 1), (0, 2), (1, 2)]]), atol=1e-6)


def test_a_relation_that_follows_from_the_others_does_not_count() -> None:
    links = {gene_relation("one"): [(0, 1), (1, 2)]}
    with_similar = cell_of(4, {**links, gene_relation("similar"): [(0, 3), (2, 3)]})
    np.testing.assert_array_equal(
        gene_similarity(with_similar, np.arange(4)).matrix, gene_similarity(cell_of(4, links), np.arange(4)).matrix
    )


def test_cosines_of_many_genes_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    cell = cell_of(60, {gene_relation("one"): [(int(a), int(b)) for a, b in rng.integers(0, 60, (90, 2))]})
    exact = gene_similarity(cell, np.arange(60)).matrix
    monkeypatch.setattr(similarity, "MOST_EXACT", 10)
    estimated = gene_similarity(cell, np.arange(60)).matrix
    assert np.abs(estimated - exact).max() < 0.15
    np.testing.assert_array_equal(estimated, gene_similarity(cell, np.arange(60)).matrix)
