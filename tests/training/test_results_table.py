"""The table that compares models."""

from __future__ import annotations

import math

from dglcell.metrics import ResultRow, best_in_block, format_results_table


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


def test_blocks_are_brought_together() -> None:
    rows = [row("a", "validation", 0.1), row("a", "test", 0.1), row("b", "validation", 0.2)]
    models = [line.split()[-7] for line in format_results_table(rows).splitlines()[1:] if line.strip()]
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
    first, second = format_results_table(mixed).split("\n\n")
    assert first == format_results_table([mixed[0], mixed[2]])
    assert second == format_results_table([mixed[1], mixed[3]])
