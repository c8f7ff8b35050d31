"""W&B as a view of the run: offline, without network, read back from its file."""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from dglcell.config.experiment import Config, TrackingConfig
from dglcell.errors import DataError, StoppedError
from dglcell.runs.directory import EpochLog, RunDirectory
from dglcell.training import run as run_module
from dglcell.training.fit import make_callbacks
from dglcell.training.tracking import find_offline_files, logged_steps, run_id, tracked
from tests.integration.processes import PATIENCE, ended, start, wait_until
from tests.integration.test_preemption import stop_at_step
from tests.tiny import Tiny, history
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
    home = {name: str(tmp_path / "home") for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    for epochs in (2, 3):
        options = [OFFLINE, "tracking.project=cells", "experiment.tags=[a, b]", f"trainer.epochs={epochs}"]
        process = start(tiny, tmp_path, *options, before=NO_NETWORK, **home)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
        assert "wandb" not in said
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
@pytest.mark.parametrize(
    ("error", "code"), [(DataError("no"), 1), (ValueError("no"), 1), (StoppedError(signal.SIGINT), 255)]
)
def test_a_run_that_fails_or_is_interrupted_is_no_preempted_one(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    also(RaisesAtTheEnd(error=error), monkeypatch)
    with pytest.raises(type(error)):
        tiny.train(tmp_path, OFFLINE, "trainer.epochs=1")
    (run,) = offline_runs(RunDirectory(tmp_path / "tiny" / "seed-0"))
    assert (run.preempted, run.exit_code) == (False, code)


@pytest.mark.usefixtures("home")
@pytest.mark.slow
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


# The third epoch does not begin.
STAY_BETWEEN_EPOCHS = """
import time
from dglcell.training.callbacks import Preemption

def on_train_epoch_start(self, trainer, module):
    if trainer.current_epoch == 2:
        time.sleep(3600)

Preemption.on_train_epoch_start = on_train_epoch_start
"""


def rows_of(directory: RunDirectory) -> list[dict[str, Any]]:
    """Rows of all files of a run, with or without an end."""
    files = sorted((directory.path / "wandb").glob("offline-run-*/run-*.wandb"), key=lambda p: p.stat().st_mtime_ns)
    return [row for file in files for row in read_offline_run(file).history]


def children(pid: int) -> list[int]:
    """Processes that the threads of a process have started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


@pytest.mark.usefixtures("home")
def test_the_last_epoch_survives_a_kill_and_is_there_once(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else it would share the process that writes W&B's files with this one.
    monkeypatch.delenv("WANDB_SERVICE", raising=False)
    directory = RunDirectory(tmp_path / "tiny/seed-0")
    process = start(tiny, tmp_path, OFFLINE, "trainer.epochs=3", before=STAY_BETWEEN_EPOCHS)
    wait_until(lambda: [row["epoch"] for row in rows_of(directory)] == [0, 1], process)
    for pid in [*children(process.pid), process.pid]:
        os.kill(pid, signal.SIGKILL)
        assert ended(pid)
    process.communicate(timeout=PATIENCE)
    assert [row["epoch"] for row in rows_of(directory)] == [0, 1]
    tiny.train(tmp_path, OFFLINE, "trainer.epochs=3")
    rows, recorded = rows_of(directory), history(directory)
    assert [(row["epoch"], row["_step"]) for row in rows] == [(row["epoch"], row["step"] - 1) for row in recorded]
    for row, expected in zip(rows, recorded, strict=True):
        for key in expected.keys() - {"step"}:
            assert row[key] == expected[key]


@pytest.mark.usefixtures("home")
def test_epochs_that_are_missing_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config, directory = Config(tracking=TrackingConfig(wandb="offline")), RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    record = EpochLog(directory.metrics, 9)

    def opened(logs: int | None = None) -> list[int]:
        """Steps that W&B has after the run was started once more, and logged a row of some step."""
        # W&B names its folders by the second.
        before = int(time.time())
        while int(time.time()) == before:
            time.sleep(0.05)
        with tracked(config, directory) as logger:
            assert logger is not None
            if logs is not None:
                logger.log_metrics({"epoch": 9}, logs)
        newest = find_offline_files(directory.path)[-1].path
        while read_offline_run(newest).exit_code is None:
            time.sleep(0.05)
        return sorted(row["_step"] for row in rows_of(directory))

    for epoch in range(3):
        record.write(epoch, 4 * (epoch + 1), {"train/loss": 0.5, "validation/pearson": math.nan, "seconds": 1.0})
    assert opened() == [3, 7, 11]
    assert opened(logs=11) == [3, 7, 11], "an epoch that is trained once more"
    assert opened(logs=15) == [3, 7, 11, 15]
    row = rows_of(directory)[2]
    assert (row["epoch"], row["train/loss"]) == (2, 0.5)
    assert math.isnan(row["validation/pearson"])
    # A torn file lacks its last rows, and they are logged again.
    (whole,) = [file.path for file in find_offline_files(directory.path) if list(logged_steps(file.path)) == [3, 7, 11]]
    content = whole.read_bytes()
    size = next(size for size in range(len(content), 0, -1) if steps_of(content[:size], tmp_path) == [3, 7])
    whole.write_bytes(content[:size])
    assert list(logged_steps(whole)) == [3, 7]
    assert opened() == [3, 7, 11, 15]
    assert not caplog.messages


def steps_of(content: bytes, folder: Path) -> list[int]:
    """Steps of the rows in the beginning of a file."""
    (folder / "beginning").write_bytes(content)
    return list(logged_steps(folder / "beginning"))


@pytest.mark.parametrize("content", [b"", b"0a1", b"\xff\x00", b"0a1b2c3d\n"])
def test_a_damaged_id_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    file = tmp_path / "wandb_id.txt"
    first = run_id(file)
    assert run_id(file) == first
    assert not caplog.messages
    file.write_bytes(content)
    new = run_id(file)
    assert run_id(file) == new == file.read_text().strip()
    whole = len(content) > 8
    assert (new == "0a1b2c3d") == whole
    assert [message.partition(": ")[0] for message in caplog.messages] == [] if whole else [f"'{file}' is damaged"]
