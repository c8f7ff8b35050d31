"""Gene–protein–reaction rules, and metabolism as arrays."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import cobra
import numpy as np
import pytest
from cobra import Metabolite, Model, Reaction
from cobra.core.gene import GPR
from cobra.io import load_model
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import ConfigError, GraphError
from dglcell.graph.metabolism import Media, Metabolism, enzyme_complexes

GENES = [f"g{i}" for i in range(7)]


def rules(depth: int = 4) -> st.SearchStrategy[str]:
    def nest(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        joined = st.tuples(st.sampled_from([" and ", " or "]), st.lists(inner, min_size=2, max_size=3))
        return joined.map(lambda pair: "(" + pair[0].join(pair[1]) + ")")

    return st.recursive(st.sampled_from(GENES), nest, max_leaves=2**depth)


def complexes(rule: str) -> list[set[str]]:
    return [set(term) for term in enzyme_complexes(GPR.from_string(rule))]


@given(rule=rules(), knockouts=st.sets(st.sampled_from(GENES)))
def test_complexes_have_the_truth_value_of_the_rule(rule: str, knockouts: set[str]) -> None:
    parsed = GPR.from_string(rule)
    works = any(not term & knockouts for term in enzyme_complexes(parsed))
    assert works == parsed.eval(knockouts)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("", []),
        ("a", [{"a"}]),
        ("a and (b or (c and (d or e)))", [{"a", "b"}, {"a", "c", "d"}, {"a", "c", "e"}]),
        ("a or (a and b)", [{"a"}, {"a", "b"}]),
        ("YAL001C-A and Q0045", [{"Q0045", "YAL001C-A"}]),
    ],
)
def test_expansion(rule: str, expected: list[set[str]]) -> None:
    assert complexes(rule) == expected


def test_too_many_complexes() -> None:
    rule = GPR.from_string(" and ".join(f"(a{i} or b{i})" for i in range(12)))
    assert len(enzyme_complexes(rule, limit=4096)) == 4096
    assert len(enzyme_complexes(GPR.from_string("(a or b) or (a or b)"), limit=2)) == 2
    with pytest.raises(GraphError, match=r"'R1'.*too many enzyme complexes\n.*4,096 or fewer\n.*at most 4,095"):
        enzyme_complexes(rule, limit=4095, where="reaction 'R1'")


def genes_of(metabolism: Metabolism, node: str) -> set[str]:
    gene, reaction = metabolism.catalyses
    return {metabolism.genes.names[g] for g in gene[reaction == metabolism.reactions.index(node)]}


def stoichiometry_of(metabolism: Metabolism, node: str) -> dict[str, float]:
    reaction, metabolite = metabolism.converts
    edges = np.flatnonzero(reaction == metabolism.reactions.index(node))
    return {metabolism.metabolites.names[metabolite[e]]: float(metabolism.stoichiometry[e]) for e in edges}


def test_one_node_per_complex_and_direction(toy: cobra.Model) -> None:
    metabolism = Metabolism.from_model(toy)
    nodes = {"R1#1+", "R1#2+", "R2#1+", "R2#1-", "R2#2+", "R2#2-", "EX-", "OFF#1+"}
    assert set(metabolism.reactions.names) == nodes
    assert metabolism.reactions.names == tuple(sorted(nodes))
    assert genes_of(metabolism, "R1#1+") == {"g1", "g2"}
    assert genes_of(metabolism, "R1#2+") == {"g3"}
    assert genes_of(metabolism, "R2#1-") == {"g4", "g6"}
    assert genes_of(metabolism, "R2#2+") == {"g5", "g6"}
    assert genes_of(metabolism, "EX-") == set()


def test_stoichiometry_is_signed_and_turns_with_the_direction(toy: cobra.Model) -> None:
    metabolism = Metabolism.from_model(toy)
    assert stoichiometry_of(metabolism, "R1#2+") == {"a_c": -1, "atp_c": -2, "b_c": 1}
    assert stoichiometry_of(metabolism, "R2#1+") == {"b_c": -1, "atp_c": 1, "c_c": 3}
    assert stoichiometry_of(metabolism, "R2#1-") == {"b_c": 1, "atp_c": -1, "c_c": -3}
    assert stoichiometry_of(metabolism, "EX-") == {"c_c": 1}


def test_a_model_that_cobra_ships_is_whole(textbook: Metabolism) -> None:
    sizes = len(textbook.genes), len(textbook.model_reactions), len(textbook.metabolites)
    assert sizes == (137, 95, 72)
    assert len(np.unique(textbook.catalyses[0])) == 137
    assert textbook.provenance["sha256"]


def test_reaction_nodes_lose_function_as_cobra_says(textbook: Metabolism) -> None:
    """A model reaction works exactly if one of its nodes keeps all its genes: all singles and some triples."""
    model = cobra.io.load_model("textbook")
    gene, node = textbook.catalyses
    singles = [[g] for g in range(len(textbook.genes))]
    triples = [list(t) for t in itertools.islice(itertools.combinations(range(len(textbook.genes)), 3), 0, None, 2003)]
    for deleted in singles + triples:
        kept = np.ones(len(textbook.reactions), dtype=bool)
        kept[node[np.isin(gene, deleted)]] = False
        works = np.zeros(len(textbook.model_reactions), dtype=bool)
        np.logical_or.at(works, textbook.model_reaction_of, kept)
        names = {textbook.genes.names[g] for g in deleted}
        expected = [model.reactions.get_by_id(r).gpr.eval(names) for r in textbook.model_reactions.names]
        assert works.tolist() == expected


@pytest.mark.raw
def test_yeast_gem(raw: Path) -> None:
    """The counts of the original construction, in which every AND-term of every rule is a node.

    Blocked reactions (7, of which 4 have rules) keep one node each.
    """
    metabolism = Metabolism.read("metabolism/yeast-GEM_9.0.2.mat", str(raw))
    assert len(metabolism.genes) == len(np.unique(metabolism.catalyses[0])) == 1161
    assert (len(metabolism.model_reactions), len(metabolism.metabolites)) == (4131, 2806)
    assert (len(metabolism.reactions), len(np.unique(metabolism.catalyses[1]))) == (7122, 4881)


@pytest.mark.parametrize("name", ["R1#1", "R1#7"])
def test_a_reaction_that_is_called_as_a_complex_of_another_is_refused(toy: cobra.Model, name: str) -> None:
    toy.add_reactions([cobra.Reaction(name)])
    with pytest.raises(GraphError, match=rf"'toy'.*called as enzyme complexes of others are\n  got:      {name}\n"):
        Metabolism.from_model(toy)


@pytest.mark.parametrize("kind", ["genes", "reactions", "metabolites"])
def test_models_without_a_part_are_refused(toy: cobra.Model, kind: str) -> None:
    if kind == "genes":
        for reaction in toy.reactions:
            reaction.gene_reaction_rule = ""
        cobra.manipulation.remove_genes(toy, list(toy.genes), remove_reactions=False)
    elif kind == "reactions":
        toy.remove_reactions(list(toy.reactions))
    else:
        toy.remove_metabolites(list(toy.metabolites))
    with pytest.raises(GraphError, match=f"'toy' has no {kind}"):
        Metabolism.from_model(toy)


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model("textbook")


def test_a_medium_changes_the_models_own(model: Model) -> None:
    media = Media.of(model, {"own": {}, "pyruvate": {"EX_pyr_e": 20, "EX_glc__D_e": 0}}, "cell.media")
    assert media.names == ("own", "pyruvate")
    assert media.exchanges == tuple(reaction.id for reaction in model.exchanges)
    own, pyruvate = (dict(zip(media.exchanges, row, strict=True)) for row in media.uptakes.tolist())
    assert {name: uptake for name, uptake in own.items() if uptake} == model.medium
    assert pyruvate == {**own, "EX_pyr_e": 20, "EX_glc__D_e": 0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"EX_glc_e": 1},
            r"`cell.media.m` names no exchange reaction of e_coli_core\n.*EX_glc_e\n.*\n.*did you mean EX_glc__D_e",
        ),
        ({"EX_o2_e": -1}, r"`cell.media.m.EX_o2_e` is no uptake\n  got:      -1\n"),
        ({"EX_o2_e": math.inf}, "`cell.media.m.EX_o2_e` is no uptake"),
    ],
)
def test_a_wrong_change_is_refused(model: Model, changes: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Media.of(model, {"m": changes}, "cell.media")
    with pytest.raises(ConfigError, match=r"`cell\.media\.empty` closes every exchange reaction"):
        Media.of(model, {"empty": dict.fromkeys(model.medium, 0.0)}, "cell.media")


@pytest.mark.parametrize(("compartments", "reason"), [((), "expected: "), (("e", "extracellular"), "got: .*several")])
def test_a_model_without_an_outside_is_refused(compartments: tuple[str, ...], reason: str) -> None:
    model = Model("m")
    for compartment in compartments:
        model.add_reactions([exchange := Reaction(f"EX_{compartment}")])
        exchange.add_metabolites({Metabolite(compartment, compartment=compartment): -1})
    with pytest.raises(GraphError, match=f"the metabolic model has no exchange reactions.*\n  {reason}"):
        Media.of(model, {"m": {"EX_e": 1}}, "cell.media")


def test_an_exchange_without_a_bound_takes_up_without_limit(model: Model) -> None:
    with model:
        model.reactions.EX_o2_e.lower_bound = -np.inf
        media = Media.of(model, {"own": {}}, "cell.media")
    assert media.uptakes[0, media.exchanges.index("EX_o2_e")] == np.inf
