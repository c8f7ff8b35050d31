"""A run directory has one owner."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dglcell.errors import OwnerError
from dglcell.files.owner import LEASE_SECONDS, Holder, Lease, held, mark_of
from dglcell.runs import RunDirectory
from dglcell.training.run import follow_owner
from dglcell.training.signals import PARENT
from tests.files.test_owner import run_out
from tests.tiny import Tiny

ELSEWHERE = Holder("0123456789abcdef", f"{'0' * 10}-7-1", "node1", "12 0", "2026-01-02T03:04:05+00:00")


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """Return one that a process of another machine has, as far as is known."""
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    write(directory, ELSEWHERE)
    return directory


def write(directory: RunDirectory, holder: Holder) -> None:
    """Enter an owner."""
    directory.owner.write_text(json.dumps(vars(holder)))


def lease_of(directory: RunDirectory) -> Lease:
    return Lease(directory.owner, directory.path)


def test_a_job_that_was_started_again_waits_for_its_earlier_process(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    caplog.set_level("INFO", "dglcell")
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        """As if the earlier process were gone."""
        waits.append(seconds)
        then = time.time() - sum(waits)
        os.utime(directory.owner, (then, then))

    with held(lease_of(directory), sleep=sleep):
        assert LEASE_SECONDS <= sum(waits) < LEASE_SECONDS + 10
        assert "waiting for" in caplog.text
        assert "which is written by process 7 on node1 (SLURM job 12), since 2026" in caplog.text


@pytest.mark.parametrize(
    ("job", "restarts", "launch"),
    [
        ("13", "0", "12 0"),
        ("12", "1", "12 1 - node1 29500"),
        ("12", "1", "12 1 - node2 29501"),
        ("12", "1", "12 2 - - -"),
        ("12", "0", "12"),
    ],
)
def test_another_job_and_a_process_of_the_same_start_or_a_later_one_are_refused_at_once(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, job: str, restarts: str, launch: str
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
    write(directory, replace(ELSEWHERE, launch=launch))
    waits: list[float] = []
    message = r"another process is writing .*\n  got: +process 7 on node1 \(SLURM job 12\), since 2026-01-02T03:04:05"
    with pytest.raises(OwnerError, match=message), held(lease_of(directory), sleep=waits.append):
        raise AssertionError("it has begun")
    assert waits == []


def test_other_ranks_read_nothing_while_processes_of_an_earlier_start_write(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            run_out(directory.owner)

    follow_owner(directory, 60.0, sleep)
    assert len(waits) == 3
    write(directory, ELSEWHERE)
    with pytest.raises(OwnerError, match=r"is written by processes that were started before\n  got: +process 7 on"):
        follow_owner(directory, 1.0, waits.append)
    monkeypatch.setenv(PARENT, "1")
    follow_owner(directory, 0.0)  # the first process has it, and started this one


def test_only_what_dead_processes_were_writing_is_removed(tiny: Tiny, tmp_path: Path) -> None:
    run = tiny.train(tmp_path, "trainer.epochs=1").directory
    here = mark_of(os.getpid())
    marks = here, here.rpartition("-")[0] + "-1", ELSEWHERE.mark
    living, *dead = (run.checkpoints / f".last.ckpt.partial-{mark}-00000000" for mark in marks)
    for path in (living, *dead):
        path.touch()
    tiny.train(tmp_path, "trainer.epochs=2")
    assert [path.exists() for path in (living, *dead)] == [True, False, False]
