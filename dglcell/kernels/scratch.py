"""Memory for what is computed over and over: kept by each thread, on large pages where the system has them.

Rows that are read in any order from some megabytes need hundreds of small pages, more than a processor has the
addresses of at hand: on large ones sums over edges ran up to twice as fast.
"""

from __future__ import annotations

import math
import mmap
import threading
from contextlib import suppress

import numpy as np
from numpy.typing import DTypeLike, NDArray

LARGE_PAGE = 2 << 20

_of_thread = threading.local()


def scratch(name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[np.generic]:
    """This thread's array of a name: what it holds is anything, and nobody's after the next call for the same name.

    Args:
        name: what for.
        shape: of the array; the memory behind it grows to the largest asked for.
        dtype: of its elements.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    buffers: dict[str, NDArray[np.uint8]] = _of_thread.__dict__.setdefault("buffers", {})
    if name not in buffers or len(buffers[name]) < size:
        buffers[name] = _large_pages(size)
    return buffers[name][:size].view(dtype).reshape(shape)


def _large_pages(size: int) -> NDArray[np.uint8]:
    """[size] bytes that begin at a large page, if they are worth one."""
    if size < LARGE_PAGE // 4:
        return np.empty(size, np.uint8)
    whole = -(-size // LARGE_PAGE) * LARGE_PAGE
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(size, np.uint8)
    # Private: a forked process must not write into its parent's.
    mapping = mmap.mmap(-1, whole + LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        mapping.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(mapping, np.uint8)
    first = -memory.ctypes.data % LARGE_PAGE
    return memory[first : first + size]
