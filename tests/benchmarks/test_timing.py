"""How steps are timed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.timing import (
    LEAST_STEPS,
    MOST_STEPS,
    Ceilings,
    DiedError,
    Forked,
    clock,
    ideal_seconds,
    measure_ceilings,
)
from dglcell.errors import ConfigError
from dglcell.models.config import HeteroCellConfig
from tests import forked as forked_command
from tests.tiny import process_environment

# Steps are repeated as the budget allows.


class Steps:
    """Takes the given seconds, the last value again and again, on a clock that nothing else moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
        self.seconds, self.done, self.now = seconds, 0, 0.0
        monkeypatch.setattr("benchmarks.timing.time", SimpleNamespace(perf_counter=lambda: self.now))

    def __call__(self) -> None:
        self.now += self.seconds[min(self.done, len(self.seconds) - 1)]
        self.done += 1


def test_short_steps_fill_the_budget_after_two_to_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch, 4.0, 4.0, 0.25)
    timing = clock(steps, 5.0, "cpu")
    assert (timing.first, timing.warm_up, steps.done) == (4.0, 2, 22)
    assert timing.seconds == (0.25,) * 20
    assert timing.median == 0.25


def test_steps_that_nearly_fill_the_budget_are_repeated_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clock(Steps(monkeypatch, 4.0), 5.0, "cpu").seconds == (4.0,) * LEAST_STEPS


def test_nothing_is_repeated_without_end() -> None:
    assert len(clock(lambda: None, 1e9, "cpu").seconds) == MOST_STEPS


@pytest.mark.parametrize(
    ("first_counts", "seconds", "expected"),
    [
        (True, (2.0,), (1, 1, 2)),
        (True, (8.0,), (1, 0, 1)),
        (False, (8.0, 0.1), (1, 1, 2)),
    ],
)
def test_long_steps_are_timed_once(
    monkeypatch: pytest.MonkeyPatch, first_counts: bool, seconds: tuple[float, ...], expected: tuple[int, int, int]
) -> None:
    steps = Steps(monkeypatch, *seconds)
    timing = clock(steps, 1.0, "cpu", first_counts=first_counts)
    assert (len(timing.seconds), timing.warm_up, steps.done) == expected


# The machine's ceilings and a step's ideal time, by hand.


RELATION = ("gene", "physical", "gene")


def test_ideal_time_is_bytes_plus_flops() -> None:
    config = HeteroCellConfig(hidden=8, layers=2, conv="gin", gin_layers=2, gin_hidden=16)
    # Three strains and the wild type, 100 edges, 10 genes.
    gathered = 2 * 2 * 100 * 4 * 8 * 4
    convolutions = 2 * 10 * (8 * 16 + 16 * 8)
    pooling = 10 * (8 * 8 + 8 * 4)
    flops = 3 * 2 * 4 * (convolutions + pooling)
    found = ideal_seconds(config, {RELATION: 100}, {"gene": 10}, 3, "float32", Ceilings(1e3, 1e4))
    assert found == pytest.approx(gathered / 1e3 + flops / 1e4)
    half = ideal_seconds(config, {RELATION: 100}, {"gene": 10}, 3, "bfloat16", Ceilings(1e3, 1e30))
    assert half == pytest.approx(gathered / 2 / 1e3)


def test_sage_has_two_linear_layers_per_relation() -> None:
    config = HeteroCellConfig(hidden=8, layers=1, conv="sage")
    found = ideal_seconds(config, {RELATION: 100}, {"gene": 10}, 1, "float32", Ceilings(1e30, 1.0))
    assert found == pytest.approx(3 * 2 * 2 * (10 * 2 * 64 + 10 * (64 + 32)))


def test_ceilings_are_of_a_machine() -> None:
    rates = measure_ceilings("cpu", "float32", budget=0.05)
    assert 1e8 < rates.copy_bytes_per_second < 1e13
    assert 1e8 < rates.gemm_flops_per_second < 1e15


# Forks give back results and exceptions, and nothing else.


@pytest.fixture(scope="module")
def forked() -> Forked:
    return Forked(1)


def test_results_come_back_and_side_effects_do_not(forked: Forked) -> None:
    seen: list[int] = []

    def work() -> tuple[int, ...]:
        seen.append(1)
        return tuple(seen)

    assert forked(work) == (1,)
    assert seen == []


def test_exceptions_come_back_with_where_they_were_raised(forked: Forked) -> None:
    def wrong() -> None:
        raise ConfigError("wrong", got=3)

    def bug() -> None:
        raise KeyError("bug")

    with pytest.raises(ConfigError, match=r"wrong\n  got:      3"):
        forked(wrong)
    with pytest.raises(KeyError) as caught:
        forked(bug)
    assert "in bug" in caught.value.__notes__[0]


@pytest.mark.parametrize(("death", "killed", "said"), [("SIGKILL", True, "SIGKILL"), ("SIGTERM", False, "SIGTERM")])
def test_a_dead_fork_is_an_exception(forked: Forked, death: str, killed: bool, said: str) -> None:
    with pytest.raises(DiedError, match=said) as caught:
        forked(lambda: os.kill(os.getpid(), getattr(signal, death)))
    assert caught.value.killed is killed


@pytest.mark.slow
def test_several_threads_and_gradients_work_in_forks_one_after_the_other() -> None:
    program = """
import torch
from benchmarks.timing import Forked
forked = Forked(2)
def work():
    x = torch.ones(300, 300, requires_grad=True)
    (x @ x).relu().sum().backward()
    return torch.get_num_threads(), float(x.grad.sum())
print(forked(work), forked(work), torch.get_num_threads())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=process_environment(), capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "(2, 54000000.0) (2, 54000000.0) 1", done.stderr


# Too much memory is an exception.


linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


@linux
def test_allocations_beyond_the_limit_raise_and_the_limit_goes_away() -> None:
    program = """
import torch
from dglcell.machine.memory import keep_freed_memory
from dglcell.machine.devices import release
from dglcell.machine.memory import is_out_of_memory
from benchmarks.timing import MemoryLimit
keep_freed_memory()
limit = MemoryLimit(300_000_000)
with limit.on("cpu"):
    torch.ones(50_000_000)
release("cpu")
try:
    with limit.on("cpu"):
        torch.ones(100_000_000)
except RuntimeError as error:
    print("refused", is_out_of_memory(error))
print(float(torch.ones(100_000_000)[-1]))
"""
    said = forked_command.Forked([], process_environment(), before=program + "raise SystemExit").communicate()
    assert said[0].split() == ["refused", "True", "1.0"], said[1]
