"""The table that compares a model with baselines, and the sentences below it."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from dglcell.metrics import ResultRow
from dglcell.report.page import (
    BEST,
    best_of,
    format_expected,
    format_results_table,
    left_out_lines,
    lines_below,
    strongest,
)


def row(model: str, part: str, value: float, is_baseline: bool = False) -> ResultRow:
    metrics = {"n": 1234, "pearson": value, "spearman": value, "r2": value, "mse": 1 - value, "mae": 1 - value}
    return ResultRow(model, part, "fitness", metrics, is_baseline)


@pytest.mark.parametrize(
    ("values", "metric", "best"),
    [
        ([0.2, math.nan, 0.4], "pearson", {2}),
        ([0.8, math.nan, 0.6], "mse", {2}),
        ([0.4, 0.4], "pearson", {0, 1}),
        ([math.nan, math.nan], "pearson", set()),
        ([0.1], "pearson", set()),
        ([2, 1], "n", set()),
    ],
)
def test_the_best_is_found_and_undefined_never_wins(values: list[float], metric: str, best: set[int]) -> None:
    assert best_of(values, metric) == best


def test_the_table_shows_every_row_and_marks_the_best() -> None:
    rows = [row("dglcell", "test", 0.61234), row("mean", "test", math.nan, True), row("dglcell", "validation", 0.7)]
    lines = format_results_table(rows).splitlines()
    assert lines[0].split() == ["Pearson", "Spearman", "R²", "MSE", "MAE"]
    assert [lines[1], lines[4]] == ["fitness, test part, n = 1,234", "fitness, validation part, n = 1,234"]
    assert lines[2].split() == ["dglcell", "0.612*", "0.612*", "0.612*", "0.388*", "0.388*"]
    assert lines[3].split() == ["mean", "-", "-", "-", "-", "-"]
    assert lines[5].split() == ["dglcell", "0.700", "0.700", "0.700", "0.300", "0.300"]


@pytest.mark.parametrize("name", ["network + kernel ridge over strains (0.50)", "network " * 20 + "(0.50)", "n" * 200])
def test_the_table_fits_a_terminal(name: str) -> None:
    text = format_results_table([row(name, "test", -0.71234), row("mean", "test", -0.71235, True)])
    assert max(map(len, text.splitlines())) <= 80
    assert "".join(name.split()) in "".join(re.sub(r"  .*", "", text, flags=re.MULTILINE).split())


def test_a_terminal_shows_the_test_part_with_the_strongest_baselines() -> None:
    baselines = [
        row(name, "test", value, True) for name, value in {"a": 0.1, "b": math.nan, "c": 0.3, "d": 0.2}.items()
    ]
    ablation = row("without messages", "test", -0.5, True)
    assert ablation in strongest([row("own", "test", 0.5), *baselines, ablation])
    rows = [row("own", "validation", 0.9), row("own", "test", 0.0), *baselines]
    assert [one.model for one in strongest(rows, number=2)] == ["own", "c", "d"]
    assert [one.model for one in strongest(rows, ["a"], 1)] == ["own", "a", "c"]
    assert strongest(rows[:1]) == rows[:1]


def test_the_table_has_no_escape_codes_unless_asked() -> None:
    rows = [row("[red]model[/red]", "test", 0.5), row("b", "test", 0.1, True)]
    plain = format_results_table(rows)
    assert "\x1b" not in plain
    assert "\x1b[2m" in (colored := format_results_table(rows, color=True))
    assert re.sub(r"\x1b\[\dm", "", colored) == plain


def test_what_is_left_out_is_said_once_for_each_reason() -> None:
    left_out = {"x": {"a": "needs pairs", "b": "needs pairs", "c": "is slow"}, "y": {"c": "is slow"}}
    assert left_out_lines(left_out) == [
        "The baselines 'a', 'b' are left out for x, because each needs pairs.",
        "The baseline 'c' is left out for x, y, because it is slow.",
    ]


def test_a_line_has_the_mean_within_covariates() -> None:
    rows = [row("dglcell", "test", 0.8), row("mean", "test", math.nan, True), row("kernel", "test", 0.7, True)]
    assert lines_below(rows, "random") == []
    within = zip(rows, (0.25, math.nan, 0.31), strict=True)
    rows = [replace(one, metrics={**one.metrics, "pearson_within": value}) for one, value in within]
    assert lines_below(rows, "random") == [
        "fitness: Pearson within one medium or batch at a time, on average: dglcell 0.250, 'kernel' 0.310"
    ]


def class_row(model: str, part: str, value: float, phenotype: str = "lethal") -> ResultRow:
    metrics = dict.fromkeys(("average_precision", "auroc", "f1"), value) | {"n": 500, "prevalence": 0.0123}
    return ResultRow(model, part, phenotype, metrics | {"brier": 1 - value}, False, "classification")


def test_classes_have_a_table_with_columns_of_their_own() -> None:
    rows = [class_row("a", "test", 0.25), class_row("b", "test", 0.75)]
    lines = format_results_table(rows).splitlines()
    assert lines[0].split() == ["positive", "AP", "AUROC", "F1", "Brier"]
    assert lines[1] == "lethal, test part, n = 500"
    assert lines[2].split() == ["a", "0.012", "0.250", "0.250", "0.250", "0.750"]
    assert lines[3].split() == ["b", "0.012", "0.750*", "0.750*", "0.750*", "0.250*"]
    numbers = [row("a", "test", 0.5), row("b", "test", 0.6)]
    first, second = format_results_table([rows[0], numbers[0], rows[1], numbers[1]]).split("\n\n")
    assert f"{first}\n{BEST}" == format_results_table(rows)
    assert second == format_results_table(numbers)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [(0.9921, "met"), (0.9979, "met"), (0.9919, "NOT met"), (0.9981, "NOT met"), (math.nan, "NOT met")],
)
def test_an_expected_result_is_met_within_its_tolerance(found: float, verdict: str) -> None:
    rows = [
        ResultRow("training mean", "test", "fitness", {"pearson": 0.995}, is_baseline=True),
        ResultRow("hetero_cell", "validation", "fitness", {"pearson": 0.995}),
        ResultRow("hetero_cell", "test", "fitness", {"pearson": found}),
        ResultRow("hetero_cell", "test", "growth", {"pearson": 0.995}),
    ]
    said = format_expected(rows, "pearson", 0.995, 0.003)
    assert said.startswith(f"pearson of fitness on the test part: 0.995 ± 0.003 was expected, {found:.4f} was found")
    assert f"was found. The expected result was {verdict}." in said
