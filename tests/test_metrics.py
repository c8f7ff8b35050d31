"""Metrics of predictions, how far a model is ahead, and how far it could be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from dglcell.data.columns import columns_of
from dglcell.data.strains import Strains
from dglcell.data.table import CLASSIFICATION, REGRESSION
from dglcell.errors import DataError
from dglcell.metrics import (
    FEWEST_WITHIN,
    ResultRow,
    ahead,
    average_precisions,
    best_threshold,
    ceilings,
    classification_metrics,
    f1,
    lowest_auroc,
    pearson,
    pearson_within,
    pearsons,
    regression_metrics,
    replicate_correlation,
    times_drawn,
)
from dglcell.report.page import lines_below

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


GENES = tuple(f"g{i}" for i in range(30))


def strains_of_pairs(number: int, genes: int = 30) -> Strains:
    rng = np.random.default_rng(1)
    return Strains.from_indices(GENES, [sorted(rng.choice(genes, 2, replace=False).tolist()) for _ in range(number)])


def test_scores_are_those_of_strains_that_are_drawn() -> None:
    rng = np.random.default_rng(0)
    measured, predicted = rng.normal(size=50), rng.normal(size=(3, 50)).round(1)
    predicted[2] = 1.0
    weights = next(times_drawn(50, 50))[:20]
    assert (weights.sum(1) == 50).all()
    with np.errstate(invalid="ignore", divide="ignore"):
        found = pearsons(predicted, measured, weights)
        classes = average_precisions(predicted, (measured > 0.5).astype(float), weights)
    for r, times in enumerate(weights):
        drawn = np.repeat(np.arange(50), times)
        for p in range(3):
            assert found[r, p] == pytest.approx(pearson(predicted[p, drawn], measured[drawn]), abs=1e-12, nan_ok=True)
            expected = average_precision_score(measured[drawn] > 0.5, predicted[p, drawn])
            assert classes[r, p] == pytest.approx(expected, abs=1e-12)


def test_leads_and_their_intervals() -> None:
    rng, strains = np.random.default_rng(2), strains_of_pairs(400)
    measured = rng.normal(size=400)
    model, null = measured + rng.normal(size=400), measured + 2 * rng.normal(size=400)
    measured[::7] = math.nan
    others = {"null": null, "same": model, "constant": np.ones(400)}
    found = ahead(REGRESSION, model, others, measured, strains)
    known = ~np.isnan(measured)
    plain = pearson(model[known], measured[known]) - pearson(null[known], measured[known])
    assert found["null"]["ahead"] == pytest.approx(plain, abs=1e-12)
    assert 0 < found["null"]["ahead_low"] < plain < found["null"]["ahead_high"]
    assert found["null"]["ahead_genes_low"] < found["null"]["ahead_low"]
    assert set(found["same"].values()) == {0.0}
    assert "constant" not in found
    assert found == ahead(REGRESSION, model, others, measured, strains)
    label = (rng.random(400) < 0.2).astype(float)
    model, null = label + rng.normal(size=400), rng.normal(size=400)
    of_class = ahead(CLASSIFICATION, model, {"null": null}, label, strains)["null"]
    expected = average_precision_score(label, model) - average_precision_score(label, null)
    assert of_class["ahead"] == pytest.approx(expected, abs=1e-12)
    assert of_class["ahead_low"] < expected < of_class["ahead_high"]
    model[0] = math.nan
    assert ahead(CLASSIFICATION, model, {"null": null}, label, strains) == {}


@pytest.mark.parametrize("lead", [(0.03, 0.01, 0.05, 0.001, 0.06), (-0.03, -0.05, -0.01, -0.06, -0.001)])
def test_the_line_has_the_wider_interval(lead: tuple[float, ...]) -> None:
    names = "ahead", "ahead_low", "ahead_high", "ahead_genes_low", "ahead_genes_high"
    metrics = dict(zip(names, lead, strict=True))
    rows = [
        ResultRow("set_operator", "test", "fitness", {"pearson": 0.5}),
        ResultRow("weak", "test", "fitness", {"pearson": 0.1, **dict.fromkeys(names, 0.4)}, is_baseline=True),
        ResultRow("low-rank ridge", "test", "fitness", {"pearson": 0.47, **metrics}, is_baseline=True),
        ResultRow("undefined", "test", "fitness", {}, is_baseline=True),
    ]
    (line,) = lines_below(rows, "random")
    (low, high), (of_genes_low, of_genes_high) = lead[1:3], lead[3:5]
    verdict = "no difference is shown between set_operator and 'low-rank ridge'"
    if min(low, of_genes_low) > 0 or max(high, of_genes_high) < 0:
        verdict = f"set_operator is {'better' if low > 0 else 'worse'} than 'low-rank ridge'"
    wider = f"{min(low, of_genes_low):+.3f} to {max(high, of_genes_high):+.3f}"
    assert line == f"fitness: {verdict} (Pearson {lead[0]:+.3f}, 95 % interval {wider})"
    assert lines_below(rows[:1], "random") == []
    assert lines_below([rows[0].with_metrics({"n": 3}), *rows[1:]], "random") == []  # too few strains for a correlation


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
    spread = np.where(replicates > 1, sd, np.nan)
    assert replicate_correlation(mean, spread, replicates) == pytest.approx(1 / (1 + noise**2), abs=0.03)
    columns = columns_of(phenotype={"y": mean}, sd={"y": spread}, replicates={"y": replicates})
    measured = Strains.from_indices(GENES, [[]] * len(true)).with_(columns=columns)
    found = ceilings(measured, np.arange(len(true)))
    assert found == {"y": pytest.approx(pearson(mean, true), abs=0.03)}


def test_a_line_states_it() -> None:
    row = ResultRow("set_operator", "test", "s_score", {"pearson": 0.6, "ceiling": 0.758})
    rows = [replace(row, part="validation", metrics={"pearson": 0.6}), row]
    assert lines_below(rows, "random") == ["s_score: Pearson of a model without error, by replicates: about 0.758"]
    assert lines_below(rows[:1], "random") == []
