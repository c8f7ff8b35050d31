"""Runs of one experiment as one model, and what their spread says of its error."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dglcell.cli import main
from dglcell.errors import CheckpointError
from dglcell.report.ensemble import ONE_SD, Joined, find_ensembles, spread_table
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
    tables = [read_predictions(run, "test")["fitness"] for run in (one, two)]
    mean = (tables[0].predicted + tables[1].predicted) / 2
    (row,) = (row for row in ensemble.rows if row.part == "test")
    assert row.metrics["mse"] == pytest.approx(np.square(mean - tables[0].measured).mean())
    assert row.metrics["pearson"] == pytest.approx(np.corrcoef(mean, tables[0].measured)[0, 1])
    sd = ensemble.joined["fitness"]["test"].sd
    np.testing.assert_allclose(sd, 0.01 * np.arange(len(mean)) / 2**0.5, atol=1e-6)


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


def test_shares_within_the_spread_by_hand() -> None:
    joined = Joined(np.array([0.0, 1.0, 2.0, np.nan, 5.0]), np.array([0.5, 1.0, 0.0, 9.0, 5.0]), np.ones(5))
    assert joined.within(1) == pytest.approx(3 / 4)
    assert joined.within(2) == 1
    assert joined.within(0.4) == pytest.approx(2 / 4)
    nothing = Joined(np.array([np.nan]), np.zeros(1), np.ones(1))
    assert np.isnan([nothing.within(1), nothing.factor]).all()


def test_no_factor_makes_up_for_runs_that_agree_and_are_wrong() -> None:
    measured, mean = np.arange(4.0), np.arange(4.0) + 1
    assert np.isnan(Joined(measured, mean, np.array([0.0, 0.0, 1.0, 1.0])).factor)
    assert Joined(measured, measured, np.zeros(4)).factor == 0


def test_the_factor_of_the_validation_part_calibrates_a_spread_that_is_too_small() -> None:
    rng, parts = np.random.default_rng(0), {}
    for part in ("validation", "test"):
        sd = rng.uniform(0.1, 1, 20_000)
        parts[part] = Joined(np.zeros_like(sd), 3 * sd * rng.normal(size=len(sd)), sd)
    assert parts["validation"].factor == pytest.approx(3, rel=0.03)
    assert parts["test"].within(parts["validation"].factor) == pytest.approx(ONE_SD, abs=0.02)


def test_the_table_has_a_line_for_each_ensemble(make_run: MakeRun) -> None:
    one, two = make_run("one", 0, 0.5), make_run("one", 1, 0.7)
    for part in ("test", "validation"):
        shift(two.predictions(part), lambda number: 0.02 * number)
    ensembles = find_ensembles(read(one, two))
    table = spread_table(ensembles)
    (row,) = table.rows
    joined = ensembles[0].joined["fitness"]
    assert row[:3] == ["one", "fitness", "2"]
    assert row[3] == f"{100 * joined['test'].within(1):.0f} %"
    assert row[6] == f"{100 * joined['test'].within(joined['validation'].factor):.0f} %"
    assert len(row) == len(table.columns)
