"""Two and three starts at once: one of them works, the others wait, are refused, or stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dglcell.cli import main
from dglcell.data.store import verify_store
from dglcell.runs import EpochLog, RunDirectory
from tests.files.test_owner import run_out
from tests.forked import Forked
from tests.integration.processes import PATIENCE, start, state, wait_until
from tests.tiny import BARE, ENDLESS, Tiny, process_environment

OPEN_STORE = """
import logging, signal, sys
from dglcell.config.read import load_config
from dglcell.data import store as store_module
from dglcell.training.prepare import open_store

logging.basicConfig(level=logging.INFO, format="%(message)s")
if {stays}:
    store_module._write = lambda *_: signal.pause()
open_store(load_config({file!r}, [{store!r}]), "tests").read()
sys.exit()
"""
"""What `train` does first, and nothing else."""


@pytest.fixture
def running(tiny: Tiny, tmp_path: Path) -> Iterator[tuple[Forked, RunDirectory]]:
    """Provide a process that trains, and has finished an epoch; it is ended with the test."""
    run = RunDirectory(tmp_path / "tiny" / "seed-0")
    process = start(tiny, tmp_path, *ENDLESS)
    try:
        wait_until(run.last.exists, process)
        yield process, run
    finally:
        process.kill()
        process.communicate()


def train(tiny: Tiny, runs: Path, *options: str) -> int:
    return main(["train", str(tiny.file), *tiny.overrides(runs, *BARE, *options)])


def numbers(run: RunDirectory) -> list[int]:
    return [row["epoch"] for row in EpochLog(run.metrics, 0).read()]


def test_a_second_start_is_refused_and_one_whose_lease_has_run_out_stops(
    tiny: Tiny, tmp_path: Path, running: tuple[Forked, RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    process, run = running
    assert train(tiny, tmp_path, *ENDLESS) == 2
    said = capsys.readouterr().err
    assert f"error: another process is writing '{run.path}'\n  got:      process {process.pid} on " in said
    assert process.poll() is None
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: state(process.pid) == "T", process)
    run_out(run.owner)
    epochs = len(numbers(run)) + 2
    assert train(tiny, tmp_path, *ENDLESS, f"trainer.epochs={epochs}") == 0
    last, record = run.last.read_bytes(), run.metrics.read_bytes()
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2, said
    assert f"error: another process has taken over '{run.path}', so this one stops\n  got: " in said
    assert "Traceback" not in said
    assert (run.last.read_bytes(), run.metrics.read_bytes()) == (last, record)
    assert numbers(run) == list(range(epochs))
    assert not list(run.path.rglob(".*.partial-*"))


def test_of_three_starts_at_once_one_trains(tiny: Tiny, tmp_path: Path) -> None:
    processes = [start(tiny, tmp_path, "trainer.epochs=2") for _ in range(3)]
    said = [process.communicate(timeout=PATIENCE)[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert 0 in codes, said
    for code, text in zip(codes, said, strict=True):
        # One that comes when the first has ended evaluates once more.
        assert (code, "is writing" in text) in ((0, False), (2, True)), text
        assert "Traceback" not in text
    run = RunDirectory(tmp_path / "tiny" / "seed-0")
    assert numbers(run) == [0, 1]
    assert not run.owner.exists()


def test_members_of_a_job_array_wait_for_the_store_and_one_follows_a_killed_builder(tiny: Tiny, tmp_path: Path) -> None:
    store = tmp_path / "data" / "store"

    def member(stays: bool) -> Forked:
        program = OPEN_STORE.format(stays=stays, file=str(tiny.file), store=f"data.store={store}")
        return Forked([], process_environment(), before=program)

    builder = member(stays=True)
    wait_until(lambda: list(store.parent.glob(".store.partial-*")), builder)
    others = [member(stays=False) for _ in range(2)]
    for other in others:
        wait_until(lambda: "waiting for" in other.said()[1], other)  # noqa: B023
        assert f"waiting for '{store}', which is written by process {builder.pid} on " in other.said()[1]
    assert not store.exists()
    builder.kill()
    builder.communicate()
    heard = [other.communicate(timeout=PATIENCE)[1] for other in others]
    assert [other.returncode for other in others] == [0, 0], heard
    assert sum("building store" in text for text in heard) == 1
    assert [path.name for path in store.parent.iterdir()] == ["store"]


def test_two_builds_that_replace_a_store_at_once_both_do(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    arguments = ["data", "build", str(tiny.file), f"data.store={store}", "--overwrite"]
    codes: list[int] = []
    builds = [threading.Thread(target=lambda: codes.append(main(arguments))) for _ in range(2)]
    for build in builds:
        build.start()
    for build in builds:
        build.join()
    assert codes == [0, 0], capsys.readouterr().err
    verify_store(store)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
