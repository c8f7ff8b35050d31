"""A whole run: what it writes and prints, the same numbers again, and how it stops and goes on."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

import dglcell
from dglcell.cli import main
from dglcell.data.split import Split
from dglcell.data.store import Store, build_store
from dglcell.errors import CheckpointError, ConfigError
from dglcell.files.atomic import write_json
from dglcell.graph.cell import read_cell
from dglcell.report.comparison import find_runs, format_runs, write_comparison
from dglcell.report.page import NO_TEST_PART
from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import read_checkpoint, refuse_changes, resume_from
from dglcell.training.evaluate import evaluate_baselines
from dglcell.training.fit import run_id
from dglcell.training.run import train
from dglcell.training.task import StrainTask
from tests.html_page import Page
from tests.integration.processes import PATIENCE, start
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


def test_what_is_needed_is_written_before_step_one(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def assert_same_end(one: RunDirectory, other: RunDirectory) -> None:
    """Bitwise equal weights and optimiser states, and the same record."""
    a, b = (read_checkpoint(d.checkpoint("last")) for d in (one, other))
    for name, weight in a["state_dict"].items():
        assert torch.equal(weight, b["state_dict"][name]), name
    torch.testing.assert_close(a["optimizer_states"], b["optimizer_states"], rtol=0, atol=0)
    assert history(one) == history(other)
    kept = [{file.name for file in run.checkpoints.glob("best_*")} for run in (one, other)]
    assert kept[0] == kept[1]


# The first loss remembers strains of earlier batches. In the second run every epoch is worse by its threshold, so that
# the rate falls in each.
@pytest.mark.parametrize(
    ("precision", "scheduler", "loss"),
    [
        ("32-true", "{name: cosine_restarts, first_cycle: 3, gamma: 0.5}",
         "{name: mle_wass_supcr, supcr: 0.1, buffer_size: 50, adaptive: false, temperature_final: null}"),
        ("64-true", "{name: plateau, patience: 0, cooldown: 0, threshold: 0.9}", "mse"),
    ],
    ids=["cosine by epoch", "plateau"],
)  # fmt: skip
def test_two_and_two_epochs_are_four(tiny: Tiny, tmp_path: Path, precision: str, scheduler: str, loss: str) -> None:
    options = ["model.dropout=0.2", "trainer.accumulate_grad_batches={0: 2, 3: 1}", f"loss={loss}"]
    options += [f"trainer.precision={precision}", f"scheduler={scheduler}"]
    whole = tiny.train(tmp_path / "whole", *options, "trainer.epochs=4").directory
    tiny.train(tmp_path / "parts", *options, "trainer.epochs=2")
    parts = tiny.train(tmp_path / "parts", *options, "trainer.epochs=4").directory
    assert_same_end(whole, parts)
    rates = [row["learning_rate"] for row in history(whole)]
    assert len(set(rates)) > 1
    state = read_checkpoint(whole.last)["state_dict"]
    assert state.get("loss.buffer.seen", 4 * 240) == 4 * 240
    assert ("loss.buffer.target" in state) == (loss != "mse")


def test_what_a_run_has_settled_need_not_be_given_again(tiny: Tiny, tmp_path: Path) -> None:
    settled = ("model.covariates={medium: [a, b]}", "model.activity_curves=true")
    before = tiny.config(tmp_path, *settled)
    refuse_changes(before, tiny.config(tmp_path), where="the run")
    refuse_changes(before, tiny.config(tmp_path, *settled), where="the run")
    with pytest.raises(ConfigError, match=r"the run has another configuration\n.*model.covariates.medium: .* → None"):
        refuse_changes(before, tiny.config(tmp_path, "model.covariates={}"), where="the run")
    with pytest.raises(ConfigError, match=r"model.activity_curves: True → False"):
        refuse_changes(before, tiny.config(tmp_path, "model.activity_curves=false"), where="the run")


@pytest.fixture(scope="module")
def done(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of one epoch; tests copy it before they change it."""
    runs = tmp_path_factory.mktemp("done")
    tiny.train(runs, "trainer.epochs=1")
    return runs


def test_early_stopping_stays_stopped(tiny: Tiny, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="dglcell")
    options = ["trainer.patience=1", "trainer.epochs=300", "model.compile=false", "optimizer.lr=0.05"]
    first = history(tiny.train(tmp_path, *options).directory)
    assert 2 <= len(first) < 300
    losses = [row["validation/loss"] for row in first]
    assert losses[-1] >= losses[-2]
    assert all(later < earlier for earlier, later in itertools.pairwise(losses[:-1]))
    assert f"stopped after epoch {len(first)}: no better validation loss for 1 epoch" in caplog.text
    assert history(tiny.train(tmp_path, *options).directory) == first
    assert f"training stopped early after epoch {len(first)}; evaluating" in caplog.text


