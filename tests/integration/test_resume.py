"""Runs that stop and go on: they end as if they had never stopped, and never mix two runs."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
import torch

from dglcell.data.store import Store, build_store
from dglcell.errors import CheckpointError, ConfigError
from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import read_checkpoint, refuse_changes, resume_from
from tests.tiny import BARE, Tiny, history

SCHEDULES = {
    # The loss remembers strains of earlier batches.
    "cosine by epoch": [
        *("scheduler.name=cosine_restarts", "scheduler.first_cycle=3", "scheduler.gamma=0.5"),
        "loss={name: mle_wass_supcr, supcr: 0.1, buffer_size: 50, adaptive: false, temperature_final: null}",
    ],
    # Every epoch is worse by this threshold, so that the rate falls in each.
    "plateau": ["scheduler.name=plateau", "scheduler.patience=0", "scheduler.cooldown=0", "scheduler.threshold=0.9"],
}


def assert_same_end(one: RunDirectory, other: RunDirectory) -> None:
    """Bitwise equal weights and optimiser states, and the same record."""
    a, b = (read_checkpoint(d.checkpoint("last")) for d in (one, other))
    for name, weight in a["state_dict"].items():
        assert torch.equal(weight, b["state_dict"][name]), name
    torch.testing.assert_close(a["optimizer_states"], b["optimizer_states"], rtol=0, atol=0)
    assert history(one) == history(other)
    kept = [{file.name for file in run.checkpoints.glob("best_*")} for run in (one, other)]
    assert kept[0] == kept[1]


@pytest.mark.parametrize(("schedule", "precision"), [("cosine by epoch", "32-true"), ("plateau", "64-true")])
def test_two_and_two_epochs_are_four(tiny: Tiny, tmp_path: Path, schedule: str, precision: str) -> None:
    options = [
        "model.dropout=0.2",
        "trainer.accumulate_grad_batches={0: 2, 3: 1}",
        f"trainer.precision={precision}",
        *SCHEDULES[schedule],
    ]
    whole = tiny.train(tmp_path / "whole", *options, "trainer.epochs=4").directory
    tiny.train(tmp_path / "parts", *options, "trainer.epochs=2")
    parts = tiny.train(tmp_path / "parts", *options, "trainer.epochs=4").directory
    assert_same_end(whole, parts)
    rates = [row["learning_rate"] for row in history(whole)]
    assert len(set(rates)) > 1
    state = read_checkpoint(whole.last)["state_dict"]
    assert state.get("loss.buffer.seen", 4 * 240) == 4 * 240
    assert ("loss.buffer.target" in state) == (schedule == "cosine by epoch")


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
    options = [
        "trainer.patience=1",
        "trainer.epochs=300",
        "model.compile=false",
        "optimizer.lr=0.05",
        "scheduler.name=none",
    ]
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
        tiny.train(
            tmp_path, "optimizer.lr=1e30", "optimizer.name=SGD", "trainer.gradient_clip_val=null", "split.seed=7"
        )
    directory = RunDirectory(tmp_path / "tiny" / "seed-0")
    stale = directory.split.read_bytes()
    tiny.train(tmp_path, "trainer.epochs=1")
    assert directory.split.read_bytes() != stale
    tiny.train(tmp_path, "trainer.epochs=2")


def test_an_explicit_checkpoint_of_another_run_is_continued(tiny: Tiny, done: Path, tmp_path: Path) -> None:
    options = ["experiment.name=second", f"resume={RunDirectory(done / 'tiny/seed-0').last}"]
    second = tiny.train(tmp_path, *options).directory
    whole = history(tiny.train(tmp_path / "whole").directory)
    assert history(second) == whole[1:]


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
    tiny.train(tmp_path / "moved", "trainer.epochs=5")
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
def test_a_run_is_not_mixed_with_another(
    tiny: Tiny, done: Path, error: type[Exception], message: str, options: list[str]
) -> None:
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
