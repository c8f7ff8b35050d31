"""Devices and their memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import dglcell.machine.devices as memory
from dglcell.errors import ConfigError, MissingDependencyError
from dglcell.machine.devices import (
    RECENT,
    REVIEW,
    TIMED,
    ThreadTurns,
    available_memory,
    check_device,
    device_here,
    device_of,
    measured_memory,
    numbers_of_threads,
    release,
    threads,
)
from dglcell.machine.memory import status


def test_accelerators_are_devices() -> None:
    assert device_of("cpu") == "cpu"
    assert device_of("gpu") == device_of("cuda") == "cuda"
    assert device_of("auto") == ("cuda" if torch.cuda.is_available() else "cpu")


def test_devices_that_are_not_there_are_refused() -> None:
    check_device("cpu")
    with pytest.raises(ConfigError, match=r"unknown device\n  got: +abacus\n  expected: cpu or cuda"):
        check_device("abacus")
    if not torch.cuda.is_available():
        with pytest.raises(MissingDependencyError, match="device 'cuda:0' asked for, but torch sees no GPU"):
            check_device("cuda:0")


def test_models_trained_on_a_gpu_are_evaluated_without_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="dglcell")
    assert device_here("cpu") == "cpu"
    assert caplog.text == ""
    assert device_here("gpu") == ("cuda" if torch.cuda.is_available() else "cpu")
    assert ("torch sees no GPU" in caplog.text) != torch.cuda.is_available()


linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


@linux
def test_a_planted_allocation_is_seen_and_an_earlier_one_is_not() -> None:
    before = torch.ones(50_000_000)  # 200 MB
    del before
    release("cpu")
    with measured_memory("cpu") as peak:
        planted = torch.ones(25_000_000)  # 100 MB
        del planted
    assert peak.bytes is not None
    assert 95e6 < peak.bytes < 130e6


def test_without_a_high_water_mark_to_reset_the_whole_life_counts(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(memory, "PROCESS", tmp_path / "missing")
    with measured_memory("cpu") as peak:
        pass
    assert peak.bytes is not None
    assert peak.bytes > 50e6


@linux
def test_available_memory_heeds_control_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    total = available_memory()
    assert total is not None
    group = tmp_path / "group"
    group.mkdir()
    (group / "memory.max").write_text("3000000\n")
    (group / "memory.current").write_text("1500000\n")
    (group / "memory.stat").write_text("anon 1000000\nfile 500000\n")
    monkeypatch.setattr(memory, "_group_rooms", lambda: [memory._room(group, "memory.max", "memory.current", "file")])
    assert available_memory() == 2_000_000
    (group / "memory.max").write_text("max\n")
    assert memory._room(group, "memory.max", "memory.current", "file") is None


@linux
def test_the_resident_set_is_read_in_bytes() -> None:
    resident = status("VmRSS")
    assert resident is not None
    assert 20e6 < resident < 1e12
    assert status("VmNothing") is None


class Clock:
    """A machine on which a work takes so many seconds with each number of threads."""

    def __init__(self, seconds: dict[int, float]) -> None:
        self.seconds, self.now, self.used = seconds, 0.0, list[int]()

    def __call__(self) -> float:
        return self.now

    def do(self, turns: ThreadTurns, works: int) -> list[int]:
        """Return numbers of threads that some works were done with."""
        used = []
        for _ in range(works):
            with turns.work():
                used.append(torch.get_num_threads())
                self.now += self.seconds[used[-1]]
        return used


def test_numbers_of_threads_that_are_timed() -> None:
    assert [numbers_of_threads(most) for most in (1, 2, 4, 16, 64)] == [
        [1], [1, 2], [1, 4], [1, 4, 16], [1, 4, 16, 64]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "best"),
    [({1: 1.0, 2: 0.6}, 2), ({1: 1.0, 2: 1.4}, 1), ({1: 1.0, 2: 0.97}, 1), ({1: 1.0, 4: 0.3, 16: 0.5}, 4)],
    ids=["two are faster", "two are slower", "two are hardly faster", "four of sixteen"],
)
def test_works_take_turns_and_then_use_what_was_fastest(seconds: dict[int, float], best: int) -> None:
    with threads(1):
        clock = Clock(seconds)
        turns = ThreadTurns(max(seconds), clock, lambda: 99)
        assert clock.do(turns, TIMED * len(seconds)) == sorted(seconds) * TIMED
        assert set(clock.do(turns, 50)) == {best}


def test_a_number_of_threads_that_is_hopeless_gets_one_turn() -> None:
    with threads(1):
        clock = Clock({1: 1.0, 2: 20.0})
        assert clock.do(ThreadTurns(2, clock, lambda: 2), 100).count(2) == 1


def test_no_more_threads_are_tried_than_cores_are_idle() -> None:
    with threads(1):
        clock, idle = Clock({1: 1.0, 2: 0.6}), [1]
        turns = ThreadTurns(2, clock, lambda: idle[0])
        assert set(clock.do(turns, TIMED + 20)) == {1}
        idle[0] = 2
        assert set(clock.do(turns, REVIEW + 20)[-5:]) == {2}


def test_works_that_get_slower_are_timed_again() -> None:
    with threads(1):
        clock = Clock({1: 1.0, 2: 0.6})
        turns = ThreadTurns(2, clock, lambda: 2)
        clock.do(turns, 30)
        clock.seconds = {1: 1.3, 2: 4.0}  # another process has come
        clock.do(turns, RECENT + TIMED + 1)
        assert set(clock.do(turns, 20)) == {1}
        clock.seconds = {1: 1.0, 2: 0.6}  # and has gone
        assert set(clock.do(turns, REVIEW + 2 * TIMED)[-5:]) == {2}


def test_a_number_of_threads_that_is_given_is_kept() -> None:
    before = torch.get_num_threads()
    with threads(1):
        assert Clock({1: 1.0}).do(ThreadTurns.of_process(), 10) == [1] * 10
        with threads(None):
            assert Clock({1: 1.0}).do(ThreadTurns.of_process(), 10) == [1] * 10  # as many as there were
    assert torch.get_num_threads() == before
