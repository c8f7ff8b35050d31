"""Shares of reactions in growth by flux balance: they sum to it, and say what linear programmes say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cobra.io import load_model

from dglcell.api import Predictor
from dglcell.explanations.files import write
from dglcell.explanations.network import ENOUGH, network_of
from dglcell.explanations.tables import OTHERS, Explanations
from dglcell.explanations.text import show
from dglcell.graph.resident import ResidentCell
from dglcell.nn.flux_rounds import PARTS, FluxRounds
from dglcell.perturbation.genotype import GenotypeBatch
from tests.nn.test_flux_rounds import CELL, STRAINS, balance


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


def test_fluxes_are_those_of_the_metabolic_model(of_core: Explanations) -> None:
    model = load_model("textbook")
    table = of_core.balance[(of_core.balance["strain"] == 2) & (of_core.balance["reaction"] != OTHERS)]
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


def test_rows_sum_to_the_part_of_flux_balance(core: Predictor, of_core: Explanations) -> None:
    sums = of_core.balance.groupby("strain")["share"].sum()
    part = of_core.parts[of_core.parts["part"] == "flux balance"].set_index("strain")["share"].sort_index()
    np.testing.assert_allclose(sums, part, atol=1e-9)
    others = of_core.balance[of_core.balance["reaction"] == OTHERS].set_index("strain")["share"]
    assert (others.abs() < 0.01).all()
    together = core.explain([["b0008", "b2464"]], interaction=True)
    of_pair = together.parts[together.parts["part"] == "flux balance"]["share"].sum()
    np.testing.assert_allclose(together.balance["share"].sum(), of_pair, atol=1e-9)


def test_the_terminal_and_the_page_show_fluxes(of_core: Explanations, tmp_path: Path) -> None:
    tables = {name: table[table["strain"] == 2] for name, table in of_core.tables.items()}
    said = show(replace(of_core, **tables))
    assert "part `flux balance`, by reactions" in said
    assert "reaction R NAD - P-transhydrogenase (THD2), flux 0 → 7.9" in said
    assert "reaction glucose 6-phosphate dehydrogenase (G6PDH2r)\n" in said
    assert "transaldolase (TALA) -" in show(of_core)  # which lists several strains
    write(of_core, tmp_path / "out.html")
    assert "Reactions of the part “flux balance”" in (tmp_path / "out.html").read_text()


def test_drawings_show_reactions_that_replace_a_flux(of_core: Explanations) -> None:
    network = network_of(of_core, 2, "fitness")
    nodes = {node.key: node for node in network.nodes}
    assert not nodes["reaction THD2"].missing
    assert network.carried >= ENOUGH
