"""Who writes: processes that are found again, and leases that one process has at a time."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from dglcell.errors import OwnerError
from dglcell.files import lives, mark_of, owner, partial_of
from dglcell.files.owner import Lease, current_holder, held, refuse_if_taken_over
from dglcell.runs import RunDirectory
from dglcell.training.run import follow_owner
from dglcell.training.signals import PARENT
from tests.tiny import Tiny, process_environment

ELSEWHERE = f"{'0' * 10}-7-1"  # a process of another machine


def test_whether_a_process_lives_is_known_for_those_of_this_machine(tmp_path: Path) -> None:
    assert lives(partial_of(tmp_path / "x").name.removeprefix(".x.partial-")) is True
    machine, number, started = mark_of(os.getpid()).split("-")
    assert lives(f"{machine}-{number}-{int(started) - 1}") is False, "its number was used again"
    assert lives(ELSEWHERE) is None
    unnoticed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mark = mark_of(unnoticed.pid)
    assert lives(mark) is True
    unnoticed.kill()
    os.waitid(os.P_PID, unnoticed.pid, os.WEXITED | os.WNOWAIT)
    assert lives(mark) is False, "nobody has noticed its end"
    unnoticed.communicate()
    assert lives(mark) is False


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(owner, "START_SECONDS", 0.2)
    return tmp_path / "run" / "owner.json"


def lease_of(file: Path) -> Lease:
    return Lease(file, file.parent)


BEGIN = """
import os, signal
from pathlib import Path
from dglcell.files.owner import *
lease = Lease(Path({file!r}), Path({file!r}).parent)
"""


def start(file: Path, program: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BEGIN.format(file=str(file)) + program]
    return subprocess.Popen(command, env=process_environment(**environment), stdout=subprocess.PIPE, text=True)


@contextmanager
def other(file: Path, program: str = "lease.acquire()", **environment: str) -> Iterator[int]:
    """Let another process take the lease, and kill it at the end; provides the number that it says, or its own."""
    process = start(file, f"{program}\nprint(os.getpid(), flush=True)\nsignal.pause()", **environment)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline() or process.pid)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_lease_is_taken_given_back_and_leaves_nothing(file: Path) -> None:
    with pytest.raises(KeyboardInterrupt), held(lease_of(file)):
        assert json.loads(file.read_text())["mark"] == mark_of(os.getpid())
        message = (
            rf"another process is writing '{file.parent}'\n  got: +process {os.getpid()} on .*, since 20.*\n"
            rf"  expected: one process at a time\n  do: +wait .*is lost, remove '{file}' and '.*/\.owner.json.lock'"
        )
        with pytest.raises(OwnerError, match=message), held(lease_of(file)):
            raise AssertionError("two have it")
        assert sorted(os.listdir(file.parent)) == [".owner.json.lock", "owner.json"]
        assert (file.parent / ".owner.json.lock").stat().st_mode & 0o666 == 0o666, "others may wait, and lock it later"
        raise KeyboardInterrupt
    assert not file.parent.exists(), "it was made for the lease"


@pytest.mark.parametrize("moment", ["", "os.replace = lambda *_: os.kill(os.getpid(), 9)"], ids=["held", "not named"])
def test_that_of_a_killed_process_is_taken_over(file: Path, moment: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dglcell")
    with other(file, f"{moment}\nlease.acquire()") as number:
        assert moment or str(current_holder(file)).startswith(f"process {number} on ")
    assert current_holder(file) is None
    with held(lease_of(file)):
        refuse_if_taken_over(file)
        assert (f"'{file.parent}' is taken over from process {number} on " in caplog.text) == (not moment)
    assert os.listdir(file.parent) == []


def test_a_process_whose_lease_another_one_has_writes_no_more(file: Path) -> None:
    old, new = lease_of(file), lease_of(file)
    assert old.acquire()
    for path in file.parent.iterdir():  # as the error tells
        path.unlink()
    with pytest.raises(OwnerError, match=r"got: +'owner.json' is gone: that process has ended, or the file was"):
        refuse_if_taken_over(file.parent / "x")
    assert new.acquire()
    message = (
        rf"another process has taken over '{file.parent}', so this one stops\n  got: +process {os.getpid()} on .*\n"
        r"  expected: a lease of process .*\n  do: +let the other one go on"
    )
    with pytest.raises(OwnerError, match=message):
        refuse_if_taken_over(file.parent / "checkpoints" / "last.ckpt")
    refuse_if_taken_over(file.parents[1] / "elsewhere")
    old.release()
    assert not lease_of(file).acquire(), "it is the other one's"
    refuse_if_taken_over(file.parent / "metrics.jsonl")
    new.release()
    assert os.listdir(file.parent) == []


CONTEND = """
import time
time.sleep = lambda seconds: None
for _ in range(100):
    with held(lease, waits=True):
        os.close(os.open(alone, os.O_CREAT | os.O_EXCL))
        refuse_if_taken_over(lease.path)
        os.unlink(alone)
"""


def test_of_processes_that_make_and_remove_the_folder_one_has_it_at_a_time(file: Path, tmp_path: Path) -> None:
    processes = [start(file, f"alone = {str(tmp_path / 'alone')!r}{CONTEND}") for _ in range(3)]
    assert [process.communicate() and process.returncode for process in processes] == [0, 0, 0]
    assert os.listdir(tmp_path) in ([], ["run"])


def test_a_folder_that_others_remove_again_and_again_is_made_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, times = os.open, iter(range(20))

    def remove_before(path: str, *how: int) -> int:
        if path.endswith(".lock") and next(times, None) is not None:
            file.parent.rmdir()
        return opened(path, *how)

    monkeypatch.setattr("os.open", remove_before)
    with held(lease_of(file)):
        refuse_if_taken_over(file)
    assert next(times, None) is None
    assert not file.parent.exists()


ASK_SLOWLY = """
import fcntl, time
flock = fcntl.flock
def flock_slowly(*arguments):
    flock(*arguments)
    print(os.getpid(), flush=True)
    time.sleep(0.5)
