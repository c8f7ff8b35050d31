"""Rectangles around rows of unequal length."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dglcell.graph.resident import PADDED_CELLS, PADDED_SHARE, rectangles

LENGTHS = st.lists(st.one_of(st.integers(0, 8), st.integers(0, 3000)), max_size=60)


@given(lengths=LENGTHS)
def test_every_row_that_has_cells_is_covered_once_and_fits(lengths: list[int]) -> None:
    ordered = np.sort(np.array(lengths, dtype=np.int64))[::-1]
    covered = 0
    for rectangle in rectangles(ordered):
        rows = ordered[rectangle.first : rectangle.last]
        assert rectangle.first == covered
        assert len(rows) > 0
        assert rectangle.width == rows.max()
        padding = rectangle.width * len(rows) - rows.sum()
        assert padding <= max(PADDED_SHARE * rectangle.width * len(rows), PADDED_CELLS * ordered.sum())
        covered = rectangle.last
    assert covered == int((ordered > 0).sum())


def test_a_heavy_tail_takes_few_rectangles() -> None:
    lengths = np.sort((5000 / np.arange(1, 5001)).astype(np.int64))[::-1]
    shapes = rectangles(lengths)
    cells = sum((s.last - s.first) * s.width for s in shapes)
    assert len(shapes) < 30
    assert cells < 1.4 * lengths.sum()
