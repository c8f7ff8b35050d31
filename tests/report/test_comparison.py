"""Several runs: means and standard deviations over seeds, differences, warnings, and the list of runs."""

from __future__ import annotations

import csv
import itertools
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dglcell.cli import main
from dglcell.errors import DataError
from dglcell.metrics import WITHOUT_MESSAGES
from dglcell.report import UNDEFINED
from dglcell.report.comparison import comparison_tables, differences, find_runs, format_runs, summary, warnings_of
from dglcell.report.run_files import RunFiles, read_run
from dglcell.runs import RunDirectory
from dglcell.training.evaluate import rows_as_json
from tests.html_page import Page

MakeRun = Callable[..., RunDirectory]


def read(*runs: RunDirectory) -> list[RunFiles]:
    """Without predictions."""
    return [read_run(run.path, parts=()) for run in runs]


def test_runs_of_an_experiment_are_averaged(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run("one", 0, 0.5), make_run("one", 1, 0.7), make_run("two", 0, 0.8, hidden=16)]
    output = tmp_path / "comparison.html"
    assert main(["report", *(str(run.path) for run in runs), "-o", str(output)]) == 0
    page = Page(output)
    page.check_alone()
    header, *lines = page.tables[0]
    assert header[:7] == ["phenotype", "part", "experiment", "model", "runs", "n", "Pearson"]
    test = {line[2]: line for line in lines[: len(lines) // 2]}
    assert test["one"][4] == "2"
    sd = float(np.std([0.5, 0.7], ddof=1))
    assert test["one"][6] == f"0.600 ± {sd:#.2g}"
    assert test["two"][6].startswith("0.800")
    assert "±" not in test["two"][6]
    assert test["training mean"][4] == ""
    with open(output.with_suffix(".csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    names = [name for name, _ in itertools.groupby(row["name"] for row in rows)]
    assert len(names) == len({*names}), "rows of an experiment stand together"
    (row,) = (r for r in rows if (r["name"], r["part"], r["metric"]) == ("one", "test", "pearson"))
    assert (float(row["mean"]), float(row["sd"]), row["runs"]) == (pytest.approx(0.6), pytest.approx(sd), "2")
    (row,) = (r for r in rows if (r["name"], r["part"], r["metric"]) == ("two", "test", "pearson"))
    assert (row["sd"], row["kind"]) == ("", "experiment")
    assert ["model.hidden", "8", "16"] in next(table for table in page.tables if table[0][0] == "key")


def test_the_best_mean_of_each_block_is_marked(make_run: MakeRun) -> None:
    found = summary(read(make_run("one", 0, 1.0), make_run("one", 1, 1.0002), make_run("two", 0, 1.00005)))
    (table,) = comparison_tables(found)
    column = table.columns.index("Pearson") - table.texts
    best = [line.labels[2] for line in table.rows if line.cells[column][1]]
    assert best == ["one", "one"]  # on test and on validation
    assert not any(line.cells[0][1] or line.cells[1][1] for line in table.rows)  # neither runs nor strains


def test_numbers_end_in_no_point_and_what_is_undefined_in_one_run_is_undefined(make_run: MakeRun) -> None:
    found = summary(read(make_run("one", 0, -999.0), make_run("one", 1, -1037.0)))
    (table,) = comparison_tables(found)
    assert table.rows[0].cells[table.columns.index("MSE") - table.texts] == ("1019 ± 27", False)
    found = summary(read(make_run("two", 0, 0.5), make_run("two", 1, None))).query("name == 'two' & part == 'test'")
    assert found.set_index("metric")["mean"][["pearson", "mae"]].isna().tolist() == [True, False]


def test_baselines_are_listed_once_for_each_split(make_run: MakeRun) -> None:
    one, two = make_run("one", 0, 0.5), make_run("two", 0, 0.5)
    names = summary(read(one, two)).name.unique().tolist()
    assert names[:4] == ["one", "one, with a baseline", "two", "two, with a baseline"]
    assert "training mean" in names
    other = make_run("three", 0, 0.5, {"split": "f" * 64})
    found = summary(read(one, other, make_run("three", 1, 0.5)))
    names = found.name.unique().tolist()
    assert sum(name.startswith("training mean, split ") for name in names) == 2
    assert "training mean, split ffffffff" in names
    assert warnings_of(read(one, two)) == []
    assert warnings_of(read(one, other)) == [
        "The runs use 2 different splits. They were therefore not tested on the same strains."
    ]


def test_baselines_of_two_cell_graphs_are_two(make_run: MakeRun) -> None:
    found = summary(read(make_run("one", 0, 0.5), make_run("two", 0, 0.5, {"cell": "f" * 64})))
    names = found[found["kind"] == "baseline"].name.unique().tolist()
    assert "training mean, cell ffffffff" in names
    assert sum(name.startswith("training mean, cell ") for name in names) == 2


def test_an_ablation_is_averaged_over_the_runs_of_its_experiment_alone(make_run: MakeRun) -> None:
    runs = read(*(make_run(*of, 0.5) for of in (("one", 0), ("one", 1), ("two", 0))))
    for i, (run, pearson) in enumerate(zip(runs, (0.1, 0.3, 0.7), strict=True)):
        rows = [replace(row, model=WITHOUT_MESSAGES, is_baseline=True) for row in run.rows if row.is_network]
        rows = [*run.rows, *(row.with_metrics({"pearson": pearson}) for row in rows)]
        runs[i] = replace(run, results=run.results | {"rows": rows_as_json(rows)})
    found = summary(runs).query("model == @WITHOUT_MESSAGES & part == 'test' & metric == 'pearson'")
    assert found[["kind", "name", "runs"]].to_numpy().tolist() == [
        ["experiment", "one, without messages", 2],
        ["experiment", "two, without messages", 1],
    ]
    assert found["mean"].tolist() == pytest.approx([0.2, 0.7])


def test_runs_of_one_experiment_that_differ_in_more_than_their_seed_are_named(make_run: MakeRun) -> None:
    runs = read(make_run("one", 0, 0.5), make_run("one", 1, 0.5, hidden=16, features={"gene": "x.csv"}))
    assert warnings_of(runs) == ["Runs of one differ in more than their seed: model.hidden, model.features.gene."]
    rows = {row[0]: row[1:] for row in differences(runs).rows}
    assert rows["model.hidden"] == ["8 | 16"]
    assert rows["model.features.gene"] == [f"{UNDEFINED} | x.csv"]
    assert "seed" not in rows


def test_a_run_given_twice_is_refused(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run("one", 0, 0.5)
    assert main(["report", str(run.path), f"{run.path}/../seed-0"]) == 2
    assert "a run is given twice" in capsys.readouterr().err


@pytest.fixture
def folder(tiny_run: RunDirectory, tmp_path: Path) -> Path:
    """A finished run, one that was stopped after its first epoch, and one with a damaged configuration."""
    for seed in (0, 2, 10):
        shutil.copytree(tiny_run.path, tmp_path / "runs" / "tiny" / f"seed-{seed}")
    stopped, damaged = (RunDirectory(tmp_path / "runs" / "tiny" / f"seed-{seed}") for seed in (2, 10))
    stopped.results.unlink()
    stopped.metrics.write_text(stopped.metrics.read_text().splitlines()[0] + "\n")
    damaged.config.write_text("")
    return tmp_path / "runs"


def test_states_and_scores(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = find_runs(folder)
    states = [(run.state, run.epochs, run.planned) for run in runs]
    assert states == [("finished", 2, 2), ("stopped", 1, 2), ("damaged", 0, 0)]
    header, parent, first, *_, second, third = format_runs(runs).splitlines()
    assert header.split()[:3] == ["run", "state", "epoch"]
    assert parent == str(folder / "tiny")
    assert first.split()[:3] == ["seed-0", "finished", "2/2"]
    assert first.split()[4:6] == ["fitness", "r"]
    assert second.split() == ["seed-2", "stopped", "1/2"]
    assert third.split() == ["seed-10", "damaged", "0/?"]
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
    text = format_runs([replace(run, path=Path("runs/tiny") / ("x" * 90), files=files)])
    assert " ".join(text.split()).endswith("mean of the best two"), "words stay whole where there is no room at all"


def test_nothing_to_show(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"folder '.*nowhere' not found"):
        find_runs(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"there is no run in '.*'\n  do:       train first"):
        find_runs(tmp_path)
