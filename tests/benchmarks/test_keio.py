"""What the benchmark of the Keio collection compares the model with."""

from __future__ import annotations

import pytest

from benchmarks.keio import EXPERIMENT, flux_balance, in_medium, seeing
from dglcell.config.read import load_config
from dglcell.data.strains import Strains


def test_growth_by_flux_balance_is_that_of_each_medium() -> None:
    """Without isocitrate lyase cells do not grow on acetate, and without citrate synthase nowhere."""
    config = load_config(EXPERIMENT, ["cell.model=textbook"])
    config.cell.media = {"glucose": {}, "acetate": {"EX_glc__D_e": 0, "EX_ac_e": 10}, "again": {}}
    growth = flux_balance(config)
    assert [growth[medium]["b0720"] for medium in growth] == pytest.approx([0, 0, 0], abs=1e-6)
    assert [growth[medium]["b4015"] for medium in growth] == pytest.approx([1, 0, 1], abs=1e-6)


def test_strains_of_one_medium_have_no_conditions() -> None:
    strains = Strains.from_names(
        [["a"], ["b"], ["a"]], phenotypes={"density": [0.1, 0.2, 0.3]}, conditions={"medium": ["LB", "MOPS", "MOPS"]}
    )
    alone = in_medium(strains, "MOPS")
    assert not alone.conditions
    assert [list(genes) for genes in alone.genotypes] == [["b"], ["a"]]


def test_growth_is_a_condition_of_strains() -> None:
    strains = Strains.from_names(
        [["b"], ["a"], ["a"]], phenotypes={"density": [0.1, 0.2, 0.3]}, conditions={"medium": ["LB", "MOPS", "LB"]}
    )
    seen = seeing(strains, {"LB": {"a": 1.0, "b": 0.5}, "MOPS": {"a": 0.0, "b": 2.0}})
    assert set(seen.conditions) == {"medium", "growth by model.flux_rounds"}
    assert seen.of_kind("condition")["growth by model.flux_rounds"].tolist() == [0.5, 0.0, 1.0]
    assert set(strains.conditions) == {"medium"}
