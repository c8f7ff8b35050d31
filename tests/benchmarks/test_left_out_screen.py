"""Scores on a screen that a model was not trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

import dglcell
from benchmarks.left_out_screen import EXPERIMENTS, evaluated
from dglcell.config.read import load_config
from tests.tiny import TINY, Tiny

CONF = Path(__file__).parents[2] / "conf"


@pytest.mark.slow
def test_seeds_are_summed_up(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    text = TINY.replace("data:\n", f"data:\n  store: {tiny.store}\n") + "plot: false\n"
    (tmp_path / "conf" / "other.yaml").write_text(text)
    for seed in (0, 1):
        dglcell.train("other", "experiment.name=some", epochs=1, seed=seed)
    found = evaluated(Path("runs"), "some", "other", {"fitness": "fitness"}, [])
    assert len(found["strains"]) == 2
    model, ridge = found["pearson"]["hetero_cell"], found["pearson"]["additive ridge"]
    assert set(model["seeds"]) == set(ridge["seeds"]) == {0, 1}
    assert model["mean"] == pytest.approx(sum(model["seeds"].values()) / 2, abs=1e-4)
    assert "training mean" not in found["pearson"]


@pytest.mark.parametrize(("trained", "on", "phenotypes"), EXPERIMENTS)
def test_both_experiments_have_the_phenotypes_that_are_compared(
    trained: str, on: str, phenotypes: dict[str, str]
) -> None:
    assert set(phenotypes) <= set(load_config(CONF / f"{trained}.yaml").data.phenotypes)
    assert (CONF / f"{on}.yaml").exists()