fcntl.flock = flock_slowly
assert current_holder(lease.path) is None
"""


def test_who_asks_for_the_holder_is_not_in_the_way_of_a_start(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "START_SECONDS", 60.0)
    with other(file):
        pass
    with other(file, ASK_SLOWLY):
        lease = lease_of(file)
        assert not lease.acquire()
        with held(lease):
            refuse_if_taken_over(file)


@pytest.mark.parametrize("content", ["", "[" * 100_000, '{"mark": "1"}', '{"mark": "1", "process": ["x"]}'])
def test_a_damaged_file_names_nobody(file: Path, content: str) -> None:
    with other(file):
        file.write_text(content)
        assert current_holder(file) is None
        with pytest.raises(OwnerError, match=r"got: +an unknown process"), held(lease_of(file)):
            raise AssertionError("two have it")
    with held(lease_of(file)):
        refuse_if_taken_over(file)
    assert os.listdir(file.parent) == []


FORKS = """
lease.acquire()
for does in lease.release, signal.pause:
    child = os.fork()
    if child == 0:
        assert not lease.guards(lease.path)
        does()
        os._exit(0)
    if does == lease.release:
        assert os.wait() == (child, 0)
refuse_if_taken_over(lease.path)
print(child, flush=True)
"""


def test_a_forked_process_neither_has_its_parents_lease_nor_keeps_it(file: Path) -> None:
    with other(file, FORKS) as child:
        assert not lease_of(file).acquire()
    with held(lease_of(file)):
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_where_the_file_system_does_not_lock_the_file_decides(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(number, "no locks here")))
    with held(lease_of(file)):
        assert "is on a file system without locks: start one process at a time there" in caplog.text
        assert not lease_of(file).acquire()
        left = json.loads(file.read_text())
    assert not file.parent.exists()
    with other(file) as process:
        assert str(current_holder(file)).startswith(f"process {process} on ")
        assert not lease_of(file).acquire()
    with held(lease_of(file)):
        refuse_if_taken_over(file)
    file.write_text(json.dumps({**left, "mark": ELSEWHERE}))
    assert not lease_of(file).acquire(), "it may live"
    file.unlink()
    with held(lease_of(file)):
        refuse_if_taken_over(file)


def test_of_two_that_start_at_once_without_locks_one_goes_on(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.ENOLCK, "no locks here")))
    replace, first, second = os.replace, lease_of(file), lease_of(file)

    def replace_after_the_other(*names: Path) -> None:
        monkeypatch.setattr("os.replace", replace)
        assert second.acquire()
        replace(*names)

    monkeypatch.setattr("os.replace", replace_after_the_other)
    assert first.acquire()
    assert json.loads(file.read_text()) == first.about
    with pytest.raises(OwnerError, match="so this one stops"):
        refuse_if_taken_over(file)
    second.release()
    first.release()
    assert os.listdir(file.parents[1]) == []


@contextmanager
def killed_soon(number: int) -> Iterator[None]:
    killing = threading.Timer(0.7, os.kill, (number, signal.SIGKILL))
    killing.start()
    yield
    killing.join()


def test_only_a_job_that_was_started_again_waits_for_its_earlier_process(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dglcell")
    monkeypatch.setattr(owner, "RESTART_SECONDS", 0.4)
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    with other(file, SLURM_JOB_ID="12") as number:
        for job, again in ("12", False), ("13", True), ("12", True):
            monkeypatch.setenv("SLURM_JOB_ID", job)
            if again:
                monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
            name = rf"process {number} on .* \(SLURM job 12\), since 20"
            with pytest.raises(OwnerError, match=name), held(lease_of(file)):
                raise AssertionError("two have it")
            waited = f"waiting for '{file.parent}', which is written by process {number} on " in caplog.text
            assert waited == (again and job == "12")
        monkeypatch.setattr(owner, "RESTART_SECONDS", 60.0)
        with killed_soon(number), held(lease_of(file)):
            refuse_if_taken_over(file)


def test_other_ranks_read_nothing_while_an_earlier_start_writes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = RunDirectory(file.parent)
    assert directory.owner == file
    with other(file):
        follow_owner(directory, 0.0)  # they were started together
    with other(file, MASTER_PORT="1") as number:
        with pytest.raises(OwnerError, match=rf"were started before\n  got: +process {number} on"):
            follow_owner(directory, 0.0)
        with monkeypatch.context() as patch:
            patch.setenv(PARENT, "1")
            follow_owner(directory, 0.0)  # the first process has it, and started this one
        with killed_soon(number):
            follow_owner(directory, 60.0)
        assert not lives(mark_of(number))


def test_only_what_dead_processes_were_writing_is_removed(tiny: Tiny, tmp_path: Path) -> None:
    run = tiny.train(tmp_path, "trainer.epochs=1").directory
    here = mark_of(os.getpid())
    marks = here, here.rpartition("-")[0] + "-1", ELSEWHERE
    living, *dead = (run.checkpoints / f".last.ckpt.partial-{mark}-00000000" for mark in marks)
    for path in (living, *dead):
        path.touch()
    tiny.train(tmp_path, "trainer.epochs=2")
    assert [path.exists() for path in (living, *dead)] == [True, False, False]
