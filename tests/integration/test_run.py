"""A whole run: what it writes, what it prints, and that it gives the same numbers again."""

from __future__ import annotations

import csv
import json
import subprocess
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
from tests.tiny import BARE, Tiny, fresh_dglcell, history

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


KEYS = ("tracking.wandb=offline", "slurm.requeue=false", "slurm.environment={TOKEN: s3cret}")


@pytest.fixture(scope="module")
def worked(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Return the folder in which a process of its own trained with a secret, and what it said."""
    folder = tmp_path_factory.mktemp("worked")
    home = {name: str(folder / "home") for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    done = fresh_dglcell("train", tiny.file, *KEYS, cwd=folder, **home)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_a_process_of_its_own_trains_builds_the_store_and_then_evaluates(
    tiny: Tiny,
    worked: tuple[Path, subprocess.CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder, first = worked
    assert "building store data/insilico-" in first.stderr
    assert "training from scratch" in first.stderr
    assert "Warning" not in first.stderr
    assert "epoch    2/2  loss " in first.stdout
    files = "picture  runs/tiny/seed-0/report.png\nreport   runs/tiny/seed-0/report.html\nrun      runs/tiny/seed-0\n"
    assert f"{files}\nPredict with `dglcell predict runs/tiny/seed-0 GENOTYPES.csv`.\n" in first.stdout
    table = first.stdout[first.stdout.index("phenotype") : first.stdout.index("picture")]
    for model in ("hetero_cell", "training mean", "additive ridge"):
        lines = [line for line in table.splitlines() if " less that of " not in line]
        assert sum(model in line for line in lines) == 2
    assert (folder / "runs/tiny/seed-0/report.png").read_bytes().startswith(b"\x89PNG")
    record = (folder / "runs/tiny/seed-0/metrics.jsonl").read_bytes()

    monkeypatch.chdir(folder)
    # Another value of a secret does not make it another run.
    assert main(["train", str(tiny.file), "plot=false", "slurm.environment={TOKEN: other, MORE: x}"]) == 0
    assert "continuing from runs/tiny/seed-0/checkpoints/last.ckpt, written after epoch 2" in caplog.text
    assert "training is finished after 2 epochs; evaluating" in caplog.text
    assert table in capsys.readouterr().out
    assert (folder / "runs/tiny/seed-0/metrics.jsonl").read_bytes() == record


def test_evaluate_prints_the_same_table(tiny_run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(tiny_run.path)]) == 0
    printed = capsys.readouterr().out
    rows = json.loads(tiny_run.results.read_text())["rows"]
    assert f"{rows[0]['metrics']['mse']:#.4g}" in printed
    assert main(["evaluate", str(tiny_run.path), "--checkpoint", "last"]) == 0


def test_the_same_seed_gives_the_same_losses_and_another_seed_others(tiny: Tiny, tmp_path: Path) -> None:
    options = ("model.dropout=0.1", "trainer.epochs=2")
    first, second = (tiny.train(tmp_path / name, *options).directory for name in ("a", "b"))
    assert history(first) == history(second)
    assert history(tiny.train(tmp_path, *options, "seed=1").directory) != history(first)


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


def test_a_model_learns_32_strains_by_heart(tiny: Tiny, tmp_path: Path) -> None:
    options = [
        "split.subset.size=40",
        "trainer.epochs=40",
        "data.batch_size=32",
        "optimizer.lr=0.05",
        "model.hidden=16",
    ]
    rows = history(tiny.train(tmp_path, *options).directory)
    assert rows[0]["train/fitness/n"] == 32
    assert rows[0]["train/loss"] > 0.5
    assert rows[-1]["train/loss"] < 0.01
