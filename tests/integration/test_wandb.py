"""W&B as a view of the run: offline, without network, read back from its file."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from dglcell.training.directory import RunDirectory
from dglcell.training.offline_files import find_offline_files
from tests.integration.test_preemption import start, stop_in_an_epoch
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
    for _ in range(100):
        runs = [read_offline_run(path) for path in paths]
        if all(run.finished for run in runs):
            return runs
        time.sleep(0.1)
    raise AssertionError("no record of the end")


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
    assert not first.preempted
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


def test_two_runs_in_one_process_stay_two(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    ids = []
    for seed in (0, 1):
        directory = tiny.train(tmp_path, OFFLINE, "trainer.epochs=1", f"seed={seed}").directory
        (run,) = offline_runs(directory)
        assert run.config["seed"] == seed
        ids.append(run.run_id)
    assert ids[0] != ids[1]


def test_a_run_that_is_stopped_in_an_epoch_stays_one_run(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    options = (OFFLINE, "data.batch_size=2", "trainer.epochs=3")
    run = RunDirectory(tmp_path / "tiny/seed-0")
    stop_in_an_epoch(start(tiny, tmp_path, *options), run, signal.SIGUSR1)
    tiny.train(tmp_path, *options)
    first, second = offline_runs(run)
    assert first.run_id == second.run_id == run.wandb_id.read_text()
    assert (first.preempted, second.preempted) == (True, False)
    assert [row["epoch"] for row in first.history + second.history] == [0, 1, 2]
    assert [file.ended for file in find_offline_files(run.path)] == [True, True]
