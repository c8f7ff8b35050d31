from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dglcell.kernels.jit_numba import jit, reduction


@pytest.mark.parametrize("compiled", [jit, reduction])
def test_code_that_cannot_be_cached_is_compiled_all_the_same(compiled: Callable[..., Any]) -> None:
    namespace: dict[str, Any] = {}
    exec("def double(x): return 2 * x", namespace)  # comes from no file, as in a place where nothing can be written
    assert compiled(namespace["double"])(21) == 42
