"""Relations that follow from others."""

from __future__ import annotations

import itertools
from pathlib import Path

import cobra
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.errors import ConfigError, GraphError
from dglcell.graph import derived
from dglcell.graph.catalogue import NetworkConfig
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.cell_graph import Edges
from dglcell.graph.derived import DERIVED, Currency, SimilarityConfig, derived_edges, similar_genes
from dglcell.graph.metabolism import Metabolism, enzyme_complexes
from dglcell.graph.schema import gene_relation


def pairs(name: str, metabolism: Metabolism, currency: Currency | None = None) -> set[tuple[str, str]]:
    src, dst = derived_edges(name, metabolism, currency)
    edges = list(zip(src.tolist(), dst.tolist(), strict=True))
    assert len(set(edges)) == len(edges)
    assert {(b, a) for a, b in edges} == set(edges)
    names = metabolism.genes.names
    return {(names[a], names[b]) for a, b in edges if a < b}


def test_toy_relations(toy: cobra.Model) -> None:
    metabolism = Metabolism.from_model(toy)
    assert pairs("shares_complex", metabolism) == {("g1", "g2"), ("g4", "g6"), ("g5", "g6")}
    # g6 is in both complexes of R2, so it is no isoenzyme of g4 or g5.
    assert pairs("isoenzyme", metabolism) == {("g1", "g3"), ("g2", "g3"), ("g4", "g5")}
    r1, r2, off = {"g1", "g2", "g3"}, {"g4", "g5", "g6"}, {"g7"}
    neighbours = {(min(a, b), max(a, b)) for x, y in [(r1, r2), (r2, off), (r1, off)] for a in x for b in y}
    assert pairs("metabolic_neighbour", metabolism) == neighbours


def test_currency_joins_nothing(toy: cobra.Model) -> None:
    metabolism = Metabolism.from_model(toy)
    only_r1_r2 = Currency(metabolites=("a_c", "c_c", "b_c"))
    assert ("g1", "g4") in pairs("metabolic_neighbour", metabolism, only_r1_r2), "joined by ATP alone"
    assert ("g1", "g7") not in pairs("metabolic_neighbour", metabolism, only_r1_r2)
    with pytest.raises(GraphError, match="'metabolic_neighbour' has no edges"):
        derived_edges("metabolic_neighbour", metabolism, Currency(metabolites=metabolism.metabolites.names))


def test_currency_by_name_and_by_degree(textbook: Metabolism) -> None:
    def chosen(currency: Currency) -> set[str]:
        return {textbook.metabolites.names[i] for i in np.flatnonzero(currency.mask(textbook))}

    by_name = chosen(Currency())
    assert {"h_c", "h_e", "h2o_c", "atp_c", "nadh_c", "coa_c", "pi_c"} <= by_name
    assert not by_name & {"pyr_c", "pep_c", "accoa_c", "q8_c", "glu__L_c"}
    assert chosen(Currency(degree=10)) - by_name == {"pyr_c"}
    with pytest.raises(GraphError, match="unknown name 'atp'"):
        Currency(metabolites=("atp",)).mask(textbook)


def test_textbook_against_the_cobra_model(textbook: Metabolism) -> None:
    model = cobra.io.load_model("textbook")
    currency = {textbook.metabolites.names[i] for i in np.flatnonzero(Currency().mask(textbook))}
    complexes = {r.id: enzyme_complexes(r.gpr) for r in model.reactions}
    expected: dict[str, set[tuple[str, str]]] = {name: set() for name in DERIVED}
    for terms in complexes.values():
        together = {p for term in terms for p in itertools.permutations(sorted(term), 2)}
        expected["shares_complex"] |= together
        expected["isoenzyme"] |= set(itertools.permutations(sorted(frozenset().union(*terms)), 2)) - together
    for r, s in itertools.permutations(model.reactions, 2):
        shared = {m.id for m in r.metabolites} & {m.id for m in s.metabolites}
        if shared - currency:
            ends = itertools.product((g.id for g in r.genes), (g.id for g in s.genes))
            expected["metabolic_neighbour"] |= {(a, b) for a, b in ends if a != b}
    for name, both_ways in expected.items():
        assert pairs(name, textbook) == {(a, b) for a, b in both_ways if a < b}, name


def test_a_model_without_complexes_is_told_so(toy: cobra.Model) -> None:
    for reaction in toy.reactions:
        reaction.gene_reaction_rule = "g1" if reaction.id == "R1" else ""
    metabolism = Metabolism.from_model(toy)
    assert np.array_equal(metabolism.genes_with_rule, [0])
    for name in DERIVED:
        with pytest.raises(GraphError, match=f"'{name}' has no edges\n.*'toy' with 7 genes\n.*out of `derived`"):
            derived_edges(name, metabolism)


# The relation between genes with similar neighbours, against the definition.


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
