"""Ranges of fluxes of an in-silico screen: like cobra's flux variability analysis, and shared by strains."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cobra import Metabolite, Model, Reaction
from cobra.flux_analysis import flux_variability_analysis
from cobra.io import save_json_model
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.columns import NODE_ROW, Column
from dglcell.data.node_values import NOT_MEASURED
from dglcell.data.sources.config import InSilicoConfig
from dglcell.data.sources.fba import FluxProblem, FluxSolver
from dglcell.data.sources.fluxes import FLUX, HIGHEST, LOWEST, UNITS, FluxTable
from dglcell.data.sources.growth import KnockoutRules
from dglcell.data.sources.insilico import load_insilico
from dglcell.data.strains import Strains
from dglcell.errors import DataError
from dglcell.graph.model_files import read_model

CORE = read_model("textbook")
GENES = sorted(gene.id for gene in CORE.genes)
PROBLEM = replace(FluxProblem.of(CORE, tolerance=1e-9, time_limit=60), ranged=True)
SOLVER = FluxSolver(PROBLEM)
RULES = KnockoutRules.of(CORE)

ONE = InSilicoConfig(pairs="40", triples="none", processes=1, fluxes=True, ranges=True)


@pytest.fixture(scope="module")
def screen() -> Strains:
    """Single deletions and forty pairs of the E. coli core model, with their fluxes and the ranges of these."""
    return load_insilico(ONE)


def ranges_of(genes: list[str]) -> np.ndarray | None:
    """The ranges of a strain without these genes, by a solver of its own; None without a steady state."""
    alleles = np.array([[GENES.index(gene) for gene in sorted(genes)]], dtype=np.int32)
    return SOLVER.solve(RULES.reactions_of(RULES.blocked(alleles)[0])).ranges


@given(
    st.lists(st.sampled_from(GENES), max_size=3, unique=True),
    st.lists(st.integers(0, len(CORE.reactions) - 1), min_size=4, max_size=8, unique=True),
)
def test_ranges_are_those_of_cobra(genes: list[str], chosen: list[int]) -> None:
    found = ranges_of(genes)
    with CORE:
        for gene in genes:
            CORE.genes.get_by_id(gene).knock_out()
        grows = CORE.slim_optimize()
        if np.isnan(grows):
            assert found is None
            return
        reactions = [CORE.reactions[j] for j in chosen]
        table = flux_variability_analysis(CORE, reactions, fraction_of_optimum=1.0, processes=1)
    assert found is not None
    assert (found[0] <= found[1]).all()
    np.testing.assert_allclose(found[:, chosen], table[["minimum", "maximum"]].to_numpy().T, atol=1e-4, rtol=1e-5)


def test_strains_share_ranges_that_are_their_own(screen: Strains) -> None:
    rows = screen.columns[Column(NODE_ROW, LOWEST)]
    np.testing.assert_array_equal(rows == NOT_MEASURED, screen.columns[Column(NODE_ROW, HIGHEST)] == NOT_MEASURED)
    lowest, highest = (screen.nodes[kind] for kind in (LOWEST, HIGHEST))
    assert lowest.names == highest.names == tuple(reaction.id for reaction in CORE.reactions)
    assert (lowest.type, lowest.unit, highest.unit) == ("reaction", UNITS[LOWEST], UNITS[HIGHEST])
    assert (rows == 0).sum() > 5  # deletions that change no range
    for strain in range(0, len(screen), 7):
        expected = ranges_of(screen.genotypes[strain])
        if expected is None:
            assert rows[strain] == NOT_MEASURED
            continue
        np.testing.assert_allclose(lowest.values[rows[strain]], expected[0], atol=1e-4)
        np.testing.assert_allclose(
            highest.values[screen.columns[Column(NODE_ROW, HIGHEST)][strain]], expected[1], atol=1e-4
        )


def test_fluxes_lie_in_their_ranges_and_are_what_they_are_without(screen: Strains) -> None:
    plain = load_insilico(replace(ONE, ranges=False))
    assert plain.sha256 == screen.sha256
    np.testing.assert_array_equal(plain.nodes[FLUX].values, screen.nodes[FLUX].values)
    column = {kind: screen.columns[Column(NODE_ROW, kind)] for kind in (FLUX, LOWEST, HIGHEST)}
    np.testing.assert_array_equal(column[FLUX], plain.columns[Column(NODE_ROW, FLUX)])
    measured = column[FLUX] >= 0
    flux, lowest, highest = (np.asarray(screen.nodes[kind].values)[of[measured]] for kind, of in column.items())
    assert (lowest - 1e-4 <= flux).all()
    assert (flux <= highest + 1e-4).all()


def test_weakened_genes_and_media_have_ranges_of_their_own() -> None:
    media = {"own": {}, "little": {"EX_glc__D_e": 5.0}}
    strains = load_insilico(
        InSilicoConfig(pairs="none", triples="none", processes=1, ranges=True, strengths=[0.5], media=media)
    )
    uptake = np.asarray(strains.nodes[LOWEST].values)[:, CORE.reactions.index("EX_glc__D_e")]
    rows = strains.columns[Column(NODE_ROW, LOWEST)]
    first_in_little = len(strains) // 2
    assert uptake[[0, rows[0], rows[first_in_little]]] == pytest.approx([-10, -10, -5])
    assert (uptake[rows[first_in_little:][rows[first_in_little:] >= 0]] >= -5 - 1e-5).all()
    top = np.asarray(strains.nodes[HIGHEST].values)[:, CORE.reactions.index("Biomass_Ecoli_core")]
    fitness, of = strains.phenotypes["fitness"], strains.columns[Column(NODE_ROW, HIGHEST)]
    np.testing.assert_allclose(top[of] / top[0], fitness, atol=1e-5)


def loop(tmp_path: Path, *, bound: float) -> str:
    """A model that grows on one nutrient, with two reactions that may turn round each other up to a bound."""
    model = Model("loop")
    a, b = Metabolite("a_c", compartment="c"), Metabolite("b_c", compartment="c")
    for name, made, least, most in (
        ("EX_a", {a: -1}, -10, 0),
        ("there", {a: -1, b: 1}, 0, bound),
        ("back", {a: 1, b: -1}, 0, bound),
        ("growth", {a: -1}, 0, 1000),
    ):
        reaction = Reaction(name, lower_bound=least, upper_bound=most)
        model.add_reactions([reaction])
        reaction.add_metabolites(made)
    model.reactions.growth.gene_reaction_rule = "g1 or g2"
    model.reactions.there.gene_reaction_rule = "g3"
    model.objective = "growth"
    path = tmp_path / "loop.json"
    save_json_model(model, os.fspath(path))
    return str(path)


def test_a_loop_has_the_range_that_its_bounds_allow_and_without_bounds_is_refused(tmp_path: Path) -> None:
    config = InSilicoConfig(loop(tmp_path, bound=7), pairs="none", triples="none", processes=1, ranges=True)
    strains = load_insilico(config)
    assert strains.nodes[HIGHEST].wild_type.tolist() == [-10, 7, 7, 10]
    assert strains.nodes[LOWEST].wild_type.tolist() == [-10, 0, 0, 10]
    without = strains.columns[Column(NODE_ROW, HIGHEST)][strains.genotypes.index(["g3"])]
    assert strains.nodes[HIGHEST].values[without].tolist() == [-10, 0, 0, 10]
    with pytest.raises(
        DataError,
        match=r"(?s)nothing limits fluxes of the wild type.*got: +there, back.*`data.source.insilico.ranges: false`",
    ):
        load_insilico(replace(config, model=loop(tmp_path, bound=float("inf"))))


def test_ranges_without_an_answer_are_missing_and_of_the_wild_type_refused() -> None:
    solver = FluxSolver(PROBLEM)
    solver._parameters.it_lim = solver._presolving.it_lim = 1  # type: ignore[attr-defined]
    found = solver.solve(np.zeros(0, np.int64))  # its growth needs no step, and a range several
    assert found.value > 0
    assert found.ranges is None
    table = FluxTable(CORE, PROBLEM, [LOWEST, HIGHEST])
    with pytest.raises(DataError, match=r"(?s)found no ranges of the wild type.*without an answer.*ranges: false"):
        table._of_wild_type(solver, PROBLEM)
