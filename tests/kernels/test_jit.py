from __future__ import annotations

from typing import Any

from dglcell.kernels.loops_numba import jit


def test_code_that_cannot_be_cached_is_compiled_all_the_same() -> None:
    namespace: dict[str, Any] = {}
    exec("def double(x): return 2 * x", namespace)  # comes from no file, as in a place where nothing can be written
    assert jit(namespace["double"])(21) == 42
