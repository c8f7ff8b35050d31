"""The page of one run: complete, self-contained, true, and the same when made again."""

from __future__ import annotations

import base64
import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from dglcell.cli import main
from dglcell.cli.outputs import check_output
from dglcell.metrics import format_metric
from dglcell.nn.config import CrossRelation
from dglcell.nn.cross_relation import RelationWeights, make_mixer
from dglcell.report.page import write_page
from dglcell.report.run_files import read_run
from dglcell.report.run_page import page_content, write_report
from dglcell.runs.directory import RunDirectory
from dglcell.training.evaluate import write_relation_weights
from tests.plots.invented import png_size
from tests.report.pages import Page

PNG = "data:image/png;base64,"


@pytest.fixture(scope="module")
def page(drawn_run: RunDirectory) -> Page:
    """Return what training wrote."""
    return Page(drawn_run.page)


@pytest.fixture
def run(drawn_run: RunDirectory, tmp_path: Path) -> RunDirectory:
    """A copy of it, to be changed."""
    return RunDirectory(Path(shutil.copytree(drawn_run.path, tmp_path / "run")))


def test_the_page_of_a_trained_run_stands_alone(page: Page) -> None:
    page.check()
    assert 'name="viewport"' in page.source
    assert "prefers-color-scheme: dark" in page.source
    pictures = [r for r in page.resources if r.startswith(PNG)]
    assert len(pictures) == len(page.resources) - 1  # the empty icon
    for picture in pictures:
        assert png_size(base64.b64decode(picture.removeprefix(PNG)))[0] > 600
    assert len(pictures) == len(page.alternatives) >= 15
    assert all("n = " in text or "epoch" in text or "strains" in text for text in page.alternatives)


def test_every_figure_lies_in_the_run_directory_too(drawn_run: RunDirectory, page: Page) -> None:
    keys = [name.removeprefix("figure-") for name in page.ids if name.startswith("figure-")]
    expected = {f"{key}.{kind}" for key in keys for kind in ("png", "svg", "csv")}
    assert {path.name for path in drawn_run.figures.iterdir()} == expected


def test_the_table_has_the_results(drawn_run: RunDirectory, page: Page) -> None:
    rows = json.loads(drawn_run.results.read_text())["rows"]
    header, *lines = page.tables[0]
    assert header == ["phenotype", "part", "model", "n", "Pearson", "Spearman", "R²", "MSE", "MAE"]
    assert len(lines) == len(rows)
    test = [row for row in rows if row["part"] == "test"]
    assert [line[2] for line in lines[: len(test)]] == [row["model"] for row in test]
    for line, row in zip(lines, test, strict=False):
        value = row["metrics"]["mse"]
        assert line[7].rstrip("*").replace("\N{MINUS SIGN}", "-") == format_metric("mse", value)
        assert line[7].endswith("*") == (value == min(other["metrics"]["mse"] for other in test))


def test_the_page_says_all_that_reproduces_the_run(drawn_run: RunDirectory, page: Page) -> None:
    about = json.loads(drawn_run.environment.read_text())
    for digest in about["hashes"].values():
        assert digest in page.text
    assert about["command"] in page.text
    assert about["packages"]["torch"] in page.text
    assert drawn_run.config.read_text() in page.text
    assert "240 train, 30 validation, 30 test" in page.text
    assert f"dglcell train {drawn_run.config} paths.runs=runs-again" in page.text
    assert "best_loss.ckpt (reported)" in page.text
    epochs = next(table for table in page.tables if table[0][0] == "epoch")
    history = [json.loads(line) for line in drawn_run.metrics.read_text().splitlines()]
    assert [row[0] for row in epochs[1:]] == ["1", "2"]
    column = epochs[0].index("validation loss")
    assert [float(row[column]) for row in epochs[1:]] == pytest.approx(
        [row["validation/loss"] for row in history], rel=1e-3
    )
    assert epochs[0][-3:] == ["embedding cosine", "learning rate", "seconds"]


