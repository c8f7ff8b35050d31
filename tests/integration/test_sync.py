"""Runs that were trained offline, uploaded by the real ``wandb sync`` to a server of this machine."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dglcell.cli import main
from dglcell.config.experiment import Config, TrackingConfig
from dglcell.errors import DataError, StoppedError
from dglcell.runs.directory import RunDirectory
from dglcell.training.tracking import find_offline_files, plan_sync, tracked
from tests.tiny import Tiny
from tests.wandb_server import WandbServer

pytest.importorskip("wandb")

KEY = "k" * 40


@pytest.fixture(scope="module")
def trained(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of two runs; the first was continued."""
    folder = tmp_path_factory.mktemp("offline")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
            patch.setenv(name, str(folder / "home"))
        for seed, epochs in ((0, 1), (0, 3), (1, 1)):
            tiny.train(folder / "runs", "tracking.wandb=offline", f"seed={seed}", f"trainer.epochs={epochs}")
    return folder / "runs"


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    """Return a copy of them."""
    return Path(shutil.copytree(trained, tmp_path / "runs", symlinks=True))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    """Provide a server, and somebody who is logged in."""
    for name in ("HOME", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("WANDB_X_GRAPHQL_RETRY_MAX", "1")
    with WandbServer() as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("WANDB_BASE_URL", running.url)
        yield running
        running.shutdown()


def run_id(folder: Path) -> str:
    """Id that a run directory keeps."""
    return RunDirectory(folder).wandb_id.read_text()


def test_a_continued_run_is_one_run_and_is_uploaded_once(
    runs: Path, server: WandbServer, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (runs / "tiny" / f"seed-{seed}" for seed in (0, 1))
    assert main(["sync", str(first)]) == 0
    assert set(server.runs) == {run_id(first)}
    run = server.runs[run_id(first)]
    assert run.group == "tiny"
    assert [row["epoch"] for row in run.history] == [0, 1, 2]
    # 240 training strains in batches of 64: four steps an epoch, counted on where the run was continued.
    assert [row["_step"] for row in run.history] == [3, 7, 11]
    assert (run.preempting, run.exit_code) == (False, 0)
    assert "2 files uploaded, 0 before" in capsys.readouterr().out
    assert main(["sync", str(runs)]) == 0
    assert "1 file uploaded, 2 before" in capsys.readouterr().out
    assert len(run.history) == 3
    assert len(server.runs[run_id(second)].history) == 1
    assert not (runs.parent / "wandb").exists()


def test_a_run_that_was_stopped_is_preempted(runs: Path, server: WandbServer) -> None:
    folder = runs / "stopped"
    folder.mkdir()
    config = Config(tracking=TrackingConfig(wandb="offline"))
    with pytest.raises(StoppedError), tracked(config, RunDirectory(folder)):
        raise StoppedError(signal.SIGUSR1)
    assert main(["sync", str(folder)]) == 0
    run = server.runs[run_id(folder)]
    assert (run.preempting, run.exit_code) == (True, 128 + signal.SIGUSR1)


def test_a_dry_run_only_says_what_it_would_do(
    runs: Path, server: WandbServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sync", "--dry-run", str(runs)]) == 0
    said = capsys.readouterr().out
    assert said.count("seed-0: offline-run-") == 2
    assert "3 files would be uploaded, 0 before" in said
    assert not server.runs


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [("WANDB_BASE_URL", "http://127.0.0.1:1", "connection refused"), ("WANDB_API_KEY", None, "wandb login")],
)
def test_without_network_or_login_nothing_counts_as_uploaded(
    runs: Path,
    server: WandbServer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    variable: str,
    value: str | None,
    message: str,
) -> None:
    monkeypatch.delenv(variable)
    if value is not None:
        monkeypatch.setenv(variable, value)
    assert main(["sync", str(runs / "tiny/seed-0")]) == 1
    said = capfd.readouterr().err
    assert message in said
    assert "error: 2 of 2 files were not uploaded" in said
    assert not any(file.is_uploaded() for file in find_offline_files(runs))


def test_a_run_without_an_end_is_left_alone(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = runs / "tiny/seed-0"
    first, last = find_offline_files(folder)
    for file in (first, last):
        (file.path.parent / "complete").unlink()
    # The first one was killed: the run was started again after it.
    assert [file.path for file in plan_sync([folder]).files] == [first.path]
    assert [file.path for file in plan_sync([folder], force=True).files] == [first.path, last.path]
    assert main(["sync", "--dry-run", str(folder)]) == 0
    assert f"{folder}: still training, or killed: left alone; --force uploads it" in capsys.readouterr().out


def test_what_was_added_after_an_upload_is_uploaded(runs: Path) -> None:
    (file,) = find_offline_files(runs / "tiny/seed-1")
    file.marker.touch()
    assert file.is_uploaded()
    with open(file.path, "ab") as more:
        more.write(b"\0")
    os.utime(file.path, ns=(0, file.marker.stat().st_mtime_ns + 1))
    assert not file.is_uploaded()


def test_folders_without_offline_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"run directory '.*none' not found\n  expected: a run, or a folder of runs"):
        plan_sync([tmp_path / "none"])
    with pytest.raises(DataError, match=r"holds nothing that W&B wrote offline\n  do:       train with `tracking"):
        plan_sync([tmp_path])
