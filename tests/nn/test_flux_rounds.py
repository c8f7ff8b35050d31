"""Growth found by rounds of messages, against linear programmes of the same model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cobra
import numpy as np
import pytest
import torch
from cobra.flux_analysis import pfba
from cobra.io import load_model
from torch import Tensor

from dglcell.errors import ConfigError
from dglcell.graph.cell import build_cell
from dglcell.graph.config import CellConfig
from dglcell.graph.resident import ResidentCell
from dglcell.graph.wild_type import WildTypeBalance, wild_type_balance
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.nn.flux_rounds import PARTS, FluxRounds
from dglcell.perturbation.genotype import GenotypeBatch

CELL = build_cell(CellConfig(model="textbook", lose_blocked=True))
RESIDENT = ResidentCell.of(CELL)
STRAINS = [[3 * i, (5 * i + 1) % 137] for i in range(45)]
BATCH = GenotypeBatch.from_lists(STRAINS)


@functools.cache
def balance() -> WildTypeBalance:
    reactions, metabolites = (CELL.vocabularies[kind].names for kind in ("reaction", "metabolite"))
    return wild_type_balance(load_model("textbook"), reactions, metabolites)


def rounds_of(rounds: int, **keys: bool) -> FluxRounds:
    made = FluxRounds(RESIDENT, rounds, **keys)
    made.take([balance()])
    return made


def batches(size: int) -> list[GenotypeBatch]:
    return [GenotypeBatch.from_lists(STRAINS[i : i + size]) for i in range(0, len(STRAINS), size)]


def solved(rounds: int, batch: int = len(STRAINS)) -> Tensor:
    made = rounds_of(rounds)
    return torch.cat([made(RESIDENT, part)[0] for part in batches(batch)])


def of_strains(solve: Callable[[cobra.Model], Any]) -> list[Any]:
    """Return what is found in the metabolic model of each strain."""
    model, found = load_model("textbook"), []
    for strain in STRAINS:
        with model:
            for gene in strain:
                model.genes.get_by_id(CELL.genes.names[gene]).knock_out()
            found.append(solve(model))
    return found


@functools.cache
def by_linear_programmes() -> np.ndarray:
    """Return the growth of the strains, as a share of the wild type's."""
    growth = np.nan_to_num(of_strains(lambda model: model.slim_optimize(error_value=0.0)))
    return np.maximum(growth / load_model("textbook").slim_optimize(), 0)


def test_rounds_come_ever_closer_to_flux_balance_analysis() -> None:
    expected = by_linear_programmes()
    assert (expected < 0.01).any()
    assert ((expected > 0.05) & (expected < 0.95)).any()
    errors = [np.abs(solved(rounds)[:, -1].numpy() - expected).mean() for rounds in (64, 512, 4096)]
    assert errors[2] < 0.004 < errors[1] < errors[0]


def test_the_growth_is_noted_on_the_way() -> None:
    found = solved(512)
    assert found.shape == (len(STRAINS), len(PARTS))
    torch.testing.assert_close(found[:, -2], solved(256)[:, -1])
    assert ((found >= 0) & (found <= 1)).all()


def test_strains_alone_and_together_grow_alike() -> None:
    torch.testing.assert_close(solved(128, batch=1), solved(128), atol=1e-4, rtol=0)


def test_a_set_of_lost_reactions_is_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = rounds_of(16)
    first = made(RESIDENT, BATCH)
    monkeypatch.setattr("dglcell.nn.flux_rounds._Problem.solve", None)
    again, turned = made(RESIDENT, BATCH), made(RESIDENT, GenotypeBatch.from_lists(STRAINS[::-1]))
    for one, same, reverse in zip(first, again, turned, strict=True):
        assert torch.equal(one, same)
        assert torch.equal(one, reverse.flip(0))


def test_what_is_certain_agrees_with_linear_programmes() -> None:
    growth, certain_B2 = rounds_of(2048)(RESIDENT, BATCH)
    (least, most), expected = certain_B2.numpy().T, by_linear_programmes()
    is_solved = least == most
    assert 0.5 < is_solved.mean() < np.isfinite(least).mean() < 1
    assert (least < expected + 6e-5).all()
    np.testing.assert_allclose(growth[is_solved, -1], expected[is_solved], atol=6e-5)
    assert set(growth[is_solved & (expected > 1 - 1e-6), -1].tolist()) == {1.0}


def test_the_wild_type_keeps_its_growth() -> None:
    growth_BP = rounds_of(256)(RESIDENT, GenotypeBatch.from_lists([[]]))[0]
    assert growth_BP[0].tolist() == pytest.approx([1.0] * len(PARTS), abs=1e-3)


