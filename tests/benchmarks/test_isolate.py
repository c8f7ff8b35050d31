"""Forks give back results and exceptions, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from benchmarks.timing import DiedError, Forked
from dglcell.errors import ConfigError
from tests.tiny import process_environment


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
