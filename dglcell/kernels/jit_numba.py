"""Compile loops with numba at the first call with each set of types, by any number of threads at once.

Compiled code is kept beside its file for later processes, or in the user's cache folder where the installation is
read-only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba


def jit(function: Callable[..., Any]) -> Any:
    """Compile a function; multiplying and adding in one instruction is allowed, summing in another order is not."""
    dispatcher = numba.njit(nogil=True, fastmath={"contract"}, error_model="numpy")(function)
    with suppress(RuntimeError):  # neither folder can be written: every process compiles for itself
        dispatcher.enable_caching()
    return dispatcher
