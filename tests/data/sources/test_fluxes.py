"""Fluxes and shadow prices of an in-silico screen: like cobra's or proved, shared by strains, and beside the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cobra import Model
from cobra.exceptions import OptimizationError
from cobra.flux_analysis import pfba

from dglcell.data.columns import NODE_ROW, Column
from dglcell.data.node_values import NOT_MEASURED
from dglcell.data.sources.config import InSilicoConfig
from dglcell.data.sources.fba import NO_FLUX, FluxProblem, FluxSolver
from dglcell.data.sources.fluxes import FLUX, PRICE, UNITS
from dglcell.data.sources.insilico import load_insilico
from dglcell.data.store import Store
from dglcell.data.store_build import build_store
from dglcell.data.strains import Strains
from dglcell.errors import DataError
from dglcell.graph.model_files import read_model


@pytest.fixture(scope="module")
def model() -> Model:
    """The E. coli core model."""
    return read_model("textbook")


@pytest.fixture(scope="module")
def screen() -> Strains:
    """Single deletions, and a few hundred pairs, with their fluxes and shadow prices."""
    return load_insilico(InSilicoConfig(pairs="300", triples="none", processes=1, fluxes=True, prices=True))


def of_cobra(model: Model, genes: list[str]) -> np.ndarray | None:
    """Fluxes of a deletion strain by cobra's own parsimonious flux balance analysis; None without a steady state."""
    with model:
        for gene in genes:
            model.genes.get_by_id(gene).knock_out()
        try:
            return pfba(model).fluxes.to_numpy()
        except OptimizationError:
            return None


def test_fluxes_are_those_of_cobra(model: Model, screen: Strains) -> None:
    values, rows = screen.nodes[FLUX], screen.columns[Column(NODE_ROW, FLUX)]
    assert values.names == tuple(reaction.id for reaction in model.reactions)
    assert (values.type, values.unit) == ("reaction", UNITS[FLUX])
    of_wild_type = of_cobra(model, [])
    assert of_wild_type is not None
    np.testing.assert_allclose(values.wild_type, of_wild_type, atol=1e-5)
    matrix, without = model.problem.__name__, 0
    assert matrix
    for strain in range(0, len(screen), 11):
        expected = of_cobra(model, screen.genotypes[strain])
        if expected is None:
            assert rows[strain] == NOT_MEASURED
            without += 1
            continue
        found = np.array(values.values[rows[strain]], np.float64)
        # The least total flux is one number; the vector that has it need not be the only one.
        assert np.abs(found).sum() == pytest.approx(np.abs(expected).sum(), rel=1e-5)
        if np.abs(found - expected).max() > 1e-4:
            assert is_steady(model, found)
    assert without


def is_steady(model: Model, fluxes: np.ndarray) -> bool:
    """Whether fluxes are in balance, and within the bounds of the cell without deletions."""
    problem = FluxProblem.of(model, tolerance=1e-9, time_limit=10)
    balance = np.zeros(problem.shape[0])
    np.add.at(balance, problem.rows, problem.values * fluxes[problem.columns])
    within = (fluxes >= problem.lower - 1e-4) & (fluxes <= problem.upper + 1e-4)
    return bool(np.abs(balance).max() < 1e-3 and within.all())


def test_strains_share_vectors_and_growth_is_theirs(model: Model, screen: Strains) -> None:
    values, rows = screen.nodes[FLUX], screen.columns[Column(NODE_ROW, FLUX)]
    assert len(values.values) < len(np.unique(rows[rows >= 0])) + 2
    assert (rows == 0).sum() > 10  # deletions that the wild type does not notice
    grown = np.asarray(values.values)[:, model.reactions.index("Biomass_Ecoli_core")]
    measured = rows >= 0
    fitness = screen.phenotypes["fitness"][measured]
    np.testing.assert_allclose(grown[rows[measured]] / grown[0], fitness, atol=1e-5)
    assert (screen.phenotypes["fitness"][~measured] == 0).all()


def test_phenotypes_and_store_are_the_same_with_fluxes(tmp_path: Path, screen: Strains) -> None:
    plain = load_insilico(InSilicoConfig(pairs="300", triples="none", processes=1))
    assert plain.sha256 == screen.sha256
    store = build_store(screen, tmp_path / "store", command="test")
    assert store.sha256 == plain.sha256
    store.verify()
    read = Store(tmp_path / "store").read()
    assert isinstance(read.nodes[FLUX].values, np.memmap)
    np.testing.assert_array_equal(read.nodes[FLUX].values, screen.nodes[FLUX].values)
    np.testing.assert_array_equal(read.columns[Column(NODE_ROW, FLUX)], screen.columns[Column(NODE_ROW, FLUX)])
    build_store(plain, tmp_path / "store", command="test", overwrite=True)
    assert not Store(tmp_path / "store").read().nodes


