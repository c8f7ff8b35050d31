"""Reading a run directory: what is wrong is said, and how to mend it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dglcell.cli import main
from dglcell.errors import CheckpointError
from dglcell.report.run_files import read_run
from dglcell.runs import RunDirectory


def test_the_files_of_a_run_are_read(tiny_run: RunDirectory) -> None:
    files = read_run(tiny_run.path)
    assert (files.name, files.seed, len(files.history)) == ("tiny", 0, 2)
    p = files.predictions["test"]["fitness"]
    assert len(p) == 30
    name = files.results["predicts"]["fitness"]["name"]
    row = next(row for row in files.rows if (row.model, row.part) == (name, "test"))
    assert np.square(p.predicted - p.measured).mean() == pytest.approx(row.metrics["mse"], rel=1e-4)
    assert {row.model for row in files.rows if row.part == "test"} >= {"hetero_cell", "training mean", "additive ridge"}
    assert files.best_epoch == json.loads(tiny_run.results.read_text())["epoch"] + 1
    assert "240 train, 30 validation, 30 test (random split) · cell: 137 genes, " in files.lines[0]
    assert files.lines[1].endswith(" s on cpu")


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
