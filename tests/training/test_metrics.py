"""Metrics against scipy and textbook formulas."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.errors import DataError
from dglcell.metrics import json_safe, pearson, regression_metrics

grid = st.integers(-20, 20).map(lambda i: i / 4)  # coarse, so that ties occur
pairs = st.lists(st.tuples(grid, grid), min_size=2, max_size=40)


@given(pairs, st.floats(-1e3, 1e3), st.floats(1e-6, 1e6))
@settings(deadline=None)
def test_metrics_agree_with_scipy(values: list[tuple[float, float]], shift: float, scale: float) -> None:
    p, t = scale * np.array(values).T + scale * shift
    m = regression_metrics(p, t)
    assert m["n"] == len(values)
    assert m["mse"] == pytest.approx(np.mean(np.square(p - t)))
    assert m["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(p - t))))
    assert m["mae"] == pytest.approx(np.abs(p - t).mean())
    if np.ptp(p) > 0 and np.ptp(t) > 0:
        assert m["pearson"] == pytest.approx(scipy.stats.pearsonr(p, t)[0], abs=1e-9)
        assert m["spearman"] == pytest.approx(scipy.stats.spearmanr(p, t)[0], abs=1e-9)
    else:
        assert math.isnan(m["pearson"])
        assert math.isnan(m["spearman"])
    if np.ptp(t) > 0:
        assert m["r2"] == pytest.approx(1 - np.square(p - t).mean() / t.var(), rel=1e-6, abs=1e-9)


@given(pairs, st.data())
@settings(deadline=None)
def test_missing_targets_are_left_out(values: list[tuple[float, float]], data: st.DataObject) -> None:
    p, t = np.array(values).T
    missing = np.array(data.draw(st.lists(st.booleans(), min_size=len(t), max_size=len(t))))
    masked = regression_metrics(p, np.where(missing, np.nan, t))
    assert masked == pytest.approx(regression_metrics(p[~missing], t[~missing]), nan_ok=True)


@given(pairs)
@settings(deadline=None)
def test_correlations_are_symmetric_bounded_and_one_for_a_perfect_prediction(
    values: list[tuple[float, float]],
) -> None:
    p, t = np.array(values).T
    forward, backward = regression_metrics(p, t), regression_metrics(t, p)
    for name in ("pearson", "spearman"):
        assert forward[name] == pytest.approx(backward[name], nan_ok=True)
        assert math.isnan(forward[name]) or -1 <= forward[name] <= 1
    if np.ptp(t) > 0:
        perfect = regression_metrics(t, t)
        assert [perfect[m] for m in ("mse", "r2")] == [0, 1]
        assert perfect["pearson"] == pytest.approx(1)


def test_single_precision_inputs_are_compared_in_double_precision() -> None:
    rng = np.random.default_rng(0)
    p = (1e4 + rng.normal(size=1000)).astype(np.float32)
    t = (1e4 + rng.normal(size=1000)).astype(np.float32)
    expected = scipy.stats.pearsonr(p.astype(float), t.astype(float))[0]
    assert regression_metrics(p, t)["pearson"] == pytest.approx(expected, abs=1e-9)


def test_a_constant_with_rounding_errors_counts_as_constant() -> None:
    p = 0.1 + np.array([0, 1, 0, 1]) * np.spacing(0.1)
    assert math.isnan(regression_metrics(p, np.arange(4.0))["pearson"])


def test_no_strain_and_one_strain() -> None:
    none = regression_metrics([], [])
    assert none["n"] == 0
    assert math.isnan(none["mse"])
    one = regression_metrics([1.0, 5.0], [3.0, np.nan])
    assert (one["n"], one["mse"], one["mae"]) == (1, 4.0, 2.0)
    assert all(math.isnan(one[name]) for name in ("pearson", "spearman", "r2"))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_prediction_that_is_not_finite_is_not_hidden(bad: float) -> None:
    m = regression_metrics([1.0, bad, 2.0], [1.0, 2.0, 2.0])
    assert m["n"] == 3
    assert math.isnan(m["mse"])
    assert math.isnan(m["pearson"])


def test_shapes_must_agree() -> None:
    with pytest.raises(DataError, match=r"\(2,\) and \(3,\)"):
        regression_metrics([1, 2], [1, 2, 3])


def test_json_safe_writes_null_for_undefined_values() -> None:
    metrics = regression_metrics([1.0, 1.0], [0.0, 2.0])
    assert json.loads(json.dumps(json_safe(metrics), allow_nan=False))["pearson"] is None


def test_pearson_of_tiny_and_huge_values() -> None:
    x = np.array([1.0, 2.0, 4.0])
    assert pearson(x * 1e-300, x * 1e300) == pytest.approx(1)
