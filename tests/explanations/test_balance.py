"""Shares of reactions in growth by flux balance: they sum to it, and say what linear programmes say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cobra.io import load_model

import dglcell
from dglcell.explanations.files import write
from dglcell.explanations.network import ENOUGH, network_of
from dglcell.explanations.tables import OTHERS, Explanations
from dglcell.explanations.text import show
from dglcell.graph.resident import ResidentCell
from dglcell.nn.flux_rounds import PARTS, FluxRounds
from dglcell.perturbation.genotype import GenotypeBatch
from tests.nn.test_flux_rounds import CELL, STRAINS, balance

GENES = [["b0720"], ["b0008", "b2464"], ["b2029"], ["b0114"]]


@pytest.fixture(scope="module")
def found() -> Explanations:
    return dglcell.load("ecoli-core").explain(GENES)


def test_shares_of_reactions_sum_to_the_change_of_growth() -> None:
    made = FluxRounds(ResidentCell.of(CELL), 2048)
    made.take([balance()])
    cell, batch = ResidentCell.of(CELL), GenotypeBatch.from_lists(STRAINS)
    growth_BP, certain_B2 = made(cell, batch)
    split = made.shares(cell, batch)
    assert split.shares_PGB.shape[0] == len(PARTS)
    solved_B = torch.isfinite(certain_B2).all(1)
    assert solved_B.float().mean() > 0.5
    sums_PB = split.shares_PGB.sum(1)
    torch.testing.assert_close(sums_PB[-1, solved_B], growth_BP[solved_B, -1].double() - 1, atol=2e-4, rtol=0)


def test_fluxes_are_those_of_the_metabolic_model(found: Explanations) -> None:
    model = load_model("textbook")
    table = found.balance[(found.balance["strain"] == 2) & (found.balance["reaction"] != OTHERS)]
    with model:
        model.genes.b2029.knock_out()
        expected = model.optimize()
    at_growth = table[table["reaction"] == "Biomass_Ecoli_core"]
    assert float(at_growth["flux"].iloc[0]) == pytest.approx(expected.objective_value, abs=1e-3)
    lost = table[table["reaction"] == "GND"]
    assert float(lost["wild_type"].iloc[0]) > 1
    assert float(lost["flux"].iloc[0]) == 0
    way = table[table["reaction"].isin(["G6PDH2r", "PGL", "GND"])]
    assert float(way["share"].sum()) < 0
    detour = table[table["reaction"] == "THD2"]
    assert float(detour["flux"].iloc[0]) > 1
    assert float(detour["share"].iloc[0]) < 0


def test_rows_sum_to_the_part_of_flux_balance(found: Explanations) -> None:
    sums = found.balance.groupby("strain")["share"].sum()
    part = found.parts[found.parts["part"] == "flux balance"].set_index("strain")["share"].sort_index()
    np.testing.assert_allclose(sums, part, atol=1e-9)
    others = found.balance[found.balance["reaction"] == OTHERS].set_index("strain")["share"]
    assert (others.abs() < 0.01).all()
    together = dglcell.load("ecoli-core").explain(GENES[1:2], interaction=True)
    of_pair = together.parts[together.parts["part"] == "flux balance"]["share"].sum()
    np.testing.assert_allclose(together.balance["share"].sum(), of_pair, atol=1e-9)


def test_the_terminal_and_the_page_show_fluxes(found: Explanations, tmp_path: Path) -> None:
    tables = {name: table[table["strain"] == 2] for name, table in found.tables.items()}
    said = show(replace(found, **tables))
    assert "part `flux balance`, by reactions" in said
    assert "reaction R NAD - P-transhydrogenase (THD2), flux 0 → 7.9" in said
    assert "reaction glucose 6-phosphate dehydrogenase (G6PDH2r)\n" in said
    assert "transaldolase (TALA) -" in show(found)  # which lists several strains
    write(found, tmp_path / "out.html")
    assert "Reactions of the part “flux balance”" in (tmp_path / "out.html").read_text()


def test_drawings_show_reactions_that_replace_a_flux(found: Explanations) -> None:
    network = network_of(found, 2, "fitness")
    nodes = {node.key: node for node in network.nodes}
    assert not nodes["reaction THD2"].missing
    assert network.carried >= ENOUGH
