"""Share a loop among threads, and reuse memory."""

from __future__ import annotations

import math
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray


def run_tasks(function: Callable[..., object], tasks: Sequence[tuple[object, ...]]) -> None:
    """Call ``function(*task)`` for every task, over as many threads as torch uses; return when all are done.

    The calling thread takes tasks too. With one thread or one task this is a plain loop. Tasks start in their order and
    may run at once, so each must write to its own part of the result. Plain threads are used rather than those of
    OpenMP, because a process forked after an OpenMP region dies in its next one.

    Args:
        function: e.g. a numba kernel compiled with ``nogil=True``.
        tasks: arguments of each call, the largest first where they differ much.

    Raises:
        Exception: the first one that a task raised, once the tasks under way have ended; tasks not yet begun are
        dropped.
    """
    threads = min(torch.get_num_threads(), len(tasks))
    if threads <= 1:
        for task in tasks:
            function(*task)
        return
    waiting = deque(tasks)
    # There is one pool for each process and number of threads. An earlier pool ends its threads when no call uses it.
    pool = _pool(os.getpid(), torch.get_num_threads() - 1)
    helpers = [pool.submit(_work_off, function, waiting) for _ in range(threads - 1)]
    try:
        _work_off(function, waiting)
    finally:
        # A helper that has not begun yet is cancelled, because no task is left for it.
        begun = [helper for helper in helpers if not helper.cancel()]
        failures = [helper.exception() for helper in begun]
    for failure in failures:
        if failure is not None:
            raise failure


def _work_off(function: Callable[..., object], waiting: deque[tuple[object, ...]]) -> None:
    """Run waiting tasks until none is left; a failure drops the waiting tasks of all threads."""
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


# Memory that is used again and again: each thread keeps its own, on large pages where the system has them.
#
# Rows that are read in any order from some megabytes need hundreds of small pages, more than a processor keeps the
# addresses of; on large pages sums over edges ran up to twice as fast.


LARGE_PAGE = 2 << 20

_of_thread = threading.local()


def scratch(name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[np.generic]:
    """Return this thread's array of a name.

    Its contents are undefined, and the next call for the same name may return the same memory.

    Args:
        name: what the array is used for.
        shape: shape of the array; the memory behind it grows to the largest size asked for.
        dtype: type of its elements.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    buffers: dict[str, NDArray[np.uint8]] = _of_thread.__dict__.setdefault("buffers", {})
    if name not in buffers or len(buffers[name]) < size:
        buffers[name] = _large_pages(size)
    return buffers[name][:size].view(dtype).reshape(shape)


def _large_pages(size: int) -> NDArray[np.uint8]:
    """Return [size] bytes that begin at a large page, if they fill at least a quarter of one."""
    if size < LARGE_PAGE // 4:
        return np.empty(size, np.uint8)
    whole = -(-size // LARGE_PAGE) * LARGE_PAGE
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(size, np.uint8)
    # The mapping is private: a forked process must not write into its parent's memory.
    mapping = mmap.mmap(-1, whole + LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        mapping.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(mapping, np.uint8)
    first = -memory.ctypes.data % LARGE_PAGE
    return memory[first : first + size]
