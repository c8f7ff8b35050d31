"""Metrics of classes against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dglcell.errors import DataError
from dglcell.metrics import best_threshold, classification_metrics, f1

# Coarse scores, so that ties occur.
samples = st.lists(st.tuples(st.integers(-6, 6).map(lambda i: i / 4), st.booleans()), min_size=1, max_size=40)


def arrays(sample: list[tuple[float, bool]]) -> tuple[np.ndarray, np.ndarray]:
    score, label = zip(*sample, strict=True)
    return np.array(score), np.array(label, dtype=float)


@given(samples)
def test_auroc_is_the_share_of_pairs_in_the_right_order(sample: list[tuple[float, bool]]) -> None:
    score, label = arrays(sample)
    pairs = [(p > n) + 0.5 * (p == n) for p in score[label == 1] for n in score[label == 0]]
    found = classification_metrics(score, label)["auroc"]
    assert found == pytest.approx(float(np.mean(pairs))) if pairs else math.isnan(found)


@given(samples)
def test_average_precision_is_the_mean_precision_at_the_positives(sample: list[tuple[float, bool]]) -> None:
    score, label = arrays(sample)
    precisions = [(label[score >= s] == 1).mean() for s in score[label == 1]]
    found = classification_metrics(score, label)["average_precision"]
    assert found == pytest.approx(float(np.mean(precisions))) if precisions else math.isnan(found)


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


@given(samples)
def test_a_constant_prediction_ranks_at_random(sample: list[tuple[float, bool]]) -> None:
    _, label = arrays(sample)
    assume(0 < label.sum() < len(label))
    metrics = classification_metrics(np.full(len(label), label.mean()), label)
    assert metrics["average_precision"] == pytest.approx(metrics["prevalence"]) == label.mean()
    assert metrics["auroc"] == 0.5
    assert metrics["brier"] == pytest.approx(label.mean() * (1 - label.mean()))


def test_by_hand() -> None:
    label = np.array([1, 0, 1, 0, 0])
    metrics = classification_metrics([0.9, 0.8, 0.7, 0.6, 0.1], label)
    assert metrics["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert metrics["auroc"] == pytest.approx(5 / 6)
    assert (metrics["prevalence"], metrics["n"]) == (0.4, 5)
    assert best_threshold([0.9, 0.8, 0.7, 0.6, 0.1], label) == 0.7
    assert f1([0.9, 0.8, 0.7, 0.6, 0.1], label, 0.7) == pytest.approx(0.8)
    assert f1([0.9, 0.8, 0.7, 0.6, 0.1], label, 2.0) == 0


def test_large_counts_do_not_overflow() -> None:
    rng = np.random.default_rng(0)
    label = np.arange(200_000) % 2
    metrics = classification_metrics(rng.random(200_000), label)
    assert metrics["auroc"] == pytest.approx(0.5, abs=0.01)
    assert metrics["average_precision"] == pytest.approx(0.5, abs=0.01)


def test_what_is_undefined_is_nan() -> None:
    none = classification_metrics([], [])
    assert none["n"] == 0
    assert math.isnan(none["prevalence"])
    negatives = classification_metrics([0.1, 0.2], [0, 0])
    assert (negatives["prevalence"], negatives["brier"]) == pytest.approx((0, 0.025))
    assert math.isnan(negatives["auroc"])
    assert math.isnan(negatives["average_precision"])
    assert math.isnan(best_threshold([0.1, 0.2], [0, 0]))
    assert math.isnan(f1([0.1, 0.2], [0, 1], math.nan))
    positives = classification_metrics([0.1, 0.2], [1, 1])
    assert positives["average_precision"] == 1
    assert math.isnan(positives["auroc"])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_prediction_that_is_not_finite_is_not_hidden(bad: float) -> None:
    metrics = classification_metrics([0.5, bad, 0.2], [1, 0, 0])
    assert metrics["n"] == 3
    assert all(math.isnan(metrics[name]) for name in ("average_precision", "auroc", "brier"))
    assert math.isnan(best_threshold([0.5, bad, 0.2], [1, 0, 0]))
    assert math.isnan(f1([0.5, bad, 0.2], [1, 0, 0], 0.3))


def test_labels_that_are_no_classes_are_refused() -> None:
    with pytest.raises(DataError, match=r"a label is neither 0 nor 1\n  got: +0.5"):
        classification_metrics([0.1, 0.2], [1, 0.5])
    with pytest.raises(DataError, match=r"\(2,\) and \(1,\)"):
        classification_metrics([0.1, 0.2], [1])
