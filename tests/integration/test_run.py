"""A whole run: what it writes, what it prints, and that it gives the same numbers again."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
import yaml

from dglcell.cli import main
from dglcell.data.split import Split
from dglcell.files.atomic import write_json
from dglcell.graph.cell_files import read_cell
from dglcell.runs.directory import RunDirectory
from dglcell.training.run import train
from dglcell.training.task import StrainTask
from tests.tiny import BARE, Tiny, history

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "quickstart_tiny.json"


def test_the_run_directory_is_complete(tiny_run: RunDirectory, tiny: Tiny) -> None:
    config = yaml.safe_load(tiny_run.config.read_text())
    assert config["model"]["hidden"] == 8
    assert config["trainer"]["gradient_clip_val"] == 10.0  # a default, spelled out
    about = json.loads(tiny_run.environment.read_text())
    assert about["strains"] == {"train": 240, "validation": 30, "test": 30}
    assert about["packages"]["torch"] == torch.__version__
    cell, split = read_cell(tiny_run.cell), Split.load(tiny_run.split)
    assert about["hashes"]["cell"] == cell.sha256
    assert about["hashes"]["gene_vocabulary"] == cell.genes.sha256
    assert about["hashes"]["split"] == split.sha256
    assert about["hashes"]["store"] == split.store_sha256
    assert [row["epoch"] for row in history(tiny_run)] == [0, 1]
    assert {p.name for p in tiny_run.checkpoints.iterdir()} == {"best_loss.ckpt", "best_pearson.ckpt", "last.ckpt"}
    usage = json.loads(tiny_run.usage.read_text())
    assert (usage["device"], usage["epochs"]) == ("cpu", 2)
    assert usage["seconds"] == pytest.approx(sum(json.loads(line)["seconds"] for line in tiny_run.metrics.open()))
    assert 5e7 < usage["peak_memory_bytes"] <= usage["peak_resident_bytes"] < 1e11
    assert usage["seconds"] < usage["wall_seconds"]
    for part in ("validation", "test"):
        rows = list(csv.DictReader(tiny_run.predictions(part).open()))
        assert len(rows) == 30
        assert list(rows[0])[:3] == ["genes", "measured_fitness", "predicted_fitness"]


def test_results_are_those_of_the_predictions(tiny_run: RunDirectory) -> None:
    rows = list(csv.DictReader(tiny_run.predictions("test").open()))
    squares = [(float(r["measured_fitness"]) - float(r["predicted_fitness"])) ** 2 for r in rows]
    results = json.loads(tiny_run.results.read_text())
    found = {(row["model"], row["part"]): row["metrics"] for row in results["rows"]}
    assert found[results["predicts"]["fitness"]["name"], "test"]["mse"] == pytest.approx(sum(squares) / 30, rel=1e-4)
    assert found["hetero_cell", "test"]["n"] == 30
    assert {model for model, part in found if part == "test"} >= {"hetero_cell", "training mean", "additive ridge"}


def test_everything_needed_is_written_before_the_first_step(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `auto` would time a few steps before.
    form = "trainer.precision=32-true", "model.compile=false"
    config = tiny.config(tmp_path, *BARE, "trainer.epochs=1", *form)
    directory, original, seen = RunDirectory(config.run_directory), StrainTask.training_step, []

    def spy(task: StrainTask, batch: object, batch_idx: int) -> torch.Tensor:
        seen.append([p.exists() for p in (directory.config, directory.environment, directory.split, directory.cell)])
        return original(task, batch, batch_idx)  # type: ignore[arg-type]

    monkeypatch.setattr(StrainTask, "training_step", spy)
    train(config)
    assert seen == [[True] * 4] * 4


def test_evaluate_prints_the_same_table(tiny_run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(tiny_run.path)]) == 0
    printed = capsys.readouterr().out
    rows = json.loads(tiny_run.results.read_text())["rows"]
    assert f"{rows[0]['metrics']['mse']:#.4g}" in printed
    assert main(["evaluate", str(tiny_run.path), "--checkpoint", "last"]) == 0


def golden_losses(directory: RunDirectory) -> dict[str, list[float]]:
    """Return losses of every epoch."""
    rows = history(directory)
    return {key: [row[key] for row in rows] for key in ("train/loss", "validation/loss")}


def test_golden_losses(tiny: Tiny, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """`pytest --update-golden` writes the file anew, after a change that is meant to change the numbers."""
    options = ["trainer.epochs=3", "model.layers=2", "model.conv=gin", "scheduler.name=cosine_restarts"]
    options += ["model.local_gain=0.01", "model.norm=layer", "optimizer.weight_decay=0.01"]
    found = golden_losses(tiny.train(tmp_path, *options).directory)
    if pytestconfig.getoption("--update-golden"):
        write_json(GOLDEN, {"overrides": options, **found})
    golden = json.loads(GOLDEN.read_text())
    assert golden["overrides"] == options
    for key, losses in found.items():
        assert losses == pytest.approx(golden[key], rel=1e-5)
