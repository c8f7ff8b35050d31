"""The page of one run, its table of results and the sentences below: complete, true, and the same when made again."""

from __future__ import annotations

import base64
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dglcell.cli import main
from dglcell.metrics import ResultRow, format_metric
from dglcell.report.page import (
    BEST,
    best_of,
    format_expected,
    format_results_table,
    left_out_lines,
    lines_below,
    missed_strains,
    page_content,
    strain_names,
    strongest,
    write_page,
)
from dglcell.report.run_files import read_run
from dglcell.runs import RunDirectory
from tests.html_page import Page
from tests.report.invented import png_size


@pytest.fixture
def run(drawn_run: RunDirectory, tmp_path: Path) -> RunDirectory:
    return RunDirectory(Path(shutil.copytree(drawn_run.path, tmp_path / "run")))


def test_the_page_of_a_trained_run_has_everything_and_stands_alone(drawn_run: RunDirectory) -> None:
    page = Page(drawn_run.page)
    page.check_alone()
    assert 'name="viewport"' in page.source
    assert "prefers-color-scheme: dark" in page.source
    icon, picture = page.loads
    assert icon == "data:,"
    assert png_size(base64.b64decode(picture.removeprefix("data:image/png;base64,")))[0] > 600
    (alternative,) = page.values("alt", "img")
    assert "loss and validation score after each epoch" in alternative
    about = json.loads(drawn_run.environment.read_text())
    for text in (*about["hashes"].values(), about["command"], about["packages"]["torch"], drawn_run.config.read_text()):
        assert text in page.text
    assert "240 train, 30 validation, 30 test" in page.text
    assert f"dglcell train {drawn_run.config} paths.runs=runs-again" in page.text
    assert "best_loss.ckpt, after epoch" in page.text


def test_the_tables_have_results_and_epochs(drawn_run: RunDirectory) -> None:
    rows = json.loads(drawn_run.results.read_text())["rows"]
    tables = Page(drawn_run.page).tables
    header, *lines = tables[0]
    assert header == ["phenotype", "part", "model", "n", "Pearson", "Spearman", "R²", "MSE", "MAE"]
    assert len(lines) == len(rows)
    test = [row for row in rows if row["part"] == "test"]
    assert [line[2] for line in lines[: len(test)]] == [row["model"] for row in test]
    for line, row in zip(lines, test, strict=False):
        value = row["metrics"]["mse"]
        assert line[7].rstrip("*").replace("\N{MINUS SIGN}", "-") == format_metric("mse", value)
        assert line[7].endswith("*") == (value == min(other["metrics"]["mse"] for other in test))
    head, *epochs = next(table for table in tables if table[0][0] == "epoch")
    assert head[-3:] == ["validation/fitness/pearson", "learning_rate", "seconds"]
    losses = [json.loads(line)["validation/loss"] for line in drawn_run.metrics.read_text().splitlines()]
    assert [row[0] for row in epochs] == ["1", "2"]
    assert [float(row[head.index("validation/loss")]) for row in epochs] == pytest.approx(losses, rel=1e-3)


def test_the_report_is_made_again_from_the_directory_alone(
    run: RunDirectory, drawn_run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(run.cell)
    for path in (run.page, run.report, *run.checkpoints.iterdir()):
        path.unlink()
    assert main(["report", str(run.path)]) == 0
    assert capsys.readouterr().out == f"{run.page}\n"
    assert run.report.read_bytes() == drawn_run.report.read_bytes()
    Page(run.page).check_alone()


def test_with_an_output_nothing_else_is_written(run: RunDirectory, tmp_path: Path) -> None:
    before, output = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}, tmp_path / "page.html"
    assert main(["report", str(run.path), "--output", str(output)]) == 0
    Page(output).check_alone()
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


def test_names_are_text_whatever_they_are(run: RunDirectory) -> None:
    evil = "<script>alert(1)</script>\"'&{{ 7 * 7 }}"
    config = run.config.read_text().replace("name: tiny\n", f"name: {json.dumps(evil)}\n")
    run.config.write_text(config.replace("description: ''", f"description: {json.dumps(evil)}"))
    results = run.results.read_text().replace('"additive ridge"', json.dumps(evil))
    run.results.write_text(results)
    page = Page(write_page("run.html", run.path / "page.html", **page_content(read_run(run.path), b"")))
    page.check_alone()
    assert f"{evil}, seed 0" in page.text
    assert evil in [line[2] for line in page.tables[0]]


def test_several_phenotypes_have_tables_each(run: RunDirectory) -> None:
    for part in ("test", "validation"):
        header, *lines = run.predictions(part).read_text().splitlines()
        more = [f"{line},{0.01 * i if i % 3 else ''},{0.01 * i}" for i, line in enumerate(lines)]
        text = "\n".join([f"{header},measured_tau,predicted_tau", *more])
        run.predictions(part).write_text(text + "\n")
    data = read_run(run.path)
    assert np.isnan(data.predictions["test"]["tau"].measured).sum() == 10
    page = Page(write_page("run.html", run.path / "page.html", **page_content(data, b"")))
    assert "Worst missed strains: tau" in page.text


def test_baselines_that_are_left_out_are_named_below_the_table(run: RunDirectory) -> None:
    results = json.loads(run.results.read_text())
    results["left_out"] = {"fitness": {"kernel ridge": "would need more memory"}}
    results["rows"] = [row for row in results["rows"] if not row["is_baseline"]]
    run.results.write_text(json.dumps(results))
    content = page_content(read_run(run.path), b"")
    expected = "The baseline 'kernel ridge' is left out for fitness, because it would need more memory."
    assert content["lines_below"][-1] == expected


def test_the_report_names_the_strains_that_are_missed_most(run: RunDirectory) -> None:
    of_test = read_run(run.path).predictions["test"]["fitness"]
    (worst,) = missed_strains(read_run(run.path))
    assert (worst.title, len(worst.rows)) == ("Worst missed strains: fitness", 10)
    wanted = of_test.predicted[np.abs(of_test.predicted - of_test.measured).argmax()]
    assert float(worst.rows[0][1].replace("\N{MINUS SIGN}", "-")) == pytest.approx(wanted, rel=1e-3)
    for part in ("test", "validation"):
        run.predictions(part).write_text("genes,measured_fitness,predicted_fitness\nb0116,1,0.9\nb0726,,0.8\n")
    assert [row[2] for row in missed_strains(read_run(run.path))[0].rows] == ["1"]


def test_genes_have_the_names_that_people_use(run: RunDirectory) -> None:
    rows = "b0116;b0726,lpd;b0726,1,1\nnobody,nobody,1,1\n,,1,1\n"
    run.predictions("test").write_text(f"genes,names,measured_fitness,predicted_fitness\n{rows}")
    assert strain_names(run) == ["lpd (b0116), b0726", "nobody", "none deleted"]
    run.predictions("test").write_text("genes,measured_fitness,predicted_fitness\nb0116;b0726,1,1\n")  # earlier runs
    assert strain_names(run) == ["b0116, b0726"]


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


@pytest.mark.parametrize("name", ["network + kernel ridge over strains (0.50)", "network " * 20, "n" * 200, ""])
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
