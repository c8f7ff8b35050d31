"""Squared error."""

from __future__ import annotations

from torch import Tensor


def squared_error(error: Tensor) -> Tensor:
    """``error²``, element by element."""
    return error.square()