def test_the_split_of_a_run_that_never_came_to_a_checkpoint_is_replaced(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="not finite"):
        steps_too_far = "optimizer.lr=1e30", "optimizer.name=SGD", "trainer.gradient_clip_val=null"
        tiny.train(tmp_path, *steps_too_far, "split.seed=7")
    directory = RunDirectory(tmp_path / "tiny" / "seed-0")
    stale = directory.split.read_bytes()
    tiny.train(tmp_path, "trainer.epochs=1")
    assert directory.split.read_bytes() != stale
    tiny.train(tmp_path, "trainer.epochs=2")


def test_another_runs_checkpoint_is_continued(tiny: Tiny, done: Path, tiny_run: RunDirectory, tmp_path: Path) -> None:
    options = ["experiment.name=second", f"resume={RunDirectory(done / 'tiny/seed-0').last}"]
    second = tiny.train(tmp_path, *options).directory
    assert history(second) == history(tiny_run)[1:]


def test_a_run_that_was_moved_keeps_its_best_epoch(tiny: Tiny, done: Path, tmp_path: Path) -> None:
    run = RunDirectory(shutil.copytree(done, tmp_path / "moved") / "tiny/seed-0")
    content = read_checkpoint(run.last)
    for name, of in content["callbacks"].items():
        top = torch.tensor(-1.0 if "loss" in name else 2.0)  # no later epoch is as good
        of |= {
            "best_model_score": top,
            "kth_value": top,
            "best_k_models": dict.fromkeys(of.get("best_k_models", ()), top),
        }
    torch.save(content, run.last)
    before = {path: path.read_bytes() for path in run.checkpoints.glob("best_*")}
    tiny.train(tmp_path / "moved", "trainer.epochs=3")
    assert {path: path.read_bytes() for path in run.checkpoints.glob("best_*")} == before


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (CheckpointError, r"a run already, and `resume: never` was asked for\n  do: +change", ["resume=never"]),
        (
            ConfigError,
            r"has another configuration\n  got:      model.hidden: 8 → 16, optimizer.lr: 0.003 → 0.1\n",
            ["model.hidden=16", "optimizer.lr=0.1", "trainer.epochs=5", "experiment.tags=[a]"],
        ),
        (
            ConfigError,
            r"last.ckpt' has another .*\n.*layers: 1 → 2",
            ["experiment.name=other", "resume={last}", "model.layers=2"],
        ),
        (ConfigError, "no epoch left to train", ["experiment.name=other", "resume={last}", "trainer.epochs=1"]),
        (
            CheckpointError,
            r"holds a run already, which going on from '.*best_loss.ckpt' would overwrite\n  do: .*`resume: auto`",
            ["resume={best}"],
        ),
    ],
)
def test_runs_are_not_mixed(tiny: Tiny, done: Path, error: type[Exception], message: str, options: list[str]) -> None:
    run = RunDirectory(done / "tiny" / "seed-0")
    before = run.config.read_bytes(), run.metrics.read_bytes()
    with pytest.raises(error, match=message):
        tiny.train(done, *[one.format(last=run.last, best=run.checkpoint("best_loss")) for one in options])
    assert (run.config.read_bytes(), run.metrics.read_bytes()) == before
    found = resume_from(tiny.config(done, *BARE, "trainer.epochs=1", f"resume={run.last}"))
    assert found is not None
    assert found.path == run.last


def test_another_store_is_refused(tiny: Tiny, done: Path, tmp_path: Path) -> None:
    runs, table = tmp_path / "runs", Store(tiny.store).read()
    shutil.copytree(done, runs)
    shutil.copytree(tiny.store, tmp_path / "store")
    moved = Tiny(tiny.file, tmp_path / "store")
    moved.train(runs, "trainer.epochs=1")
    shutil.rmtree(moved.store)
    build_store(table.slice(0, 500), moved.store, command="tests")
    with pytest.raises(CheckpointError, match=r"store '.*' is not the one this run was started on\n  do: +put the old"):
        moved.train(runs, "trainer.epochs=2")
    shutil.rmtree(moved.store)
    with pytest.raises(CheckpointError, match=r"the store '.*' of this run is not here\n  do: .*dglcell data build"):
        moved.train(runs, "trainer.epochs=2")
    assert not moved.store.exists()


@pytest.mark.parametrize("missing", ["config.yaml", "split.npz", "cell"])
def test_an_incomplete_run_directory_is_refused(tiny: Tiny, done: Path, tmp_path: Path, missing: str) -> None:
    shutil.copytree(done, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "tiny/seed-0" / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(CheckpointError, match=f"cannot be continued: '{missing}' is missing"):
        tiny.train(tmp_path, "trainer.epochs=2")
