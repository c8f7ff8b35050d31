"""Cross-validation: folds take turns at being the test part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.data.config import FOLDED, TEST, TRAIN, UNUSED, VALIDATION, SplitConfig
from dglcell.data.partition import Bins, Parts
from dglcell.data.split import divide
from dglcell.data.table import StrainTable
from tests.data.strain_tables import random_table

tables = st.builds(
    random_table,
    strains=st.integers(1, 120),
    genes=st.integers(5, 12),
    deletions=st.sampled_from([(1, 4), (2, 2), (3, 3)]),
    seed=st.integers(0, 1000),
)


def folds_of(table: StrainTable, kind: str, folds: int, seed: int) -> list[Parts]:
    """The parts of each fold."""
    return [divide(SplitConfig(kind, seed=seed, folds=folds, fold=fold), table)[0] for fold in range(folds)]


@settings(max_examples=60)
@given(table=tables, kind=st.sampled_from(FOLDED), folds=st.integers(3, 7), seed=st.integers(0, 50))
def test_every_strain_is_in_exactly_one_test_fold(table: StrainTable, kind: str, folds: int, seed: int) -> None:
    parts = folds_of(table, kind, folds, seed)
    tested = np.sum([fold == TEST for fold in parts], axis=0)
    # Without a query pair there is nothing to hold out.
    expected = table.num_deletions >= (2 if kind == "pair_disjoint" else 1)
    np.testing.assert_array_equal(tested, expected)
    for fold, following in zip(parts, parts[1:] + parts[:1], strict=True):
        # What is validated is what the next fold tests, but for strains that share a gene with this fold's.
        if kind == "gene_disjoint":
            assert set(following[fold == VALIDATION].tolist()) <= {TEST}
        else:
            np.testing.assert_array_equal(fold == VALIDATION, following == TEST)
            assert not (fold == UNUSED).any()


@pytest.mark.parametrize("kind", FOLDED)
def test_folds_are_nearly_equal(kind: str) -> None:
    table = random_table(4000, 400, (2, 3))
    for parts in folds_of(table, kind, 5, 0):
        assert (parts == TEST).mean() == pytest.approx(0.2, abs=0.02)
        assert (parts == TRAIN).any()


def test_the_fold_after_the_last_is_the_first() -> None:
    assert Bins.of_folds(4, 3).parts == (VALIDATION, TRAIN, TRAIN, TEST)
    assert Bins.of_folds(4, 0).parts == (TEST, VALIDATION, TRAIN, TRAIN)
