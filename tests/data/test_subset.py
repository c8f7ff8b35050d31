"""Subsets of strains keep the proportions of the whole, or take numbers of deletions evenly."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.config import UNUSED
from dglcell.data.partition import Bins, random_parts
from dglcell.data.split import subset_parts
from dglcell.errors import DataError
from tests.data.strain_tables import random_table, table_of
from tests.examples import examples

SUBSET_TABLE = random_table(3000, 200, (1, 4), seed=3)
PARTS = random_parts(SUBSET_TABLE, Bins.of_fractions((0.8, 0.1, 0.1)), 101, False)  # a seed that no test draws


@examples(25)
@given(size=st.integers(3, 3000), seed=st.integers(0, 100))
def test_a_subset_has_its_size_and_the_proportions_of_the_whole(size: int, seed: int) -> None:
    kept = subset_parts(PARTS, SUBSET_TABLE, size, seed)
    np.testing.assert_array_equal(kept, subset_parts(PARTS, SUBSET_TABLE, size, seed))
    used = kept != UNUSED
    assert used.sum() == size
    np.testing.assert_array_equal(kept[used], PARTS[used])
    whole = np.bincount(PARTS, minlength=3) / len(PARTS)
    assert abs(np.bincount(kept[used], minlength=3) - whole * size).max() < 1


def test_singles_come_first_then_all_numbers_of_deletions_evenly() -> None:
    strains = [[f"A{i:03d}"] for i in range(50)]
    strains += [[f"A{i:03d}", f"B{j}"] for i in range(50) for j in range(8)]
    strains += [[f"A{i:03d}", "C", "D"] for i in range(30)]
    strains += [[f"A{i:03d}", "C", "D", f"B{j}"] for i in range(50) for j in range(8)]
    table = table_of(strains)
    parts = np.zeros(len(strains), np.uint8)

    def taken(size: int) -> dict[int, int]:
        kept = subset_parts(parts, table, size, 0)
        return dict(sorted(Counter(table.num_deletions[kept != UNUSED].tolist()).items()))

    assert taken(20) == {1: 20}
    assert taken(110) == {1: 50, 2: 20, 3: 20, 4: 20}
    assert taken(280) == {1: 50, 2: 100, 3: 30, 4: 100}
    assert taken(880) == {1: 50, 2: 400, 3: 30, 4: 400}


def test_unused_strains_stay_unused() -> None:
    parts = PARTS.copy()
    parts[::2] = UNUSED
    assert (subset_parts(parts, SUBSET_TABLE, 1000, 0)[::2] == UNUSED).all()


def test_a_subset_larger_than_the_whole() -> None:
    with pytest.raises(DataError, match=r"larger than what it is taken from\n.*size 3,001\n.*at most 3,000 strains\n"):
        subset_parts(PARTS, SUBSET_TABLE, 3001, 0)