def test_the_report_is_made_again_from_the_directory_alone(
    run: RunDirectory, drawn_run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(run.figures)
    shutil.rmtree(run.cell)
    for path in (run.page, run.report, *run.checkpoints.iterdir()):
        path.unlink()
    assert main(["report", str(run.path)]) == 0
    assert capsys.readouterr().out == f"{run.page}\n"
    names = sorted(path.name for path in drawn_run.figures.iterdir())
    assert sorted(path.name for path in run.figures.iterdir()) == names
    for name in names:
        assert (run.figures / name).read_bytes() == (drawn_run.figures / name).read_bytes(), name
    Page(run.page).check()


def test_with_an_output_nothing_else_is_written(run: RunDirectory, tmp_path: Path) -> None:
    shutil.rmtree(run.figures)
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    output = tmp_path / "elsewhere" / "page.html"
    output.parent.mkdir()
    output.touch()  # An empty file is replaced, and so is an earlier page.
    assert main(["report", str(run.path), "--output", str(output)]) == 0
    Page(output).check()
    check_output(output, "a page of a report")
    assert [path.name for path in output.parent.iterdir()] == ["page.html"]
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


def test_names_are_text_whatever_they_are(run: RunDirectory) -> None:
    evil = "<script>alert(1)</script>\"'&{{ 7 * 7 }}"
    config = run.config.read_text().replace("name: tiny\n", f"name: {json.dumps(evil)}\n")
    run.config.write_text(config.replace("description: ''", f"description: {json.dumps(evil)}"))
    results = run.results.read_text().replace('"additive ridge"', json.dumps(evil))
    run.results.write_text(results)
    files = read_run(run.path)
    content = page_content(files, files.report_data(), lambda panel: b"")
    page = Page(write_page("run.html", run.path / "page.html", **content))
    page.check()
    assert f"{evil}, seed 0" in page.text
    assert page.tables[0][3][2] == evil


def test_relation_weights_are_drawn_and_tabulated(run: RunDirectory) -> None:
    weights = torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    write_relation_weights(run.relation_weights, [RelationWeights(0, "gene", ["physical", "regulatory"], weights)])
    files = read_run(run.path)
    content = page_content(files, files.report_data(), lambda panel: b"")
    section = content["sections"][-1]
    assert [figure.id for figure in section.figures] == ["figure-relations", "figure-relations-layer-1-gene"]
    assert section.table.columns == ["relation", "layer 1, gene"]
    assert section.table.rows == [["physical", "0.7"], ["regulatory", "0.3"]]
    # Pairwise interaction weighs relations and pairs of them, once each.
    mixer = make_mixer(CrossRelation("pairwise_interaction"), 2, 4)
    assert mixer is not None
    options, weights = mixer.options(["physical", "regulatory"]), torch.tensor([0.5, 0.3, 0.125, 0.075])
    assert mixer.mean_weights(torch.ones(3, 4), torch.ones(3, 4)).shape == weights.shape
    write_relation_weights(run.relation_weights, [RelationWeights(0, "gene", options, weights)])
    files = read_run(run.path)
    section = page_content(files, files.report_data(), lambda panel: b"")["sections"][-1]
    assert [figure.id for figure in section.figures] == ["figure-relations"]
    names = ["physical", "physical × regulatory", "regulatory", "mean"]
    assert section.table.rows == [list(row) for row in zip(names, ["0.5", "0.3", "0.125", "0.075"], strict=True)]
    write_relation_weights(run.relation_weights, [])
    assert read_run(run.path).relation_weights == {}


def test_several_phenotypes_have_a_section_each(run: RunDirectory) -> None:
    for part in ("test", "validation"):
        header, *lines = run.predictions(part).read_text().splitlines()
        more = [f"{line},{0.01 * i if i % 3 else ''},{0.01 * i}" for i, line in enumerate(lines)]
        text = "\n".join([f"{header},measured_tau,predicted_tau", *more])
        run.predictions(part).write_text(text + "\n")
    data = read_run(run.path)
    assert np.isnan(data.predictions["test"]["tau"].measured).sum() == 10
    titles = [section.title for section in page_content(data, data.report_data(), lambda p: b"")["sections"]]
    assert titles[:4] == ["fitness: test part", "tau: test part", "fitness: validation part", "tau: validation part"]


def test_the_note_below_the_table_names_better_and_missing_null_models(run: RunDirectory) -> None:
    results = json.loads(run.results.read_text())
    results["left_out"] = {"fitness": {"kernel ridge": "would need more memory"}}
    for row in results["rows"]:
        row["metrics"] = {"n": 30, "pearson": 0.5 + 0.1 * row["is_null"]}
    run.results.write_text(json.dumps(results))
    data = read_run(run.path)
    note = page_content(data, data.report_data(), lambda panel: b"")["table_note"]
    assert (
        "null models predict fitness better than hetero_cell does: 'training mean' by Pearson (0.600 against 0.500)"
        in note
    )
    assert note.endswith("'kernel ridge' is left out for fitness, because it would need more memory.")


def test_a_model_without_embedding_and_a_run_without_null_models_have_a_page(run: RunDirectory) -> None:
    run.embedding.unlink()
    results = json.loads(run.results.read_text())
    results["rows"] = [row for row in results["rows"] if not row["is_null"]]
    run.results.write_text(json.dumps(results))
    rows = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    kept = [{key: value for key, value in row.items() if "embedding" not in key} for row in rows]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in kept))
    data = read_run(run.path)
    content = page_content(data, data.report_data(), lambda panel: b"")
    assert [section.title for section in content["sections"]] == [
        "fitness: test part",
        "fitness: validation part",
        "Training",
    ]
    assert content["cards"][0]["note"] == ""


@pytest.mark.slow
def test_thirty_thousand_test_strains_are_drawn(run: RunDirectory) -> None:
    rng = np.random.default_rng(0)
    for part in ("test", "validation"):
        measured, predicted = rng.normal(size=(2, 30_000))
        lines = [f"a;b,{y:.6g},{p:.6g}" for y, p in zip(measured, measured + predicted, strict=True)]
        run.predictions(part).write_text("\n".join(["genes,measured_tau,predicted_tau", *lines]) + "\n")
    vectors = rng.normal(size=(10_000, 64)).astype(np.float32)
    np.savez(run.embedding, strains=np.arange(10_000), vectors=vectors)
    run.results.write_text(run.results.read_text().replace('"fitness"', '"tau"'))
    write_report(run.path)
    Page(run.page).check()


def test_the_numbers_behind_the_picture_are_those_of_the_table(drawn_run: RunDirectory) -> None:
    table = json.loads(drawn_run.results.read_text())
    drawn = list(csv.DictReader(drawn_run.report.with_suffix(".csv").open()))
    for row in table["rows"]:
        (found,) = (
            line for line in drawn if (line["panel"], line["series"], line["x"]) == ("mse", row["model"], row["part"])
        )
        assert float(found["value"]) == pytest.approx(row["metrics"]["mse"])
    epochs = {line["x"] for line in drawn if line["panel"] == "learning"}
    assert epochs == {"1", "2"}