def bound_of(model: Model, prices: np.ndarray) -> float:
    """The growth that prices allow at most: no flux vector within the bounds of the model grows faster."""
    problem = FluxProblem.of(model, tolerance=1e-9, time_limit=10)
    reduced = problem.objective.copy()
    np.subtract.at(reduced, problem.columns, problem.values * prices[problem.rows])
    reduced[np.abs(reduced) < 1e-6] = 0  # float32 prices
    return float(np.maximum(reduced * problem.lower, reduced * problem.upper).sum())


def test_shadow_prices_prove_the_growth_of_their_strains(model: Model, screen: Strains) -> None:
    values, rows = screen.nodes[PRICE], screen.columns[Column(NODE_ROW, PRICE)]
    assert values.names == tuple(metabolite.id for metabolite in model.metabolites)
    assert (values.type, values.unit) == ("metabolite", UNITS[PRICE])
    np.testing.assert_array_equal(rows == NOT_MEASURED, screen.columns[Column(NODE_ROW, FLUX)] == NOT_MEASURED)
    wild_type = model.slim_optimize()
    assert bound_of(model, np.array(values.wild_type, np.float64)) == pytest.approx(wild_type, abs=1e-3)
    assert len(values.values) > 10
    for strain in [*range(0, len(screen), 11), *np.flatnonzero(rows == 0)[:5]]:
        if rows[strain] == NOT_MEASURED:
            continue
        with model:
            for gene in screen.genotypes[strain]:
                model.genes.get_by_id(gene).knock_out()
            growth = wild_type * float(screen.phenotypes["fitness"][strain])
            assert bound_of(model, np.array(values.values[rows[strain]], np.float64)) == pytest.approx(growth, abs=1e-3)


def test_shadow_prices_alone_are_those_beside_fluxes(screen: Strains) -> None:
    alone = load_insilico(InSilicoConfig(pairs="300", triples="none", processes=1, prices=True))
    assert list(alone.nodes) == [PRICE]
    assert alone.sha256 == screen.sha256
    of, beside = alone.nodes[PRICE], screen.nodes[PRICE]
    np.testing.assert_array_equal(of.wild_type, beside.wild_type)
    column = Column(NODE_ROW, PRICE)
    both = (alone.columns[column] > 0) & (screen.columns[column] > 0)
    mine, theirs = of.values[alone.columns[column][both]], beside.values[screen.columns[column][both]]
    np.testing.assert_array_equal(mine, theirs)
    assert both.sum() > 50


def test_strengths_and_media_have_fluxes_within_their_limits(model: Model) -> None:
    config = InSilicoConfig(
        pairs="none",
        triples="none",
        processes=1,
        fluxes=True,
        prices=True,
        strengths=[0.0, 0.5],
        media={"little": {"EX_glc__D_e": 5.0}},
    )
    strains = load_insilico(config)
    values, rows = strains.nodes[FLUX], strains.columns[Column(NODE_ROW, FLUX)]
    uptake = np.asarray(values.values)[:, model.reactions.index("EX_glc__D_e")]
    assert uptake[0] == pytest.approx(-10)  # the wild type in its own medium is the reference
    assert uptake[rows[0]] == pytest.approx(-5)  # the first strain is the wild type in this medium
    assert (uptake[rows[rows >= 0]] >= -5 - 1e-5).all()
    grown = np.asarray(values.values)[:, model.reactions.index("Biomass_Ecoli_core")]
    fitness = strains.phenotypes["fitness"]
    np.testing.assert_allclose(grown[rows[rows >= 0]] / grown[0], fitness[rows >= 0], atol=1e-5)
    prices, rows = strains.nodes[PRICE], strains.columns[Column(NODE_ROW, PRICE)]
    with model:
        model.reactions.EX_glc__D_e.lower_bound = -5
        bound = bound_of(model, np.array(prices.values[rows[0]], np.float64))
    assert bound == pytest.approx(fitness[0] * grown[0], abs=1e-3)


def test_a_solver_without_time_is_named(model: Model) -> None:
    problem = FluxProblem.of(model, tolerance=1e-9, time_limit=60)
    solver = FluxSolver(replace(problem, parsimonious=True))
    found = solver.solve(np.zeros(0, np.int64))
    assert found.fluxes is not None
    assert ((found.fluxes == 0) | (np.abs(found.fluxes) > NO_FLUX)).all()
    plain = FluxSolver(problem).solve(np.zeros(0, np.int64))
    assert (plain.fluxes, plain.prices) == (None, None)


def test_damaged_files_beside_a_store_are_named(tmp_path: Path, screen: Strains) -> None:
    store = build_store(screen, tmp_path / "store", command="test")
    file = tmp_path / "store" / "nodes.flux.values.npy"
    content = file.read_bytes()
    file.write_bytes(content[:-4] + b"\0\0\0\1")
    with pytest.raises(DataError, match=r"(?s)nodes.flux.values.npy' does not hold the values.*another sha256"):
        store.verify()
    file.write_bytes(content[:-400])
    with pytest.raises(DataError, match=r"(?s)nodes.flux.json' does not hold the values.*--overwrite"):
        store.read()
    file.unlink()
    with pytest.raises(DataError, match="does not hold the values"):
        store.read()