def with_fluxes(rounds: int, batch: int = len(STRAINS)) -> Tensor:
    made = rounds_of(rounds, fluxes=True)
    return torch.cat([made.changes(RESIDENT, part) for part in batches(batch)])


def test_fluxes_come_close_to_those_of_parsimonious_flux_balance() -> None:
    names = sorted(reaction.id for reaction in load_model("textbook").reactions)
    grows = by_linear_programmes() > 0.05
    wild_type = pfba(load_model("textbook")).fluxes[names].to_numpy()
    fluxes = of_strains(
        lambda model: pfba(model).fluxes[names].to_numpy() if model.slim_optimize() > 1e-3 else wild_type
    )
    expected_BM = (np.array(fluxes) - wild_type)[grows]
    errors = [np.abs(with_fluxes(rounds)[grows].numpy() - expected_BM).mean() for rounds in (128, 8192)]
    assert np.abs(expected_BM).mean() > 0.5
    assert errors[1] < 0.1 < errors[0]


def test_changes_of_fluxes_do_not_depend_on_batches_and_leave_growth_as_it_is() -> None:
    torch.testing.assert_close(with_fluxes(64, batch=7), with_fluxes(64), atol=1e-3, rtol=0)
    made = rounds_of(256, fluxes=True)
    torch.testing.assert_close(made(RESIDENT, BATCH)[0], solved(256), atol=0, rtol=0)
    assert made.changes(RESIDENT, BATCH).shape == (len(STRAINS), 95)


def test_strains_that_were_solved_are_forgotten_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = with_fluxes(32)
    monkeypatch.setattr("dglcell.nn.flux_rounds.MOST_KNOWN", 300)
    torch.testing.assert_close(with_fluxes(32, batch=5), expected, atol=1e-3, rtol=0)


def with_a_slow_cofactor() -> cobra.Model:
    """Return a model whose gene `b1` makes a cofactor that is reduced and oxidised ten thousand times as often."""
    model = cobra.Model("cofactor")
    names = ("sugar", "oxidised", "reduced", "product", "precursor")
    sugar, oxidised, reduced, product, precursor = (cobra.Metabolite(f"{name}_c", compartment="c") for name in names)
    reactions = {
        "EX_sugar": ({sugar: -1}, (-10, 0), ""),
        "EX_precursor": ({precursor: -1}, (-10, 0), ""),
        "MAKE": ({precursor: -1, oxidised: 1}, (0, 1000), "b1"),
        "REDUCE": ({sugar: -1, oxidised: -1, reduced: 1}, (0, 1000), "b2"),
        "OXIDISE": ({reduced: -1, oxidised: 1, product: 1}, (0, 1000), "b3"),
        "GROW": ({product: -1, oxidised: -1e-4}, (0, 1000), ""),
    }
    for name, (amounts, bounds, rule) in reactions.items():
        reaction = cobra.Reaction(name, lower_bound=bounds[0], upper_bound=bounds[1])
        model.add_reactions([reaction])
        reaction.add_metabolites(amounts)
        reaction.gene_reaction_rule = rule
    model.objective = "GROW"
    return model


def test_a_cofactor_that_is_no_longer_made_stops_growth_within_few_rounds(tmp_path: Path) -> None:
    model = with_a_slow_cofactor()
    cobra.io.save_json_model(model, str(tmp_path / "cofactor.json"))
    graph = build_cell(CellConfig(model=str(tmp_path / "cofactor.json"), lose_blocked=True))
    wild_type = wild_type_balance(model, *(graph.vocabularies[kind].names for kind in ("reaction", "metabolite")))
    cell, strain = ResidentCell.of(graph), GenotypeBatch.from_lists([[list(graph.genes.names).index("b1")]])
    assert wild_type.pools[:, 0].max() == 0
    without = wild_type.pools.new_tensor([-1.0, 0.0]).expand_as(wild_type.pools)
    growth = []
    for pools in (wild_type.pools, without):
        rounds = FluxRounds(cell, 256)
        rounds.take([dataclasses.replace(wild_type, pools=pools)])
        growth.append(float(rounds(cell, strain)[0][0, -1]))
        assert (rounds.pools is None) == (pools is without) == ("pools" not in rounds.state_dict())
        read = FluxRounds(cell, 256)
        read.make_room(pools=rounds.pools is not None)
        read.load_state_dict(rounds.state_dict())
        assert float(read(cell, strain)[0][0, -1]) == growth[-1]
    assert growth == pytest.approx([0, 1], abs=0.01)


