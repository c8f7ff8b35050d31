"""Intervals hold the share of strains that they promise."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dglcell.errors import ConfigError
from dglcell.uncertainty.conformal import conformal_quantile, fewest_strains, measure_coverage

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


@given(st.integers(9, 30), coverages, st.randoms(use_true_random=False))
def test_of_n_plus_one_exchangeable_strains_enough_are_inside(n: int, coverage: float, random: Random) -> None:
    """Each of n + 1 distinct scores is the new one in turn, which is what exchangeability means."""
    values = np.array(random.sample(range(1000), n + 1), float)
    if n < fewest_strains(coverage):
        return
    inside = [values[i] <= conformal_quantile(np.delete(values, i), coverage) for i in range(n + 1)]
    assert coverage - 1e-9 <= np.mean(inside) <= coverage + 1 / (n + 1) + 1e-9


@pytest.mark.parametrize(("coverage", "n"), [(0.5, 1), (0.9, 9), (0.95, 19), (0.99, 99), (0.999, 999)])
def test_so_many_strains_are_enough(coverage: float, n: int) -> None:
    assert fewest_strains(coverage) == n
    assert conformal_quantile(np.arange(n, dtype=float), coverage) == n - 1
    with pytest.raises(ConfigError) as error:
        conformal_quantile(np.arange(n - 1, dtype=float), coverage)
    assert f"got:      {n - 1} strains" in str(error.value)
    assert f"expected: {n} or more" in str(error.value)
    assert "split" in str(error.value)


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.1, 90.0, math.nan])
def test_other_coverages_are_refused(coverage: float) -> None:
    with pytest.raises(ConfigError, match=r"between 0 and 1, such as 0.9\n  do:       write 90 % as 0.9"):
        conformal_quantile(np.arange(99.0), coverage)


def test_coverage_is_counted_over_measured_strains() -> None:
    predicted, half = np.array([0.0, 0.0, 0.0, 1.0]), np.array([1.0, 2.0, 1.0, 0.5])
    found = measure_coverage(predicted, half, np.array([1.0, -3.0, np.nan, 1.2]))
    assert (found.inside, found.width, found.n) == (pytest.approx(2 / 3), pytest.approx(7 / 3), 3)
    assert measure_coverage(predicted, half, np.full(4, np.nan)).n == 0
