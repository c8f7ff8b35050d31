"""Memory that threads keep."""

from __future__ import annotations

import mmap
import threading

import numpy as np
import pytest

from dglcell.kernels import threads as module
from dglcell.kernels.threads import LARGE_PAGE, scratch


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