def made_model(rounds: int, **changes: Any) -> HeteroCell:
    keys: dict[str, Any] = {"layers": 0, "pool": ["reaction"], "local_head": False, "combination": "none", **changes}
    config = HeteroCellConfig(hidden=8, link="bounded", flux_rounds=rounds, **keys)
    config.validate()
    torch.manual_seed(0)
    model = HeteroCell(RESIDENT, config)
    assert model.link is not None
    model.link.choose(["bounded"], torch.zeros(1), torch.ones(1))
    model.link.measured.remember(model.cell, GenotypeBatch.from_lists([[0]]), torch.ones(1, 1))  # type: ignore[union-attr]
    assert model.flux_rounds is not None
    model.flux_rounds.take([balance()])
    return model


def test_a_model_starts_from_the_growth_of_the_flux_balance_and_learns_what_it_lacks() -> None:
    model = made_model(256)
    for parameter in model.global_head[-1].parameters():
        torch.nn.init.zeros_(parameter)
    torch.testing.assert_close(model.eval()(BATCH).phenotypes, solved(256)[:, -1:], atol=1e-4, rtol=0)
    model.train()(BATCH).phenotypes.sum().backward()
    assert all(p.grad is not None for p in model.global_head.parameters())


def test_a_model_corrects_only_what_is_not_certain() -> None:
    model = made_model(2048)
    assert model.flux_rounds is not None
    least_B, most_B = model.flux_rounds(model.cell, BATCH)[1].T
    found_B, uncertain_B = model.eval()(BATCH).phenotypes[:, 0], least_B == -torch.inf
    torch.testing.assert_close(found_B[least_B == most_B], least_B[least_B == most_B])
    assert (found_B >= least_B - 1e-6).all()
    growth_B = model.flux_rounds(model.cell, BATCH)[0][:, -1]
    assert ((found_B - growth_B)[uncertain_B].abs() > 1e-4).float().mean() > 0.5


def test_heads_of_fluxes_correct_those_of_the_rounds() -> None:
    model = made_model(256, nodes={"flux": "reaction"}, flux_values=["flux"]).eval()
    head = model.node_heads["flux"]
    wild_type, sd = torch.linspace(-5, 5, 95), torch.linspace(0.5, 2, 95)
    changes = torch.ones(95, dtype=torch.bool)
    changes[:10] = False
    head.take(wild_type, sd, changes, torch.ones(95, dtype=torch.bool))
    for parameter in head.strain[-1].parameters():
        torch.nn.init.zeros_(parameter)
    computed = with_fluxes(256)
    found = head.restore(model(BATCH).nodes["flux"])
    torch.testing.assert_close(found[:, 10:], (wild_type + computed)[:, 10:], atol=1e-3, rtol=0)
    assert (found[:, :10] == wild_type[:10]).all()
    model.train()(BATCH).nodes["flux"].square().sum().backward()
    assert head.correction is not None
    assert head.correction.grad is not None
    assert (head.correction.grad[10:] != 0).float().mean() > 0.5
    assert (model.eval()(GenotypeBatch.from_lists([[], [0]])).nodes["flux"][0] == 0).all()


def test_flux_values_that_cannot_be_are_refused() -> None:
    keys: dict[str, Any] = {"nodes": {"flux": "reaction", "price": "metabolite"}}
    with pytest.raises(ConfigError, match=r"(?s)`model.flux_values` names values that.*price.*among flux"):
        made_model(16, **keys, flux_values=["price"])
    with pytest.raises(ConfigError, match=r"(?s)`model.flux_values` needs rounds.*flux_rounds: 0.*2048"):
        HeteroCellConfig(flux_values=["flux"]).validate()


def test_balanced_values_that_cannot_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: dict[str, Any] = {"nodes": {"flux": "reaction", "price": "metabolite"}}
    with pytest.raises(ConfigError, match=r"(?s)`model.balanced_values` names values that.*price.*among flux"):
        made_model(0, **keys, balanced_values=["price"])
    monkeypatch.setattr("dglcell.models.hetero_cell.MOST_BALANCED", 94)
    with pytest.raises(ConfigError, match=r"(?s)`model.balanced_values` is for smaller.*95 reactions.*at most 94"):
        made_model(0, **keys, balanced_values=["flux"])


def test_it_needs_strains_that_lose_blocked_reactions() -> None:
    cell = ResidentCell.of(build_cell(CellConfig(model="textbook")))
    with pytest.raises(ConfigError, match=r"needs strains that lose blocked reactions"):
        HeteroCell(cell, HeteroCellConfig(hidden=8, layers=0, flux_rounds=16, local_heads=2))
    with pytest.raises(ConfigError, match=r"`model\.flux_rounds` is negative"):
        HeteroCellConfig(flux_rounds=-1).validate()
