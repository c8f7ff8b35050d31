"""Who writes: processes that are found again, and leases that one process has at a time."""

from __future__ import annotations

import errno
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dglcell.errors import OwnerError
from dglcell.files import owner
from dglcell.files.owner import (
    LEASE_SECONDS,
    Holder,
    Lease,
    current_holder,
    held,
    lives,
    mark_of,
    partial_of,
    refuse_if_taken_over,
)
from dglcell.runs import RunDirectory
from dglcell.training.run import follow_owner
from dglcell.training.signals import PARENT
from tests.tiny import Tiny, process_environment


def child(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    begin = "import os\nfrom pathlib import Path\nfrom dglcell.files.owner import *\n"
    begin += "lease = Lease(Path('run/owner.json'), Path('run'))\n"
    command = [sys.executable, "-c", begin + program]
    return subprocess.run(command, cwd=folder, env=process_environment(), capture_output=True, text=True)


def test_whether_a_process_lives_is_known_for_those_of_this_machine(tmp_path: Path) -> None:
    assert lives(partial_of(tmp_path / "x").name.removeprefix(".x.partial-")) is True
    machine, number, started = mark_of(os.getpid()).split("-")
    assert lives(f"{machine}-{number}-{int(started) - 1}") is False, "its number was used again"
    assert lives(f"{'0' * 10}-{number}-{started}") is None
    unnoticed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mark = mark_of(unnoticed.pid)
    assert lives(mark) is True
    unnoticed.kill()
    os.waitid(os.P_PID, unnoticed.pid, os.WEXITED | os.WNOWAIT)
    assert lives(mark) is False, "nobody has noticed its end"
    unnoticed.communicate()
    assert lives(mark) is False


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "run" / "owner.json"


def lease_of(lock: Path) -> Lease:
    return Lease(lock, lock.parent)


def run_out(lock: Path, age: float = LEASE_SECONDS + 1) -> None:
    """Let a lease be as old as one that has run out, or of another age in seconds."""
    os.utime(lock, (time.time() - age,) * 2)


def test_a_lease_is_taken_given_back_and_leaves_nothing(lock: Path) -> None:
    with pytest.raises(KeyboardInterrupt), held(lease_of(lock)):
        assert json.loads(lock.read_text())["mark"] == mark_of(os.getpid())
        message = (
            rf"another process is writing '{lock.parent}'\n  got: +process {os.getpid()} on .*, since 20.*\n"
            r"  expected: one process at a time\n  do: +wait until .*its lease runs out in 1[78]\d s, and the same"
        )
        with pytest.raises(OwnerError, match=message), held(lease_of(lock)):
            raise AssertionError("two have it")
        assert os.listdir(lock.parent) == ["owner.json"]
        raise KeyboardInterrupt
    assert not lock.parent.exists(), "it was made for the lease"


@pytest.mark.parametrize("moment", ["", "os.replace = lambda *_: os.kill(os.getpid(), 9)"], ids=["held", "taken over"])
def test_one_of_a_dead_process_is_taken_over_at_once(lock: Path, moment: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dglcell")
    first = lease_of(lock)
    if moment:
        assert first.acquire() is None
        run_out(lock)
    assert child(f"{moment}\nlease.acquire(); os.kill(os.getpid(), 9)", lock.parents[1]).returncode == -signal.SIGKILL
    lease = lease_of(lock)
    assert lease.acquire() is None
    assert f"'{lock.parent}' is taken over from process " in caplog.text
    assert os.listdir(lock.parent) == ["owner.json"]
    lease.renew()
    lease.release()
    first.release()


def test_one_that_has_run_out_is_taken_over_and_its_owner_writes_no_more(lock: Path) -> None:
    old, new = lease_of(lock), lease_of(lock)
    assert old.acquire() is None
    run_out(lock)
    assert current_holder(lock) is None
    assert new.acquire() is None
    message = (
        rf"another process has taken over '{lock.parent}', so this one stops\n  got: +process {os.getpid()} on .*\n"
        r"  expected: a lease of process .*\n  do: +let the other one go on"
    )
    with pytest.raises(OwnerError, match=message):
        refuse_if_taken_over(lock.parent / "checkpoints" / "last.ckpt")
    refuse_if_taken_over(lock.parents[1] / "elsewhere")
    old.release()
    assert lock.exists(), "it is the other one's"
    refuse_if_taken_over(lock.parent / "metrics.jsonl")
    new.release()


def test_a_lease_is_renewed_while_held_and_is_lost_with_its_file(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "RENEW_SECONDS", 0.001)
    lease = lease_of(lock)
    assert lease.acquire() is None
    run_out(lock)
    while lock.stat().st_mtime < time.time() - LEASE_SECONDS:
        assert threading.active_count() > 1
    lock.unlink()
    with pytest.raises(OwnerError, match=r"got: +'owner.json' is gone: that process has ended, or the file was"):
        lease.renew()
    lease.release()


def test_of_many_that_find_it_free_or_run_out_one_gets_it(lock: Path) -> None:
    """Threads race here as processes do: leases know nothing of each other but by files."""
    for _ in range(15):
        contenders = [lease_of(lock) for _ in range(6)]
        start, taken = threading.Barrier(len(contenders)), []

        def contend(lease: Lease, start: threading.Barrier = start, taken: list[Lease] = taken) -> None:
            start.wait()
            if lease.acquire() is None:
                taken.append(lease)

        threads = [threading.Thread(target=contend, args=(lease,)) for lease in contenders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 1
        taken[0].renew()
        assert os.listdir(lock.parent) == ["owner.json"]
        run_out(lock)
    taken[0].release()


def test_owners_that_wake_up_and_end_do_not_end_the_tenure_of_others(lock: Path) -> None:
    """Every order of two that take over, and of two that end."""
    for order in itertools.permutations(range(3)):
        leases = [lease_of(lock) for _ in range(3)]
        for lease in leases:
            assert lease.acquire() is None
            if lease is not leases[-1]:
                run_out(lock)
        for number in order:
            leases[number].release()
            assert lock.exists() == (2 not in order[: order.index(number) + 1])


@pytest.mark.parametrize("content", ["", "[" * 100_000, '{"mark": "1"}', '{"mark": "0123456789-1-1", "x": "y"}'])
def test_a_damaged_file_is_waited_for_until_its_lease_runs_out(lock: Path, content: str) -> None:
    lock.parent.mkdir()
    lock.write_text(content)
    lease = lease_of(lock)
    assert str(lease.acquire()) == "an unknown process, since an unknown time"
    run_out(lock)
    assert lease.acquire() is None
    lease.release()
    assert os.listdir(lock.parent) == []


def test_a_forked_process_has_not_its_parents_lease(lock: Path) -> None:
    program = """
lease.acquire()
pid = os.fork()
if pid == 0:
    print(lease.guards(Path('run/x')), flush=True); lease.release(); os._exit(0)
os.waitpid(pid, 0)
lease.renew(); print(lease.guards(Path('run/x'))); lease.release()
"""
    assert child(program, lock.parents[1]).stdout == "False\nTrue\n"


def test_where_the_file_system_does_not_lock_a_lease_is_taken_all_the_same(
    lock: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    lease = lease_of(lock)
    assert lease.acquire() is None
    assert "is on a file system without locks: start one process at a time there" in caplog.text
    assert str(lease_of(lock).acquire()).startswith(f"process {os.getpid()} on ")
    lease.release()
    assert not lock.exists()


def test_processes_that_were_started_together_have_the_same_owner(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert current_holder(lock) is None
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with held(lease_of(lock)):
        assert current_holder(lock, foreign=True) is None
        monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
        holder = current_holder(lock, foreign=True)
        assert holder is not None
        assert holder.restarted()
        assert "(SLURM job 7)" in str(holder)


def test_signals_are_left_to_the_first_thread(lock: Path) -> None:
    lease = lease_of(lock)
    before = {task.name for task in Path("/proc/self/task").iterdir()}
    assert lease.acquire() is None
    try:
        (new,) = {task.name for task in Path("/proc/self/task").iterdir()} - before
        status = Path(f"/proc/self/task/{new}/status").read_text().splitlines()
        blocked = int(next(line for line in status if line.startswith("SigBlk:")).split()[1], 16)
        assert all(blocked >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1))
    finally:
        lease.release()


ELSEWHERE = Holder("0123456789abcdef", f"{'0' * 10}-7-1", "node1", "12 0", "2026-01-02T03:04:05+00:00")


def write(lock: Path, holder: Holder = ELSEWHERE) -> None:
    lock.parent.mkdir(exist_ok=True)
    lock.write_text(json.dumps(vars(holder)))


def test_a_job_that_was_started_again_waits_for_its_earlier_process(
    lock: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    caplog.set_level("INFO", "dglcell")
    write(lock)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        """As if the earlier process were gone."""
        waits.append(seconds)
        run_out(lock, sum(waits))

    with held(lease_of(lock), sleep=sleep):
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
    lock: Path, monkeypatch: pytest.MonkeyPatch, job: str, restarts: str, launch: str
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
    write(lock, replace(ELSEWHERE, launch=launch))
    waits: list[float] = []
    message = r"another process is writing .*\n  got: +process 7 on node1 \(SLURM job 12\), since 2026-01-02T03:04:05"
    with pytest.raises(OwnerError, match=message), held(lease_of(lock), sleep=waits.append):
        raise AssertionError("it has begun")
    assert waits == []


def test_other_ranks_read_nothing_while_processes_of_an_earlier_start_write(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, waits = RunDirectory(lock.parent), list[float]()
    assert directory.owner == lock
    write(lock)

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            run_out(lock)

    follow_owner(directory, 60.0, sleep)
    assert len(waits) == 3
    write(lock)
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
