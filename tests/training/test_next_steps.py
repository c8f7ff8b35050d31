"""What the terminal says after a training: lines that can be pasted, honest intervals, and what may help."""

from __future__ import annotations

import csv
import itertools
import math
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dglcell.cli import main
from dglcell.metrics import ResultRow, average_precision
from dglcell.plots.data import History
from dglcell.report.run_files import RunFiles, read_run
from dglcell.runs.directory import RunDirectory
from dglcell.training.evaluate import rows_as_json
from dglcell.training.next_steps import example, how_sure, interval, to_try, what_next
from tests.tiny import BARE, Tiny


def row(model: str, part: str, metrics: dict[str, float], kind: str = "regression") -> ResultRow:
    """Of one phenotype; the model called ``own`` is no null model."""
    return ResultRow(model, part, "fitness", metrics, model != "own", kind)


def with_rows(run: RunFiles, *rows: ResultRow, losses: tuple[float, ...] = (1.0, 0.5)) -> RunFiles:
    """The same run with another table and another record."""
    record = [{"epoch": i, "step": 4.0 * (i + 1), "validation/loss": loss} for i, loss in enumerate(losses)]
    results: dict[str, Any] = {**run.results, "rows": rows_as_json(rows)}
    return replace(run, results=results, history=History(record))


@pytest.fixture(scope="module")
def run(tiny_run: RunDirectory) -> RunFiles:
    """The tiny run."""
    return read_run(tiny_run.path, parts=())


