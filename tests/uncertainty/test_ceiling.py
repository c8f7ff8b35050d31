"""What a model without error would reach, against drawn measurements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.metrics import ResultRow, pearson
from dglcell.report.sentences import ceiling_lines
from dglcell.uncertainty.paired import ceiling, replicate_correlation


@given(st.floats(0.2, 1.5), st.integers(0, 2**16))
def test_it_is_the_correlation_with_the_true_values(noise: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    true = rng.normal(size=20_000)
    replicates = rng.integers(1, 4, size=len(true)).astype(float)
    drawn = np.where(
        np.arange(3) < replicates[:, None], true[:, None] + noise * rng.normal(size=(len(true), 3)), np.nan
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nanmean(drawn, axis=1)
        sd = np.sqrt(np.nansum((drawn - mean[:, None]) ** 2, 1) / (replicates - 1))
    correlation = replicate_correlation(mean, np.where(replicates > 1, sd, np.nan), replicates)
    assert correlation == pytest.approx(1 / (1 + noise**2), abs=0.03)
    assert ceiling(replicates, correlation) == pytest.approx(pearson(mean, true), abs=0.03)


def test_two_measurements_each_are_correlated_as_usual() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(5000, 1)) + 0.8 * rng.normal(size=(5000, 2))
    found = replicate_correlation(drawn.mean(1), drawn.std(1, ddof=1), np.full(5000, 2.0))
    assert found == pytest.approx(pearson(drawn[:, 0], drawn[:, 1]), abs=2e-3)
    assert ceiling(np.ones(10), found) == pytest.approx(found**0.5)


def test_a_line_states_it() -> None:
    rows = [
        ResultRow("set_operator", "validation", "s_score", {"pearson": 0.6}),
        ResultRow("set_operator", "test", "s_score", {"pearson": 0.6, "ceiling": 0.758}),
        ResultRow("mean", "test", "s_score", {"pearson": 0.0}, is_null=True),
    ]
    assert ceiling_lines(rows) == ["s_score, Pearson of a model without error, by replicates: about 0.758"]
    assert ceiling_lines(rows[::2]) == []
