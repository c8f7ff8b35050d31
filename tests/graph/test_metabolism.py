"""Gene–protein–reaction rules, metabolism as arrays, and reactions that carry no flux at steady state."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import cobra
import numpy as np
import pytest
import torch
from cobra import Metabolite, Model, Reaction
from cobra.core.gene import GPR
from cobra.flux_analysis import find_blocked_reactions
from hypothesis import given
from hypothesis import strategies as st

from dglcell.errors import ConfigError, GraphError
from dglcell.graph.cell import CellConfig, build_cell, read_cell, save_cell
from dglcell.graph.metabolism import Metabolism, enzyme_complexes, media_uptakes, model_reaction
from dglcell.graph.resident import ResidentCell, SteadyState
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.models.terms.link import blocked_reactions
from dglcell.perturbation import STRATEGIES
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.sent import keep_masks
from tests.examples import examples

GENES = [f"g{i}" for i in range(7)]


def rules() -> st.SearchStrategy[str]:
    def nest(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        joined = st.tuples(st.sampled_from([" and ", " or "]), st.lists(inner, min_size=2, max_size=3))
        return joined.map(lambda pair: "(" + pair[0].join(pair[1]) + ")")

    return st.recursive(st.sampled_from(GENES), nest, max_leaves=16)


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
    # Stoichiometry is signed, and turns with the direction.
    assert stoichiometry_of(metabolism, "R1#2+") == {"a_c": -1, "atp_c": -2, "b_c": 1}
    assert stoichiometry_of(metabolism, "R2#1+") == {"b_c": -1, "atp_c": 1, "c_c": 3}
    assert stoichiometry_of(metabolism, "R2#1-") == {"b_c": 1, "atp_c": -1, "c_c": -3}
    assert stoichiometry_of(metabolism, "EX-") == {"c_c": 1}


def test_reaction_nodes_lose_function_as_cobra_says(core: Model, textbook: Metabolism) -> None:
    """A model reaction works exactly if one of its nodes keeps all its genes: all singles and some triples."""
    gene, node = textbook.catalyses
    singles = [[g] for g in range(len(textbook.genes))]
    triples = [list(t) for t in itertools.islice(itertools.combinations(range(len(textbook.genes)), 3), 0, None, 2003)]
    for deleted in singles + triples:
        kept = np.ones(len(textbook.reactions), dtype=bool)
        kept[node[np.isin(gene, deleted)]] = False
        works = np.zeros(len(textbook.model_reactions), dtype=bool)
        np.logical_or.at(works, textbook.model_reaction_of, kept)
        names = {textbook.genes.names[g] for g in deleted}
        expected = [core.reactions.get_by_id(r).gpr.eval(names) for r in textbook.model_reactions.names]
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
    with pytest.raises(GraphError, match=rf"'toy'.*end as those of enzyme complexes do\n  got:      {name}\n"):
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


def test_a_medium_changes_the_models_own(core: Model) -> None:
    pyruvate = {"EX_pyr_e": 20, "EX_glc__D_e": 0}
    media = media_uptakes(core, {"own": {}, "pyruvate": pyruvate}, "cell.media")
    assert list(media["own"]) == list(media["pyruvate"]) == [reaction.id for reaction in core.exchanges]
    assert {name: uptake for name, uptake in media["own"].items() if uptake} == core.medium
    assert media["pyruvate"] == {**media["own"], **pyruvate}


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
def test_a_wrong_change_is_refused(core: Model, changes: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        media_uptakes(core, {"m": changes}, "cell.media")
    with pytest.raises(ConfigError, match=r"`cell\.media\.empty` closes every exchange reaction"):
        media_uptakes(core, {"empty": dict.fromkeys(core.medium, 0.0)}, "cell.media")


@pytest.mark.parametrize(("compartments", "reason"), [((), "expected: "), (("e", "extracellular"), "got: .*several")])
def test_a_model_without_an_outside_is_refused(compartments: tuple[str, ...], reason: str) -> None:
    model = Model("m")
    for compartment in compartments:
        model.add_reactions([exchange := Reaction(f"EX_{compartment}")])
        exchange.add_metabolites({Metabolite(compartment, compartment=compartment): -1})
    with pytest.raises(GraphError, match=f"the metabolic model has no exchange reactions.*\n  {reason}"):
        media_uptakes(model, {"m": {"EX_e": 1}}, "cell.media")


def test_an_exchange_without_a_bound_takes_up_without_limit(core: Model) -> None:
    with core:
        core.reactions.EX_o2_e.lower_bound = -np.inf
        media = media_uptakes(core, {"own": {}}, "cell.media")
    assert media["own"]["EX_o2_e"] == np.inf


Column = tuple[tuple[int, int], ...]
"""The metabolites of a reaction node, each with its amount."""

METABOLITES = 5


@st.composite
def networks(draw: Any) -> list[Column]:
    """Reaction nodes, of which some have the same metabolites and some are the reverse of another."""
    amounts = st.dictionaries(st.integers(0, METABOLITES - 1), st.sampled_from([-2, -1, 1, 2]), min_size=1, max_size=3)
    columns = [tuple(sorted(column.items())) for column in draw(st.lists(amounts, min_size=3, max_size=9))]
    for column in draw(st.lists(st.sampled_from(columns), max_size=4)):
        columns.append(tuple((m, -n) for m, n in column) if draw(st.booleans()) else column)
    return columns


def flowing(columns: list[Column], lost: set[int]) -> set[Column]:
    """Return the kinds of reactions that pass the test of each metabolite, by trying one after the other."""
    left = {column for i, column in enumerate(columns) if i not in lost}
    while True:
        column = next((column for column in left if not flows(column, left)), None)
        if column is None:
            return left
        left = left - {column}


def flows(column: Column, left: set[Column]) -> bool:
    """Return whether other reactions use what a reaction makes and make what it uses; its reverse is no other."""
    others = left - {column, tuple((m, -n) for m, n in column)}
    sides = {(m, n > 0) for other in others for m, n in other}
    return all((m, n < 0) in sides for m, n in column)


def steady_state(columns: list[Column]) -> SteadyState:
    nodes = [i for i, column in enumerate(columns) for _ in column]
    metabolites, amounts = zip(*(pair for column in columns for pair in column), strict=True)
    arrays = np.array(nodes), np.array(metabolites), np.array(amounts, dtype=np.float32)
    return SteadyState(*arrays, len(columns), METABOLITES)


@examples(100)
@given(data=st.data(), columns=networks())
def test_what_is_blocked_is_found_one_by_one_too(data: Any, columns: list[Column]) -> None:
    strains = data.draw(st.lists(st.sets(st.integers(0, len(columns) - 1)), min_size=1, max_size=4))
    lost_NB = torch.zeros(len(columns), len(strains), dtype=torch.bool)
    for b, strain in enumerate(strains):
        lost_NB[list(strain), b] = True
    found = steady_state(columns).blocked(lost_NB)
    wild_type = flowing(columns, set())
    for b, strain in enumerate(strains):
        left = flowing(columns, strain)
        expected = [column in wild_type and column not in left for column in columns]
        assert found[:, b].tolist() == expected


def resident(**changes: Any) -> tuple[ResidentCell, list[str]]:
    cell = build_cell(CellConfig(model="textbook", **changes))
    return ResidentCell.of(cell), [model_reaction(name) for name in cell.vocabularies["reaction"].names]


def test_strains_lose_only_what_carries_no_flux_in_linear_programmes_either(core: Model) -> None:
    with_blocked, reactions = resident(lose_blocked=True)
    by_rules, _ = resident()
    names = sorted(gene.id for gene in core.genes)
    strains = [[names.index(gene)] for gene in ("b0720", "b1136", "b2926", "b0008", "b1779")]
    batch = GenotypeBatch.from_lists(strains)
    kept, kept_by_rules = (keep_masks(cell, batch)["reaction"] for cell in (with_blocked, by_rules))
    assert not (kept & ~kept_by_rules).any()
    beyond = 0
    for b, strain in enumerate(strains):
        with core:
            for gene in strain:
                core.genes.get_by_id(names[gene]).knock_out()
            blocked = set(find_blocked_reactions(core, open_exchanges=False, processes=1))
        lost = {reactions[i] for i in (kept_by_rules & ~kept)[:, b].nonzero().squeeze(1).tolist()}
        assert lost <= blocked
        beyond += len(lost)
    assert beyond > 5


def test_a_batch_is_followed_once_and_another_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, _ = resident(lose_blocked=True)
    assert cell.steady_state is not None
    seen, original = [], cell.steady_state.blocked
    monkeypatch.setattr(cell.steady_state, "blocked", lambda lost_NB: seen.append(1) or original(lost_NB))
    first, second = (GenotypeBatch.from_lists(strains) for strains in ([[7], [20, 90]], [[3], [55]]))
    for batch, number in ((first, 1), (first, 1), (second, 2), (replace(second, shared=()), 2), (first, 3)):
        found = blocked_reactions(cell, batch)
        assert len(seen) == number
        assert torch.equal(found, original(~keep_masks(cell, batch)["reaction"]))


def test_a_cell_graph_keeps_it_in_its_file_and_in_its_hash(tmp_path: Path) -> None:
    cell, other = (build_cell(CellConfig(model="textbook", lose_blocked=value)) for value in (True, False))
    assert cell.sha256 != other.sha256
    for name, one in {"with": cell, "without": other}.items():
        save_cell(one, tmp_path / name)
        read = read_cell(tmp_path / name)
        assert (read.sha256, read.lose_blocked) == (one.sha256, one.lose_blocked)
    meta = json.loads((tmp_path / "with" / "cell.json").read_text())
    (tmp_path / "with" / "cell.json").write_text(json.dumps({**meta, "lose_blocked": False}))
    with pytest.raises(GraphError, match="is damaged"):
        read_cell(tmp_path / "with")


def test_all_strategies_compute_on_the_same_strains() -> None:
    batch = GenotypeBatch.from_lists([[7], [20, 90], [3, 55, 101], []])
    found = {}
    for strategy in STRATEGIES:
        torch.manual_seed(0)
        config = HeteroCellConfig(hidden=8, layers=2, local_heads=2, pool=["gene", "reaction"], strategy=strategy)
        model = HeteroCell(resident(lose_blocked=True)[0], config).double()
        found[strategy] = model(batch).phenotypes
    for strategy, phenotypes in found.items():
        torch.testing.assert_close(phenotypes, found["edge_subgraph"], atol=1e-10, rtol=0, msg=strategy)
    torch.manual_seed(0)
    by_rules = HeteroCell(resident()[0], config).double()(batch).phenotypes
    assert (by_rules - found["difference"]).abs().max() > 1e-6
