"""Tasks over threads: all run, once each, whatever the number of threads, in a forked child, and when one fails."""

from __future__ import annotations

import mmap
import os
import threading
import time

import numpy as np
import pytest
import torch

from dglcell.kernels import threads as module
from dglcell.kernels.threads import LARGE_PAGE, run_tasks, scratch


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


def test_two_tasks_run_at_the_same_time() -> None:
    torch.set_num_threads(2)
    both_there = threading.Barrier(2)
    run_tasks(both_there.wait, [(20,), (20,)])
    assert not both_there.broken


def test_one_thread_runs_all_tasks_in_the_caller() -> None:
    torch.set_num_threads(1)
    threads = []
    run_tasks(lambda i: threads.append(threading.current_thread()), [(i,) for i in range(3)])
    assert threads == [threading.current_thread()] * 3


def test_the_number_of_threads_follows_torch() -> None:
    for threads in (2, 4, 3):
        torch.set_num_threads(threads)
        all_there = threading.Barrier(threads)
        run_tasks(all_there.wait, [(20,)] * threads)
        assert not all_there.broken


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failure_reaches_the_caller_and_drops_the_tasks_not_begun(threads: int) -> None:
    torch.set_num_threads(threads)
    begun = []

    def fail_at_once(i: int) -> None:
        begun.append(i)
        if i == 0:
            raise ValueError("task 0 failed")
        time.sleep(0.01)

    with pytest.raises(ValueError, match="task 0 failed"):
        run_tasks(fail_at_once, [(i,) for i in range(500)])
    assert len(begun) < 250
    assert squares(10) == [i * i for i in range(10)]


def test_a_failure_in_a_helping_thread_reaches_the_caller() -> None:
    torch.set_num_threads(2)
    both_there = threading.Barrier(2)

    def fail_beside(caller: threading.Thread) -> None:
        both_there.wait(20)
        if threading.current_thread() is not caller:
            raise ValueError("the helper failed")

    with pytest.raises(ValueError, match="the helper failed"):
        run_tasks(fail_beside, [(threading.current_thread(),)] * 2)


def test_calls_from_several_threads_and_from_within_a_task_end() -> None:
    torch.set_num_threads(2)
    results = []

    def nested(i: int) -> None:
        torch.set_num_threads(2)
        results.append(squares(50))

    callers = [threading.Thread(target=run_tasks, args=(nested, [(i,) for i in range(8)])) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert results == [[i * i for i in range(50)]] * 24


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


# Memory that threads keep.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(3, 5), (LARGE_PAGE, 3)])
def test_arrays_have_the_shape_and_type_asked_for(shape: tuple[int, ...], dtype: type) -> None:
    array = scratch("shape", shape, dtype)
    assert (array.shape, array.dtype) == (shape, dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    array[:] = 1
    assert array.sum() == np.prod(shape)


def test_a_smaller_array_of_the_name_takes_the_same_memory_and_a_larger_one_more() -> None:
    large = scratch("size", (1000,), np.float32)
    assert scratch("size", (10,), np.float64).ctypes.data == large.ctypes.data
    assert len(scratch("size", (LARGE_PAGE,), np.float32)) == LARGE_PAGE
    assert scratch("another", (10,), np.float64).ctypes.data != scratch("size", (10,), np.float64).ctypes.data


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="a system without large pages")
def test_large_arrays_begin_at_a_large_page() -> None:
    assert scratch("page", (LARGE_PAGE + 1,), np.uint8).ctypes.data % LARGE_PAGE == 0


def test_without_large_pages_there_is_plain_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(module.mmap, "MADV_HUGEPAGE", raising=False)
    array = scratch("plain", (2 * LARGE_PAGE,), np.uint8)
    array[:] = 7
    assert (array == 7).all()


def test_threads_do_not_share() -> None:
    mine = scratch("thread", (4,), np.float32)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(scratch("thread", (4,), np.float32).ctypes.data))
    thread.start()
    thread.join()
    assert found[0] != mine.ctypes.data
