"""Metrics of predictions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from dglcell.errors import DataError
from dglcell.metrics import (
    FEWEST_WITHIN,
    best_threshold,
    classification_metrics,
    f1,
    lowest_auroc,
    pearson_within,
    regression_metrics,
)

grid = st.integers(-20, 20).map(lambda i: i / 4)  # coarse, so that ties occur
pairs = st.lists(st.tuples(grid, grid), min_size=2, max_size=40)


@given(pairs, st.floats(-1e3, 1e3), st.floats(1e-6, 1e6))
def test_metrics_agree_with_scipy(values: list[tuple[float, float]], shift: float, scale: float) -> None:
    p, t = scale * np.array(values).T + scale * shift
    m = regression_metrics(p, t)
    assert m["n"] == len(values)
    assert m["mse"] == pytest.approx(np.mean(np.square(p - t)))
    assert m["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(p - t))))
    assert m["mae"] == pytest.approx(np.abs(p - t).mean())
    if len(values) > 2 and np.ptp(p) > 0 and np.ptp(t) > 0:
        assert m["pearson"] == pytest.approx(scipy.stats.pearsonr(p, t)[0], abs=1e-9)
        assert m["spearman"] == pytest.approx(scipy.stats.spearmanr(p, t)[0], abs=1e-9)
    else:
        assert math.isnan(m["pearson"])
        assert math.isnan(m["spearman"])
    if np.ptp(t) > 0:
        assert m["r2"] == pytest.approx(1 - np.square(p - t).mean() / t.var(), rel=1e-6, abs=1e-9)


@given(pairs, st.data())
def test_missing_targets_are_left_out(values: list[tuple[float, float]], data: st.DataObject) -> None:
    p, t = np.array(values).T
    missing = np.array(data.draw(st.lists(st.booleans(), min_size=len(t), max_size=len(t))))
    masked = regression_metrics(p, np.where(missing, np.nan, t))
    assert masked == pytest.approx(regression_metrics(p[~missing], t[~missing]), nan_ok=True)
    if len(t) > 2 and np.ptp(t) > 0:
        perfect = regression_metrics(t, t)
        assert (perfect["mse"], perfect["r2"], perfect["pearson"]) == (0, 1, pytest.approx(1))


def test_the_mean_within_groups_is_that_of_each_group_alone() -> None:
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat([4, 7, 9, 11], [40, 25, FEWEST_WITHIN - 1, 30]))
    target = rng.normal(size=len(groups)) + groups
    prediction = target + rng.normal(size=len(groups))
    target[:3] = np.nan
    prediction[groups == 11] = 1.0  # no correlation is defined there
    measured = ~np.isnan(target)
    found = [scipy.stats.pearsonr(*(x[(groups == g) & measured] for x in (prediction, target)))[0] for g in (4, 7)]
    assert pearson_within(prediction, target, groups) == pytest.approx(np.mean(found))
    # Shifts of whole groups change nothing.
    assert pearson_within(prediction + 5.0 * groups, target - groups, groups) == pytest.approx(np.mean(found))
    assert math.isnan(pearson_within(prediction, target, np.zeros(len(groups), np.int64)))
    assert math.isnan(pearson_within(np.full_like(prediction, np.nan), target, groups))


def test_the_lowest_of_each_group_are_found_by_low_predictions() -> None:
    rng = np.random.default_rng(0)
    groups = rng.permutation(np.repeat([4, 7, 9], [200, 100, 70]))  # two per cent of 70 is one, which is too few
    target = rng.normal(size=len(groups)) + 5 * groups
    target[groups == 9] = np.where(np.arange(70) < 5, np.nan, target[groups == 9])
    prediction, found = target + rng.normal(size=len(groups)), []
    for group, number in ((4, 4), (7, 2)):
        one = groups == group
        rank = target[one].argsort().argsort()
        found.append(roc_auc_score(rank < number, -prediction[one]))
    assert lowest_auroc(prediction, target, groups) == pytest.approx(np.mean(found))
    assert lowest_auroc(target - 9.0 * groups, target, groups) == 1
    assert lowest_auroc(prediction[groups == 4], target[groups == 4], groups[groups == 4]) == pytest.approx(found[0])
    assert math.isnan(lowest_auroc(prediction[groups == 9], target[groups == 9], groups[groups == 9]))
    assert math.isnan(lowest_auroc(np.where(groups == 4, np.nan, prediction), target, groups))


# Coarse scores, so that ties occur.
samples = st.lists(st.tuples(st.integers(-6, 6).map(lambda i: i / 4), st.booleans()), min_size=1, max_size=40)


def arrays(sample: list[tuple[float, bool]]) -> tuple[np.ndarray, np.ndarray]:
    score, label = zip(*sample, strict=True)
    return np.array(score), np.array(label, dtype=float)


@given(samples)
def test_f1_is_highest_at_the_best_threshold(sample: list[tuple[float, bool]]) -> None:
    score, label = arrays(sample)
    assume(label.any())

    def by_definition(threshold: float) -> float:
        called = score >= threshold
        precision, recall = label[called].mean(), label[called].sum() / label.sum()
        return 2 * precision * recall / (precision + recall) if precision + recall else 0.0

    candidates = {threshold: by_definition(threshold) for threshold in score.tolist()}
    for threshold, expected in candidates.items():
        assert f1(score, label, threshold) == pytest.approx(expected)
    best = max(candidates.values())
    assert best_threshold(score, label) == max(t for t, value in candidates.items() if value >= best - 1e-12)


@given(samples, st.data())
def test_order_and_missing_labels_do_not_matter(sample: list[tuple[float, bool]], data: st.DataObject) -> None:
    score, label = arrays(sample)
    order = np.array(data.draw(st.permutations(range(len(sample)))))
    shuffled = classification_metrics(score[order], label[order])
    assert shuffled == pytest.approx(classification_metrics(score, label), nan_ok=True)
    more = classification_metrics(np.append(score, 99.0), np.append(label, np.nan))
    assert more == pytest.approx(classification_metrics(score, label), nan_ok=True)
    assert best_threshold(np.append(score, 99.0), np.append(label, np.nan)) == pytest.approx(
        best_threshold(score, label), nan_ok=True
    )


NAN = math.nan


@pytest.mark.parametrize(
    ("metrics", "predicted", "labels", "expected"),
    [
        (regression_metrics, [], [], {"n": 0, "mse": NAN}),
        (
            regression_metrics,
            [1.0, 5.0],
            [3.0, NAN],
            {"n": 1, "mse": 4.0, "mae": 2.0, "pearson": NAN, "spearman": NAN, "r2": NAN},
        ),
        # What is not finite is not hidden.
        (regression_metrics, [1.0, NAN, 2.0], [1.0, 2.0, 2.0], {"n": 3, "mse": NAN, "pearson": NAN}),
        (regression_metrics, [1.0, math.inf, 2.0], [1.0, 2.0, 2.0], {"n": 3, "mse": NAN, "pearson": NAN}),
        (regression_metrics, [0.1 + 0.2, 0.3, 0.3], [1, 2, 3], {"pearson": NAN, "spearman": NAN}),
        (classification_metrics, [], [], {"n": 0, "prevalence": NAN}),
        (
            classification_metrics,
            [0.1, 0.2],
            [0, 0],
            {"prevalence": 0, "brier": 0.025, "auroc": NAN, "average_precision": NAN},
        ),
        (classification_metrics, [0.1, 0.2], [1, 1], {"average_precision": 1, "auroc": NAN}),
    ],
)
def test_what_is_undefined_is_nan(
    metrics: Callable[..., dict[str, float]], predicted: list[float], labels: list[float], expected: dict[str, float]
) -> None:
    found = metrics(predicted, labels)
    assert {name: found[name] for name in expected} == pytest.approx(expected, nan_ok=True)


def test_wrong_labels_are_refused_and_no_threshold_is_nan() -> None:
    with pytest.raises(DataError, match=r"a label is neither 0 nor 1\n  got: +0.5"):
        classification_metrics([0.1, 0.2], [1, 0.5])
    with pytest.raises(DataError, match=r"\(2,\) and \(1,\)"):
        classification_metrics([0.1, 0.2], [1])
    assert math.isnan(best_threshold([0.1, 0.2], [0, 0]))
    assert math.isnan(f1([0.1, 0.2], [0, 1], NAN))
