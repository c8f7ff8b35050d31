"""Features of reactions and metabolites that follow from the cell without deletions."""

from __future__ import annotations

import cobra
import pytest
import torch

from dglcell.errors import GraphError
from dglcell.graph.features import COLUMNS, wild_type_features, wild_type_fluxes
from dglcell.graph.metabolism import Metabolism


@pytest.fixture(scope="module")
def model() -> cobra.Model:
    return cobra.io.load_model("textbook")


@pytest.fixture(scope="module")
def metabolism(model: cobra.Model) -> Metabolism:
    return Metabolism.from_model(model)


def row_of(model: cobra.Model, node_type: str, name: str) -> list[float]:
    return [float(x) for x in COLUMNS[node_type](model, wild_type_fluxes(model), [name])[0]]


def test_a_reaction_has_its_flux_in_its_own_direction(model: cobra.Model) -> None:
    flux = wild_type_fluxes(model)["PGI"]
    forward, backward = (row_of(model, "reaction", f"PGI#1{sign}") for sign in "+-")
    assert flux == pytest.approx(4.861, abs=1e-3)
    assert forward[:4] == pytest.approx([1, flux, 1.768, 1], abs=1e-3)
    assert backward[:4] == [-1, 0, 0, 0]
    assert forward[4:] == backward[4:] == [1, 1, 1, 1, 0, 0]  # reversible, 1 → 1, one complex, inside, no biomass


def test_a_metabolite_has_the_flux_that_goes_through_it(model: cobra.Model) -> None:
    found = row_of(model, "metabolite", "g6p_c")
    inflow = wild_type_fluxes(model)["GLCpts"]
    assert found[0] == pytest.approx(inflow)
    assert found[4] == pytest.approx(-0.205, abs=1e-3)  # taken by the biomass reaction


def test_features_are_standardised_for_every_node(model: cobra.Model, metabolism: Metabolism) -> None:
    for node_type, names in (("reaction", metabolism.reactions.names), ("metabolite", metabolism.metabolites.names)):
        features = wild_type_features(model, node_type, names)
        assert len(features) == len(names)
        assert torch.allclose(features.mean(0), torch.zeros(features.shape[1]), atol=1e-5)
        assert torch.allclose(features.std(0, correction=0), torch.ones(features.shape[1]), atol=1e-5)


def test_the_model_stays_as_it_is(model: cobra.Model, metabolism: Metabolism) -> None:
    bounds = {reaction.id: reaction.bounds for reaction in model.reactions}
    wild_type_features(model, "reaction", metabolism.reactions.names)
    assert {reaction.id: reaction.bounds for reaction in model.reactions} == bounds
    assert model.slim_optimize() == pytest.approx(0.8739, abs=1e-4)


def test_genes_have_no_such_features(model: cobra.Model) -> None:
    with pytest.raises(GraphError, match=r"no features `wild_type` of the node type 'gene'\n.*reaction or metabolite"):
        wild_type_features(model, "gene", ["b0001"])


def test_a_cell_that_does_not_grow_has_no_fluxes(model: cobra.Model) -> None:
    starved = model.copy()
    starved.reactions.get_by_id("ATPM").lower_bound = 1000
    with pytest.raises(GraphError, match=r"the wild type has no fluxes\n  got: .*\n  expected: a model that grows"):
        wild_type_fluxes(starved)
