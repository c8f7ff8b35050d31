"""Runs of one experiment as one model."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dglcell.cli import main
from dglcell.errors import CheckpointError
from dglcell.report.ensemble import find_ensembles
from dglcell.report.run_files import RunFiles, read_run
from dglcell.report.run_tables import read_predictions
from dglcell.runs.directory import RunDirectory

MakeRun = Callable[..., RunDirectory]


def read(*runs: RunDirectory) -> list[RunFiles]:
    """Without predictions."""
    return [read_run(run.path, parts=()) for run in runs]


def shift(path: Path, by: Callable[[int], float]) -> None:
    """Add to the predictions of every row of a run's file."""
    with open(path, newline="") as file:
        header, *rows = csv.reader(file)
    for number, row in enumerate(rows):
        row[-1] = str(float(row[-1]) + by(number))
    with open(path, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def test_the_mean_of_all_runs_is_evaluated(make_run: MakeRun) -> None:
    one, two = make_run("one", 0, 0.5), make_run("one", 1, 0.7)
    for part in ("test", "validation"):
        shift(two.predictions(part), lambda number: 0.01 * number)
    (ensemble,) = find_ensembles(read(one, two, make_run("alone", 0, 0.5)))
    assert (ensemble.name, ensemble.model, ensemble.runs) == ("one", "hetero_cell", 2)
    tables = [read_predictions(run, "test", of_network=True)["fitness"] for run in (one, two)]
    mean = (tables[0].predicted + tables[1].predicted) / 2
    (row,) = (row for row in ensemble.rows if row.part == "test")
    assert row.metrics["mse"] == pytest.approx(np.square(mean - tables[0].measured).mean())
    assert row.metrics["pearson"] == pytest.approx(np.corrcoef(mean, tables[0].measured)[0, 1])


def test_runs_on_different_splits_are_no_ensemble(make_run: MakeRun) -> None:
    assert find_ensembles(read(make_run("one", 0, 0.5), make_run("one", 1, 0.5, split="f" * 64))) == []


def test_predictions_of_different_strains_are_refused(make_run: MakeRun) -> None:
    one, two = make_run("one", 0, 0.5), make_run("one", 1, 0.5)
    path = two.predictions("test")
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(CheckpointError, match="the runs of one have the same split, but not predictions of the same"):
        find_ensembles(read(one, two))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"phenotype": "foreign"}, "the runs of one have the same split, but not predictions of the same strains"),
        ({"part": "foreign"}, "no row of the model for the test part of fitness"),
        ({"is_null": True}, "no row of the model for the test part of fitness"),
    ],
)
def test_results_of_something_else_than_the_predictions_are_refused(
    make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, object], said: str
) -> None:
    runs = [make_run("one", seed, 0.5) for seed in (0, 1)]
    for run in runs:
        results = json.loads(run.results.read_text())
        rows = [{**row, **changed} for row in results["rows"]]
        run.results.write_text(json.dumps({**results, "rows": rows}))
    output = tmp_path / "comparison.html"
    assert main(["report", *(str(run.path) for run in runs), "-o", str(output)]) == 2
    assert said in capsys.readouterr().err
    assert not output.exists()
