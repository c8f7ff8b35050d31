"""Share a loop among threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch


def run_tasks(function: Callable[..., object], tasks: Sequence[tuple[object, ...]]) -> None:
    """Call ``function(*task)`` for every task, over as many threads as torch uses; return when all are done.

    Tasks may run at once, so each must write to its own part of the result. Plain threads are used rather than those of
    OpenMP, because a process forked after an OpenMP region dies in its next one.

    Args:
        function: e.g. a numba kernel compiled with ``nogil=True``.
        tasks: arguments of each call.

    Raises:
        Exception: what the first task that failed has raised.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(tasks) < 2:
        for task in tasks:
            function(*task)
        return
    for _ in _pool(os.getpid(), threads).map(lambda task: function(*task), tasks):
        pass


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the threads of a process; a forked child has none of its parent's."""
    return ThreadPoolExecutor(threads, thread_name_prefix="dglcell-kernel")
