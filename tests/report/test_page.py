"""The page of one run: complete, self-contained, true, and the same when made again."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from dglcell.cli import main
from dglcell.metrics import format_metric
from dglcell.report.page import missed_strains, page_content, strain_names, write_page
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
