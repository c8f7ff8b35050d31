"""A whole run: what it writes, what it prints, and that it gives the same numbers again."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
import yaml

import dglcell
from dglcell.cli import main
from dglcell.data.split import Split
from dglcell.errors import ConfigError
from dglcell.files.atomic import write_json
from dglcell.graph.cell import read_cell
from dglcell.report.comparison import find_runs, format_runs, write_comparison
from dglcell.report.page import NO_TEST_PART
from dglcell.runs import RunDirectory
from dglcell.training.evaluate import evaluate_baselines
from dglcell.training.fit import run_id
from dglcell.training.run import train
from dglcell.training.task import StrainTask
from tests.html_page import Page
from tests.integration.processes import PATIENCE, start
from tests.integration.test_resume import assert_same_end
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
        assert list(rows[0])[:4] == ["genes", "names", "measured_fitness", "predicted_fitness"]


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


def test_golden_losses(tiny: Tiny, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """`pytest --update-golden` writes the file anew, after a change that is meant to change the numbers."""
    options = ["trainer.epochs=3", "model.layers=2", "model.conv=gin", "scheduler.name=cosine_restarts"]
    options += ["model.local_gain=0.01", "model.norm=layer", "optimizer.weight_decay=0.01"]
    rows = history(tiny.train(tmp_path, *options).directory)
    found = {key: [row[key] for row in rows] for key in ("train/loss", "validation/loss")}
    if pytestconfig.getoption("--update-golden"):
        write_json(GOLDEN, {"overrides": options, **found})
    golden = json.loads(GOLDEN.read_text())
    assert golden["overrides"] == options
    for key, losses in found.items():
        assert losses == pytest.approx(golden[key], rel=1e-5)


ALL = ("split.kind=none", "trainer.checkpoint=last")


@pytest.fixture(scope="module")
def run(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return train(tiny.config(tmp_path_factory.mktemp("all"), *ALL)).directory


def test_a_run_without_a_test_part_says_so_everywhere(
    run: RunDirectory, tiny: Tiny, tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = json.loads(run.results.read_text())
    assert (results["rows"], results["epoch"], results["checkpoint"]) == ([], 1, "last.ckpt")
    assert json.loads(run.environment.read_text())["strains"] == {"train": 300, "validation": 0, "test": 0}
    assert not [key for row in history(run) for key in row if "validation" in key]
    assert [path.name for path in run.checkpoints.iterdir()] == ["last.ckpt"]
    assert not run.predictions("test").exists()
    page = Page(run.page)
    page.check_alone()
    assert "There is no test part" in page.source
    assert "validation part" not in " ".join(page.values("alt", "img"))
    assert main(["evaluate", str(run.path)]) == 0
    assert capsys.readouterr().out == NO_TEST_PART + "\n"
    assert " ".join(format_runs(find_runs(run.path.parent)).split()).endswith("2/2 2 fitness no test part")
    with pytest.raises(ConfigError, match=r"leaves no strain on which baselines can be compared\n.*another `split"):
        evaluate_baselines(tiny.config(run.path, *ALL))
    predictor = dglcell.load(run.path)
    assert predictor.predict([["b0008"], ["b0114", "b0115"]]).predicted_fitness.notna().all()
    for table in (predictor.results, dglcell.evaluate(predictor)):
        assert table.empty
        assert "part" in table.columns
    source = write_comparison([tiny_run.path, run.path], tmp_path / "both.html").read_text()
    assert "tiny: every strain trained, so that there is no test part" in source
    assert "There is" not in write_comparison([run.path], tmp_path / "one.html").read_text()


def test_a_continued_run_ends_like_one_that_never_stopped(tiny: Tiny, run: RunDirectory, tmp_path: Path) -> None:
    stopped = tiny.train(tmp_path, *ALL, "trainer.epochs=1", "scheduler.name=none").directory
    assert len(history(stopped)) == 1
    continued = tiny.train(tmp_path, *ALL).directory
    assert_same_end(continued, run)


# A process in which every connection but those of the machine itself fails.
NO_NETWORK = """
import socket
connect = socket.socket.connect
def refuse(self, address):
    if self.family != socket.AF_UNIX:
        raise AssertionError(f"network: {address}")
    return connect(self, address)
socket.socket.connect = refuse
"""


def test_offline_runs_are_one_run_and_need_no_network(tiny: Tiny, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    home = {name: str(tmp_path / "home") for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    directory = RunDirectory(tmp_path / "tiny" / "seed-0")
    ids = set()
    for epochs in (1, 2):
        process = start(tiny, tmp_path, "tracking.wandb=offline", f"trainer.epochs={epochs}", before=NO_NETWORK, **home)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
        ids.add(directory.wandb_id.read_text())
    files = [*directory.path.glob("wandb/offline-run-*/run-*.wandb")]
    assert {file.stem.removeprefix("run-") for file in files} == ids
    assert (len(files), len(ids)) == (2, 1)


@pytest.mark.parametrize("content", [b"", b"0a1", b"\xff\x00", b"0a1b2c3d\n"])
def test_a_damaged_id_is_replaced(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("wandb")
    file = tmp_path / "wandb_id.txt"
    file.write_bytes(content)
    found = run_id(file)
    assert run_id(file) == found
    assert (found == "0a1b2c3d") == (len(content) > 8)
