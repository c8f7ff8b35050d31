"""The table of runs: states, epochs, scores."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dglcell.cli import main
from dglcell.errors import DataError
from dglcell.report.comparison import find_runs, format_runs
from dglcell.runs import RunDirectory
from dglcell.training.evaluate import rows_as_json


@pytest.fixture
def folder(tiny_run: RunDirectory, tmp_path: Path) -> Path:
    """A finished run, one that was stopped after its first epoch, and one with a damaged configuration."""
    for seed in range(3):
        shutil.copytree(tiny_run.path, tmp_path / "runs" / "tiny" / f"seed-{seed}")
    stopped, damaged = (RunDirectory(tmp_path / "runs" / "tiny" / f"seed-{seed}") for seed in (1, 2))
    stopped.results.unlink()
    stopped.metrics.write_text(stopped.metrics.read_text().splitlines()[0] + "\n")
    damaged.config.write_text("")
    return tmp_path / "runs"


def test_states_and_scores(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = find_runs(folder)
    states = [(run.state, run.epochs, run.planned) for run in runs]
    assert states == [("finished", 2, 2), ("stopped", 1, 2), ("damaged", 0, 0)]
    header, parent, first, second, third = format_runs(runs).splitlines()
    assert header.split()[:3] == ["run", "state", "epoch"]
    assert parent == str(folder / "tiny")
    assert first.split()[:3] == ["seed-0", "finished", "2/2"]
    assert first.split()[4:6] == ["fitness", "r"]
    assert second.split() == ["seed-1", "stopped", "1/2"]
    assert third.split() == ["seed-2", "damaged", "0/?"]
    assert main(["runs", str(folder)]) == 0
    assert capsys.readouterr().out == format_runs(runs) + "\n"


def test_it_fits_a_terminal(tiny_run: RunDirectory) -> None:
    (run,) = find_runs(tiny_run.path.parent)
    assert run.files is not None
    rows = [replace(row, phenotype="digenic_interaction") for row in run.files.rows]
    rows = [replace(row, model="mean of the best two") if row.is_baseline else row for row in rows]
    files = replace(run.files, results=run.files.results | {"rows": rows_as_json(rows)})
    text = format_runs([replace(run, path=Path("runs/tiny/seed-0"), files=files)])
    assert max(map(len, text.splitlines())) <= 80
    assert " ".join(text.split()).endswith("the best two")


def test_nothing_to_show(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"folder '.*nowhere' not found"):
        find_runs(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"there is no run in '.*'\n  do:       train first"):
        find_runs(tmp_path)
