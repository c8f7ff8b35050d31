"""Rows of unequal length side by side as few rectangles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PADDED_SHARE = 0.2
"""Of a rectangle's cells, the share that may be padding."""
PADDED_CELLS = 1 / 256
"""Cells of padding that a rectangle may have in any case, as a share of all cells: few rectangles for little data."""


@dataclass(frozen=True)
class Rectangle:
    """Rows ``first`` … ``last - 1``, none of them longer than ``width``."""

    first: int
    last: int
    width: int


def rectangles(lengths: NDArray[np.int64]) -> list[Rectangle]:
    """Cut rows into rectangles with little padding; rows of length 0 are left out.

    Args:
        lengths: of the rows, descending.

    Returns:
        Consecutive rectangles, at most one for every different length.
    """
    values, counts = np.unique(lengths[lengths > 0], return_counts=True)
    always = PADDED_CELLS * int(lengths.sum())
    cut: list[Rectangle] = []
    first = rows = cells = width = 0
    for length, count in zip(values[::-1].tolist(), counts[::-1].tolist(), strict=True):
        padding = (rows + count) * width - cells - count * length
        if rows and padding > max(always, PADDED_SHARE * (rows + count) * width):
            cut.append(Rectangle(first, first + rows, width))
            first, rows, cells = first + rows, 0, 0
        width = width if rows else length
        rows, cells = rows + count, cells + count * length
    return [*cut, Rectangle(first, first + rows, width)] if rows else cut
