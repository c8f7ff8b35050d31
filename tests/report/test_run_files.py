"""Reading a run directory: what is wrong is said, and how to mend it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from dglcell.cli import main
from dglcell.errors import CheckpointError
from dglcell.report.run_files import read_doses, read_run
from dglcell.runs import RunDirectory


def test_the_files_of_a_run_are_read(tiny_run: RunDirectory) -> None:
    files = read_run(tiny_run.path)
    assert (files.name, files.seed, len(files.history)) == ("tiny", 0, 2)
    p = files.predictions["test"]["fitness"]
    assert len(p) == 30
    name = files.results["predicts"]["fitness"]["name"]
    row = next(row for row in files.rows if (row.model, row.part) == (name, "test"))
    assert np.square(p.predicted - p.measured).mean() == pytest.approx(row.metrics["mse"], rel=1e-4)
    assert files.best_epoch == json.loads(tiny_run.results.read_text())["epoch"] + 1
    assert "240 train, 30 validation, 30 test (random split) · cell: 137 genes, " in files.size_line
    assert files.training_line.endswith(" s on cpu")


def test_an_unfinished_run(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    run.results.unlink()
    lines = run.metrics.read_text().splitlines()
    run.metrics.write_text(lines[0] + "\n")
    assert main(["report", str(run.path)]) == 2
    assert capsys.readouterr().err == (
        f"error: the run '{run.path}' is not finished\n"
        "  got:      1 of 2 epochs\n"
        "  expected: a run that was trained and evaluated to its end\n"
        "  do:       continue it with the `dglcell train` command that started it\n"
    )


def test_a_run_that_trained_on_after_its_results_were_written(run: RunDirectory) -> None:
    with run.metrics.open("a") as file:
        file.write('{"epoch": 2, "train/loss": 0.1, "seconds": 1.0}\n')
    with pytest.raises(CheckpointError, match="3 of 2 epochs; its results are those after epoch 2"):
        read_run(run.path)


@pytest.mark.parametrize("part", ["test", "validation"])
def test_a_run_without_predictions(run: RunDirectory, part: str) -> None:
    run.predictions(part).unlink()
    message = (
        rf"has no predictions of the {part} part\n  expected: predictions_{part}.csv\n"
        r"  do:       run its `dglcell train` command again: a finished run is evaluated anew"
    )
    with pytest.raises(CheckpointError, match=message):
        read_run(run.path)
    assert read_run(run.path, parts=()).predictions == {}


DOSES = "genes,names,activities,medium,measured_y,predicted_y\n"


def test_doses_are_those_of_strains_that_change_a_single_gene(run: RunDirectory) -> None:
    assert read_doses(run, "test") is None  # of deletions
    table = DOSES + "b1,pgi,0.5,LB,1,1\nb1;b2,pgi;x,0.5;0,LB,1,1\n,,,M9,1,1\nb2,x,0,M9,,1\n"
    run.predictions("test").write_text(table)
    doses = read_doses(run, "test")
    assert doses is not None
    assert doses.genes.tolist() == ["pgi", "", "", "x"]
    assert doses.activities.tolist() == pytest.approx([0.5, math.nan, math.nan, 0], nan_ok=True)
    assert doses.medium.tolist() == ["LB", "LB", "M9", "M9"]
    lines = zip(table.splitlines(), ("learned_activities", "0.25", "0.25;0", "", "0"), strict=True)
    run.predictions("test").write_text("\n".join(f"{line},{more}" for line, more in lines))
    doses = read_doses(run, "test")
    assert doses is not None
    assert doses.activities[0] == 0.25
    run.predictions("test").write_text(DOSES + "b1,pgi,half,LB,1,1\n")
    with pytest.raises(CheckpointError, match=r"predictions_test\.csv' is damaged"):
        read_doses(run, "test")
