"""Relations that follow from others."""

from __future__ import annotations

import itertools

import cobra
import numpy as np
import pytest

from dglcell.errors import GraphError
from dglcell.graph.derived import DERIVED, Currency, derived_edges
from dglcell.graph.metabolism import Metabolism, enzyme_complexes


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
    assert np.array_equal(np.unique(metabolism.catalyses[0]), [0])
    for name in DERIVED:
        with pytest.raises(GraphError, match=f"'{name}' has no edges\n.*'toy' with 7 genes\n.*out of `derived`"):
            derived_edges(name, metabolism)
