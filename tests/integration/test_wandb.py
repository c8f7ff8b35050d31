"""W&B as a view of the run: offline, without network, read back from its file."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from dglcell.errors import DataError, StoppedError
from dglcell.run_directory import RunDirectory
from dglcell.training import run as run_module
from dglcell.training.fit import make_callbacks
from dglcell.training.tracking import find_offline_files
from tests.integration.processes import PATIENCE
from tests.integration.test_preemption import stop_at_step
from tests.tiny import BARE, Tiny, dglcell, history
from tests.wandb_file import OfflineRun, read_offline_run

pytest.importorskip("wandb")

OFFLINE = "tracking.wandb=offline"

# A process in which every connection but those of the machine itself fails.
NO_NETWORK = """
import socket
connect = socket.socket.connect
def refuse(self, address):
    if self.family != socket.AF_UNIX:
        raise AssertionError(f"network: {address}")
    return connect(self, address)
socket.socket.connect = refuse
open(__file__ + ".loaded", "w").close()
"""


def offline_runs(directory: RunDirectory) -> list[OfflineRun]:
    """Every file of a run, oldest first; W&B may write the end of a file just after it says that it is done."""
    paths = sorted((directory.path / "wandb").glob("offline-run-*/run-*.wandb"), key=lambda p: p.stat().st_mtime_ns)
    end = time.monotonic() + PATIENCE
    while any(run.exit_code is None for run in map(read_offline_run, paths)):
        assert time.monotonic() < end, "no record of the end"
        time.sleep(0.1)
    return [read_offline_run(path) for path in paths]


def test_offline_runs_hold_configuration_and_every_epoch(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK)
    home = {name: str(tmp_path / "home") for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    search = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).resolve().parents[2]}"}
    for epochs in (2, 3):
        options = [*BARE, OFFLINE, "tracking.project=cells", "experiment.tags=[a, b]", f"trainer.epochs={epochs}"]
        done = dglcell("train", tiny.file, *tiny.overrides(tmp_path, *options), cwd=tmp_path, **home, **search)
        assert done.returncode == 0, done.stderr
        assert "wandb" not in done.stderr
    assert (tmp_path / "sitecustomize.py.loaded").exists()
    directory = RunDirectory(tmp_path / "tiny" / "seed-0")
    first, second = offline_runs(directory)
    assert first.run_id == second.run_id == directory.wandb_id.read_text()
    assert first.group == second.group == "tiny"
    assert [(run.preempted, run.exit_code) for run in (first, second)] == [(False, 0), (False, 0)]
    assert first.config["model"]["hidden"] == 8
    assert first.config["trainer"]["epochs"] == 2
    assert second.config["trainer"]["epochs"] == 3
    rows = first.history + second.history
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    assert [row["_step"] for row in rows] == [3, 7, 11], "optimiser steps, counted on in the second file"
    for row, recorded in zip(rows, history(directory), strict=True):
        for key in ("train/loss", "validation/loss", "validation/fitness/pearson", "learning_rate"):
            assert row[key] == pytest.approx(recorded[key], rel=1e-6)


def test_nothing_is_written_when_disabled(tiny_run: RunDirectory) -> None:
    assert not list(tiny_run.path.glob("*wandb*"))


@pytest.mark.usefixtures("home")
def test_two_runs_in_one_process_stay_two(tiny: Tiny, tmp_path: Path) -> None:
    ids = []
    for seed in (0, 1):
        directory = tiny.train(tmp_path, OFFLINE, "trainer.epochs=1", f"seed={seed}").directory
        (run,) = offline_runs(directory)
        assert run.config["seed"] == seed
        ids.append(run.run_id)
    assert ids[0] != ids[1]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B writes nothing elsewhere."""
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))


class RaisesAtTheEnd(Callback):
    """Raises something, or receives a signal, when training has ended or an epoch of it."""

    def __init__(self, *, signal: int | None = None, error: BaseException | None = None) -> None:
        self.signal, self.error = signal, error

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.error is not None:
            raise self.error

    def on_fit_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.signal is not None:
            signal.raise_signal(self.signal)


def also(callback: Callback, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train with one more callback."""
    monkeypatch.setattr(run_module, "make_callbacks", lambda *arguments: [*make_callbacks(*arguments), callback])


@pytest.mark.usefixtures("home")
def test_a_run_that_is_told_to_stop_after_its_last_epoch_is_finished(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    also(RaisesAtTheEnd(signal=signal.SIGUSR1), monkeypatch)
    with pytest.raises(StoppedError):
        tiny.train(tmp_path, OFFLINE, "trainer.epochs=1")
    directory = tiny.train(tmp_path, OFFLINE, "trainer.epochs=1").directory
    (run,) = offline_runs(directory)
    assert (run.preempted, run.exit_code) == (False, 0)
    assert len(history(directory)) == 1


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("error", "code"), [(DataError("no"), 1), (ValueError("no"), 1), (KeyboardInterrupt(), 255)])
def test_a_run_that_fails_or_is_interrupted_is_no_preempted_one(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    also(RaisesAtTheEnd(error=error), monkeypatch)
    with pytest.raises(type(error)):
        tiny.train(tmp_path, OFFLINE, "trainer.epochs=1")
    (run,) = offline_runs(RunDirectory(tmp_path / "tiny" / "seed-0"))
    assert (run.preempted, run.exit_code) == (False, code)


@pytest.mark.usefixtures("home")
def test_a_run_that_is_stopped_in_an_epoch_stays_one_run(tiny: Tiny, tmp_path: Path) -> None:
    options = (OFFLINE, "data.batch_size=2", "trainer.epochs=3")
    run = RunDirectory(tmp_path / "tiny/seed-0")
    stop_at_step(tiny, tmp_path, 150, signal.SIGUSR1, *options)
    tiny.train(tmp_path, *options)
    first, second = offline_runs(run)
    assert first.run_id == second.run_id == run.wandb_id.read_text()
    # What W&B shows as preempted, and then as finished.
    assert (first.preempted, first.exit_code) == (True, 128 + signal.SIGUSR1)
    assert (second.preempted, second.exit_code) == (False, 0)
    assert [row["epoch"] for row in first.history + second.history] == [0, 1, 2]
    assert [file.ended for file in find_offline_files(run.path)] == [True, True]
