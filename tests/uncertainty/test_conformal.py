"""Intervals hold the share of strains that they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dglcell.errors import ConfigError
from dglcell.uncertainty.conformal import conformal_quantile, fewest_strains

coverages = st.fractions(0, 1, max_denominator=40).filter(lambda share: 0 < share < 1).map(float)
scores = arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1e6))


@given(scores, coverages)
def test_it_is_the_smallest_score_that_enough_others_do_not_exceed(scores_n: np.ndarray, coverage: float) -> None:
    n = len(scores_n)
    if n < fewest_strains(coverage):
        with pytest.raises(ConfigError, match="too few validation strains"):
            conformal_quantile(scores_n, coverage)
        return
    found = conformal_quantile(scores_n, coverage)
    enough = [score for score in scores_n if np.sum(scores_n <= score) >= (n + 1) * coverage - 1e-9]
    assert found == min(enough)


@pytest.mark.parametrize(("coverage", "n"), [(0.5, 1), (0.9, 9), (0.95, 19), (0.99, 99), (0.999, 999)])
def test_so_many_strains_are_enough(coverage: float, n: int) -> None:
    assert fewest_strains(coverage) == n
    assert conformal_quantile(np.arange(n, dtype=float), coverage) == n - 1
    with pytest.raises(ConfigError) as error:
        conformal_quantile(np.arange(n - 1, dtype=float), coverage)
    assert f"got:      {n - 1} strains" in str(error.value)
    assert f"expected: {n} or more" in str(error.value)
    assert "split" in str(error.value)