def test_the_lines_can_be_pasted(
    run: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = what_next(run)
    lines = [line[12:] for line in said.splitlines()[1:3]]
    assert lines[0].startswith("printf")
    subprocess.run(["sh", "-c", lines[0]], cwd=tmp_path, check=True)
    words = lines[1].split()
    assert words[:2] == ["dglcell", "predict"]
    monkeypatch.chdir(tmp_path)
    assert main(words[1:]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "genes,predicted_fitness"
    assert len(printed) == 3
    assert all(len(line) <= 80 for line in said.splitlines() if not line[12:].startswith(("printf", "dglcell")))


def test_strains_have_the_names_of_the_users_table(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    genes = {"b0008": "TalB", "b0114": "ACE E", "b0115": "aceF", "b0116": "odd;name", "b0118": "b0118", "b0351": "mhpF"}
    (tmp_path / "names.csv").write_text("systematic,mine\n" + "".join(f"{a},{b}\n" for a, b in genes.items()))
    pairs = list(itertools.combinations(genes.values(), 2))
    rows = [f"{a},{b},{0.5 + number / 40}" for number, (a, b) in enumerate(pairs)]
    (tmp_path / "mine.csv").write_text("gene_1,gene_2,fitness\n" + "\n".join(rows) + "\n")
    (tmp_path / "tiny.yaml").write_text(tiny.file.read_text())
    source = ["name=csv", "csv.path=mine.csv", "csv.genes=[gene_1,gene_2]", "csv.phenotypes={fitness: fitness}"]
    source.append("csv.aliases=names.csv")
    overrides = [f"data.source.{key}" for key in source] + ["split.subset=null", *BARE]
    assert main(["train", "tiny.yaml", *overrides]) == 0
    said = capsys.readouterr().out
    directory = RunDirectory(tmp_path / "runs/tiny/seed-0")
    with open(directory.predictions("test"), newline="") as file:
        lines = list(csv.DictReader(file))
    shown = {**genes, "b0116": "b0116"}
    for line in lines:
        assert line["names"].split(";") == [shown[gene] for gene in line["genes"].split(";")]
    assert read_run(directory.path).predictions["test"]["fitness"].measured.tolist() == pytest.approx(
        [float(line["measured_fitness"]) for line in lines]
    )
    assert f"printf 'genes\\n{lines[0]['names']}\\n" in said
    (tmp_path / "new.csv").write_text("genes\n" + "\n".join(line["names"] for line in lines) + "\n")
    assert main(["predict", str(directory.path), "new.csv"]) == 0


def test_the_lines_overwrite_no_table(run: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tables = [tmp_path / name for name in ("strains.csv", "new_strains.csv", "new_strains_2.csv")]
    for table in tables:
        table.write_text("the only copy of a screen")
    (line,) = (line[12:] for line in what_next(run).splitlines() if "printf" in line)
    subprocess.run(["sh", "-c", line], check=True)
    assert {table.read_text() for table in tables} == {"the only copy of a screen"}
    assert (tmp_path / "new_strains_3.csv").read_text().startswith("genes\n")


def test_names_that_a_shell_would_read_are_quoted(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.predictions("test").write_text("genes,measured_x,predicted_x\na'$(b)%d\\n;c,1,2\n")
    text = subprocess.run(["sh", "-c", f"printf '{example(run)}'"], capture_output=True, check=True).stdout
    assert text.decode() == "genes\na'$(b)%d\\n;c\n"
    run.predictions("test").write_text("genes,measured_x,predicted_x\n")
    assert example(run) == ""


def test_the_interval_of_a_correlation_holds_the_truth_as_often_as_it_says() -> None:
    generator, truth, inside = np.random.default_rng(0), 0.6, 0
    for _ in range(1000):
        x = generator.standard_normal(40)
        y = truth * x + math.sqrt(1 - truth**2) * generator.standard_normal(40)
        low, high = interval(row("own", "test", {"pearson": float(np.corrcoef(x, y)[0, 1]), "n": 40}))
        inside += low < truth < high
    assert 0.93 < inside / 1000 < 0.97


def test_the_interval_of_an_average_precision_holds_the_truth_as_often_as_it_says() -> None:
    generator, inside = np.random.default_rng(0), 0

    def draw(n: int) -> tuple[float, float]:
        positive = generator.random(n) < 0.3
        score = generator.standard_normal(n) + 1.5 * positive
        return average_precision(score, positive), float(positive.mean())

    truth = draw(1_000_000)[0]
    for _ in range(500):
        value, prevalence = draw(200)
        metrics = {"average_precision": value, "prevalence": prevalence, "n": 200.0}
        low, high = interval(row("own", "test", metrics, "classification"))
        inside += low < truth < high
    assert 0.9 < inside / 500 <= 1


@pytest.mark.parametrize(
    "metrics", [{"pearson": math.nan, "n": 9}, {"pearson": 1.0, "n": 9}, {"pearson": 0.5, "n": 3}, {}]
)
def test_an_interval_that_is_undefined_is_not_shown(metrics: dict[str, float]) -> None:
    assert all(map(math.isnan, interval(row("own", "test", metrics))))
    assert "interval" not in next(how_sure([row("own", "test", metrics)], {}))


def test_how_sure_names_score_error_and_unit() -> None:
    found = row("own", "test", {"pearson": 0.5, "mae": 0.0321, "n": 103})
    said = "fitness: test Pearson 0.500 (95 % interval 0.339 to 0.632, n = 103); wrong by 0.03210 1/h on average (MAE)"
    assert list(how_sure([found, row("multiplicative", "test", {"pearson": 0.9})], {"fitness": "1/h"})) == [said]
    two = row("own", "test", {"pearson": 1.0, "mae": 0.0321, "n": 2})
    assert list(how_sure([two], {})) == [
        "fitness: 2 test strains, too few for a correlation; wrong by 0.03210 on average (MAE)"
    ]
    assert list(how_sure([], {})) == ["nothing says it: there is no test part"]


def test_nothing_is_to_be_tried_where_the_model_wins(run: RunFiles) -> None:
    rows = [row("own", "validation", {"pearson": 0.9}), row("multiplicative", "validation", {"pearson": 0.8})]
    assert list(to_try(with_rows(run, *rows))) == []
    # A null model that is no better than chance is no advice either, but a training of few steps may be longer.
    rows = [row("own", "validation", {"pearson": -0.2}), row("multiplicative", "validation", {"pearson": -0.1})]
    (longer,) = to_try(with_rows(run, *rows))
    assert "train longer with trainer.epochs=" in longer


def test_what_may_help_where_a_null_model_wins(run: RunFiles) -> None:
    rows = [
        row("own", "validation", {"pearson": 0.5, "n": 30}),
        row("multiplicative", "validation", {"pearson": 0.95}),
        row("additive ridge", "validation", {"pearson": 0.93}),
        row("kernel ridge", "validation", {"pearson": 0.96}),
    ]
    best, effects, longer = to_try(with_rows(run, *rows))
    assert "'kernel ridge' predicts fitness better (Pearson 0.960 against 0.500" in best
    assert "--with best" in best
    assert "nearly products of single effects: 'multiplicative' alone reaches 0.950" in effects
    assert longer.startswith("the training had 8 steps, and the loss was still falling: train longer with ")
    assert "trainer.epochs=125" in longer
    assert "data.batch_size=12" in longer
    # Few steps are said where the loss no longer falls; many steps are not.
    *_, few = to_try(with_rows(run, *rows, losses=(0.5, 1.0)))
    assert "the training had 8 steps: train longer" in few
    assert len(list(to_try(with_rows(run, *rows, losses=tuple([1.0] * 200))))) == 2
