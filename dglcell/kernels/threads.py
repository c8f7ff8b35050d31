"""Independent tasks over a few threads, for functions that release the interpreter's lock."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch


def run_tasks(function: Callable[..., object], tasks: Sequence[tuple[object, ...]]) -> None:
    """Call ``function(*task)`` for every task, over as many threads as torch uses; return when all are done.

    The calling thread takes tasks too. With one thread or one task this is a plain loop. Tasks start in their order
    and may run at once, so each must write to its own part of the result. Plain threads rather than OpenMP ones: a
    process forked after an OpenMP region dies in its next one.

    Args:
        function: e.g. a numba kernel compiled with ``nogil=True``.
        tasks: arguments of each call, the largest first where they differ much.

    Raises:
        Exception: the first that a task raised, after the tasks under way have ended; tasks not yet begun are dropped.
    """
    threads = min(torch.get_num_threads(), len(tasks))
    if threads <= 1:
        for task in tasks:
            function(*task)
        return
    waiting = deque(tasks)
    # A pool of one process and size; the pool of another is dropped, and its threads end, when nobody uses it.
    pool = _pool(os.getpid(), torch.get_num_threads() - 1)
    helpers = [pool.submit(_work_off, function, waiting) for _ in range(threads - 1)]
    try:
        _work_off(function, waiting)
    finally:
        # A helper that has not begun found no free thread, and has nothing left to do.
        begun = [helper for helper in helpers if not helper.cancel()]
        failures = [helper.exception() for helper in begun]
    for failure in failures:
        if failure is not None:
            raise failure


def _work_off(function: Callable[..., object], waiting: deque[tuple[object, ...]]) -> None:
    """Run waiting tasks until none is left; after a failure none is left for anybody."""
    try:
        while True:
            try:
                task = waiting.popleft()
            except IndexError:
                return
            function(*task)
    finally:
        waiting.clear()


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="dglcell-kernel")
