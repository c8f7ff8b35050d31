"""Tasks over threads: all run, once each, whatever the number of threads, in a forked child, and when one fails."""

from __future__ import annotations

import os
import threading

import pytest
import torch

from dglcell.kernels.threads import run_tasks


def squares(number: int) -> list[int]:
    results = [-1] * number

    def square(i: int) -> None:
        assert results[i] == -1
        results[i] = i * i

    run_tasks(square, [(i,) for i in range(number)])
    return results


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("number", [0, 1, 2, 100])
def test_every_task_runs_once(number: int, threads: int) -> None:
    torch.set_num_threads(threads)
    assert squares(number) == [i * i for i in range(number)]


def test_the_number_of_threads_follows_torch() -> None:
    for threads in (2, 4, 3):
        torch.set_num_threads(threads)
        all_there = threading.Barrier(threads)
        run_tasks(all_there.wait, [(20,)] * threads)
        assert not all_there.broken


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failure_reaches_the_caller(threads: int) -> None:
    torch.set_num_threads(threads)

    def fail_at_once(i: int) -> None:
        if i == 0:
            raise ValueError("task 0 failed")

    with pytest.raises(ValueError, match="task 0 failed"):
        run_tasks(fail_at_once, [(i,) for i in range(50)])
    assert squares(10) == [i * i for i in range(10)]


def test_a_child_forked_after_use_has_threads_of_its_own() -> None:
    torch.set_num_threads(2)
    squares(10)  # the parent's pool, whose threads do not exist in the child
    child = os.fork()
    if child == 0:
        status = 1
        try:
            both_there = threading.Barrier(2)
            run_tasks(both_there.wait, [(20,), (20,)])
            status = 0 if squares(10) == [i * i for i in range(10)] else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
