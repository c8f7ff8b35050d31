"""What the benchmark of the Keio collection compares the model with."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.keio import EXPERIMENT, ahead, flux_balance, in_medium, seeing
from benchmarks.keio_taught import FORM, of_media, teacher
from dglcell.config.read import load_config
from dglcell.data.strains import Strains
from dglcell.runs.directory import RunDirectory


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


def test_leads_are_taken_within_a_medium() -> None:
    draws: list[dict[str, dict[str, dict[str, float | None]]]] = [
        {"LB": {"model": {"pearson": own}, "taught": {"pearson": other}, "mean": {"pearson": None}}}
        for own, other in ((0.5, 0.4), (0.7, 0.4))
    ]
    found = ahead(draws)
    assert found["LB"].keys() == {"taught"}
    assert found["LB"]["taught"][0] == pytest.approx(0.2)


def test_a_teacher_has_the_cell_of_the_experiment_and_its_media() -> None:
    config, experiment = teacher("keio", list(FORM)), load_config(EXPERIMENT)
    assert config.cell == experiment.cell
    screen = config.data.source.insilico
    assert (screen.model, screen.media, screen.fluxes) == ("iJO1366", experiment.cell.media, True)
    assert (config.loss.phenotypes, list(config.data.nodes)) == (0, ["flux"])


def test_runs_are_compared_within_a_medium(tmp_path: Path) -> None:
    """The first run is right in LB and upside down in MOPS; flux balance analysis is right in both."""
    strains = [("a", "LB", 0.1), ("b", "LB", 0.2), ("c", "LB", 0.4), ("a", "MOPS", 1.1), ("b", "MOPS", 1.3)]
    for name, sign in (("model", {"LB": 1, "MOPS": -1}), ("taught", {"LB": -1, "MOPS": 1})):
        lines = [f"{gene},{medium},{value},{sign[medium] * value}" for gene, medium, value in strains]
        file = RunDirectory(tmp_path / name).predictions("test")
        file.parent.mkdir()
        file.write_text("\n".join(["genes,medium,measured_density,predicted_density", *lines]))
    growth = {(gene, medium): value for gene, medium, value in strains}
    found = of_media({name: tmp_path / name for name in ("model", "taught")}, growth)
    r = {medium: {name: one["pearson"] for name, one in of.items()} for medium, of in found.items()}
    assert r == {
        "LB": {"model": 1, "taught": -1, "flux balance analysis": 1},
        "MOPS": {"model": -1, "taught": 1, "flux balance analysis": 1},
    }


def test_growth_is_a_condition_of_strains() -> None:
    strains = Strains.from_names(
        [["b"], ["a"], ["a"]], phenotypes={"density": [0.1, 0.2, 0.3]}, conditions={"medium": ["LB", "MOPS", "LB"]}
    )
    seen = seeing(strains, {"LB": {"a": 1.0, "b": 0.5}, "MOPS": {"a": 0.0, "b": 2.0}})
    assert set(seen.conditions) == {"medium", "growth by model.flux_rounds"}
    assert seen.of_kind("condition")["growth by model.flux_rounds"].tolist() == [0.5, 0.0, 1.0]
    assert set(strains.conditions) == {"medium"}
