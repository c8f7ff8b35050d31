"""Metrics of predictions, and the table of them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dglcell.data.table import CLASSIFICATION, REGRESSION
from dglcell.errors import DataError
from dglcell.metrics import (
    BEST,
    ResultRow,
    beaten,
    best_in_block,
    best_threshold,
    classification_metrics,
    f1,
    format_expected,
    format_results_table,
    json_safe,
    left_out_lines,
    mean_ranks,
    pearson,
    regression_metrics,
    rows_of,
)

# Metrics against scipy and textbook formulas.


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


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e170])
@pytest.mark.filterwarnings("ignore:overflow encountered in square")  # the squared error itself is out of range
def test_r2_of_tiny_and_huge_labels(scale: float) -> None:
    target, prediction = np.array([1.0, 2.0, 4.0, 5.0]), np.array([1.0, 3.0, 3.0, 5.0])
    assert regression_metrics(prediction * scale, target * scale)["r2"] == pytest.approx(0.8)


def test_neither_correlation_is_defined_for_a_constant_with_rounding_errors() -> None:
    metrics = regression_metrics([0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2, 0.3], [1, 2, 3, 4, 5])
    assert math.isnan(metrics["pearson"])
    assert math.isnan(metrics["spearman"])


def test_r2_of_labels_that_hardly_differ() -> None:
    target, prediction = np.array([1.0, 2.0, 4.0, 5.0]), np.array([1.0, 3.0, 3.0, 5.0])
    assert regression_metrics(1e3 + prediction * 1e-6, 1e3 + target * 1e-6)["r2"] == pytest.approx(0.8, abs=1e-6)


# Metrics of classes against their definitions.


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
def test_a_score_that_is_not_finite_is_not_hidden(bad: float) -> None:
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


# The table that compares models.


def row(model: str, part: str, value: float, is_null: bool = False) -> ResultRow:
    metrics = {
        "n": 1234,
        "pearson": value,
        "spearman": value,
        "r2": value,
        "mse": 1 - value,
        "mae": 1 - value,
    }
    return ResultRow(model, part, "fitness", metrics, is_null)


def test_best_is_found_within_each_block_and_undefined_never_wins() -> None:
    rows = [
        row("a", "test", 0.2),
        row("b", "test", math.nan),
        row("c", "test", 0.4),
        row("a", "validation", 0.1),
    ]
    assert best_in_block(rows, "pearson") == {2}
    assert best_in_block(rows, "mse") == {2}
    assert best_in_block([row("a", "test", math.nan), row("b", "test", math.nan)], "pearson") == set()


def test_the_table_shows_every_row_and_marks_the_best() -> None:
    rows = [
        row("dglcell", "test", 0.61234),
        row("mean", "test", math.nan, True),
        row("dglcell", "validation", 0.7),
    ]
    lines = format_results_table(rows).splitlines()
    assert lines[0].split() == ["phenotype", "part", "model", "n", "Pearson", "Spearman", "R²", "MSE", "MAE"]
    by_model = [line.split() for line in lines if line.strip()][1:]
    assert by_model[0][:5] == ["fitness", "test", "dglcell", "1,234", "0.612*"]
    assert by_model[1] == ["mean", "1,234", "-", "-", "-", "-", "-"]
    assert by_model[2][:5] == ["fitness", "validation", "dglcell", "1,234", "0.700"]


def test_the_table_has_no_escape_codes_unless_asked() -> None:
    rows = [row("[red]model[/red]", "test", 0.5), row("b", "test", 0.1, True)]
    plain = format_results_table(rows)
    assert "\x1b" not in plain
    assert "[red]model[/red]" in plain
    assert "\x1b[2m" in format_results_table(rows, color=True)


def test_a_sentence_says_which_null_model_is_better_on_the_test_part() -> None:
    rows = [
        row("dglcell", "validation", 0.1),
        row("dglcell", "test", 0.5912),
        row("mean", "test", math.nan, True),
        row("ridge", "test", 0.595, True),
        row("kernel", "test", 0.6131, True),
        row("kernel", "validation", 0.9, True),
    ]
    sentence = (
        "On the test part null models predict fitness better than dglcell does: 'kernel' by Pearson (0.613 against "
        "0.591), Spearman (0.613 against 0.591), MAE (0.3869 against 0.4088)."
    )
    assert beaten(rows) == [sentence]
    assert format_results_table(rows).endswith(f"\n\n{sentence}")
    (other,) = beaten(rows[:4])
    assert "'ridge' by Pearson (0.595 against 0.591)" in other
    assert beaten(rows[:3]) == []
    assert beaten([row("dglcell", "test", 0.5), row("ridge", "test", 0.5, True)]) == []


def test_classes_are_compared_by_average_precision() -> None:
    null = ResultRow("mean", "test", "lethal", {"average_precision": 0.5}, True, CLASSIFICATION)
    (sentence,) = beaten([class_row("a", "test", 0.25), null])
    assert sentence.endswith("better than a does: 'mean' by AP (0.500 against 0.250).")


def test_each_measure_by_which_a_null_model_is_better_is_named() -> None:
    def measured(model: str, pearson: float, spearman: float, mae: float) -> ResultRow:
        metrics = {"pearson": pearson, "spearman": spearman, "mae": mae}
        return ResultRow(model, "test", "fitness", metrics, model != "dglcell", REGRESSION)

    rows = [measured("dglcell", 0.9, 0.5, 0.2), measured("ridge", 0.8, 0.6, 0.3), measured("bound", 0.7, 0.7, 0.1)]
    (sentence,) = beaten(rows)
    assert sentence.endswith("does: 'bound' by Spearman (0.700 against 0.500), MAE (0.1000 against 0.2000).")


def test_what_is_left_out_is_said_once_for_each_reason() -> None:
    left_out = {"x": {"a": "needs pairs", "b": "needs pairs", "c": "is slow"}, "y": {"c": "is slow"}}
    assert left_out_lines(left_out) == [
        "The null models 'a', 'b' are left out for x, because each needs pairs.",
        "The null model 'c' is left out for x, y, because it is slow.",
    ]


def test_blocks_are_brought_together() -> None:
    rows = [row("a", "validation", 0.1), row("a", "test", 0.1), row("b", "validation", 0.2)]
    models = [line.split()[-7] for line in format_results_table(rows).splitlines()[1:-2] if line.strip()]
    assert models == ["a", "b", "a"]


def class_row(model: str, part: str, value: float, phenotype: str = "lethal") -> ResultRow:
    metrics = {
        "n": 500,
        "prevalence": 0.0123,
        "average_precision": value,
        "auroc": value,
        "f1": value,
        "brier": 1 - value,
    }
    return ResultRow(model, part, phenotype, metrics, False, "classification")


def test_classes_have_columns_of_their_own() -> None:
    lines = format_results_table([class_row("a", "test", 0.25), class_row("b", "test", 0.75)]).splitlines()
    assert lines[0].split() == ["phenotype", "part", "model", "n", "positive", "AP", "AUROC", "F1", "Brier"]
    assert lines[1].split() == ["lethal", "test", "a", "500", "0.012", "0.250", "0.250", "0.250", "0.7500"]
    assert lines[2].split() == ["b", "500", "0.012", "0.750*", "0.750*", "0.750*", "0.2500*"]


def test_numbers_and_classes_have_a_table_each() -> None:
    mixed = [class_row("a", "test", 0.5), row("a", "test", 0.5), class_row("b", "test", 0.6), row("b", "test", 0.6)]
    first, second, last = format_results_table(mixed).split("\n\n")
    assert last == BEST
    assert f"{first}\n\n{BEST}" == format_results_table([mixed[0], mixed[2]])
    assert f"{second}\n\n{BEST}" == format_results_table([mixed[1], mixed[3]])


@pytest.mark.parametrize(
    ("found", "verdict"),
    [(0.9921, "met"), (0.9979, "met"), (0.9919, "NOT met"), (0.9981, "NOT met"), (math.nan, "NOT met")],
)
def test_an_expected_result_is_met_within_its_tolerance(found: float, verdict: str) -> None:
    rows = [
        ResultRow("training mean", "test", "fitness", {"pearson": 0.995}, is_null=True),
        ResultRow("hetero_cell", "validation", "fitness", {"pearson": 0.995}),
        ResultRow("hetero_cell", "test", "fitness", {"pearson": found}),
        ResultRow("hetero_cell", "test", "growth", {"pearson": 0.995}),
    ]
    said = format_expected(rows, "pearson", 0.995, 0.003)
    assert said.startswith(f"pearson of fitness on the test part: 0.995 ± 0.003 was expected, {found:.4f} was found")
    assert f"was found. The expected result was {verdict}." in said


def test_rows_of_numbers_are_the_metrics_of_numbers() -> None:
    parts = {"validation": np.array([0.1, 0.5, 0.7]), "test": np.array([0.2, 0.4])}
    labels = {"validation": np.array([0.0, 1.0, 1.0]), "test": np.array([1.0, 0.0])}
    rows = rows_of("m", "x", "regression", parts, labels)
    assert [(row.part, row.metrics) for row in rows] == [
        (part, regression_metrics(parts[part], labels[part])) for part in parts
    ]


def test_ranks_are_those_of_scipy() -> None:
    values = np.random.default_rng(0).integers(0, 20, 100).astype(float)
    assert mean_ranks(values).tolist() == scipy.stats.rankdata(values).tolist()
