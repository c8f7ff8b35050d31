"""Reading a run directory: what is wrong is said, and how to mend it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dglcell.cli import main
from dglcell.errors import CheckpointError
from dglcell.report.run_files import read_run
from dglcell.runs.directory import RunDirectory


def test_the_files_of_a_run_are_read(tiny_run: RunDirectory) -> None:
    files = read_run(tiny_run.path)
    assert (files.name, files.seed, len(files.history)) == ("tiny", 0, 2)
    p = files.predictions["test"]["fitness"]
    assert len(p) == 30
    name = files.results["predicts"]["fitness"]["name"]
    row = next(row for row in files.rows if (row.model, row.part) == (name, "test"))
    assert p.metrics["mse"] == pytest.approx(row.metrics["mse"], rel=1e-4)
    assert files.best_epoch == json.loads(tiny_run.results.read_text())["epoch"] + 1
    assert "240 train, 30 validation, 30 test (random split)" in files.size_line
    assert files.training_line.endswith(" s on cpu")


def test_a_missing_directory_and_another_one(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"run directory '.*nowhere' not found\n  do:       give the path"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"is not a run directory\n  expected: a directory with config.yaml"):
        read_run(tmp_path)


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


@pytest.mark.parametrize("name", ["environment", "results"])
def test_damaged_files(run: RunDirectory, name: str) -> None:
    path: Path = getattr(run, name)
    path.write_text("[1, 2")
    with pytest.raises(CheckpointError, match=rf"{path.name}' is damaged\n  got: .*\n  expected: the file as"):
        read_run(run.path)
    path.write_text("[1, 2]")
    with pytest.raises(CheckpointError, match="is damaged"):
        read_run(run.path)


def test_an_incomplete_directory(run: RunDirectory) -> None:
    run.environment.unlink()
    with pytest.raises(CheckpointError, match=r"is not a complete run directory\n  expected: environment\.json"):
        read_run(run.path)


def test_the_chosen_embeddings_belong_to_their_strains(tiny_run: RunDirectory) -> None:
    with np.load(tiny_run.embedding) as archive:
        assert archive["strains"].tolist() == list(range(30))
        assert archive["vectors"].dtype == np.float32
