"""Predictions in parts: continued where they stopped, by one process or several, joined into the file of one."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dglcell.cli import main
from dglcell.errors import DataError
from dglcell.prediction import predict as module
from dglcell.prediction.design import Design
from dglcell.prediction.predict import predict_design
from dglcell.prediction.table import RECORD
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import Trained, load_trained
from tests.forked import Forked
from tests.tiny import process_environment

STRAINS = [("b0008", "b2464"), ("b0118", "b0351"), ("b0114", "b0116"), ("b0008", "b0118"), ("b0351", "b2464")]
DESIGN = Design.of(range(9), 2)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten strains a part, so that the design of 36 pairs has four."""
    monkeypatch.setattr(module, "PART_STRAINS", 10)


def predict(trained: Trained, out: Path, design: Design = DESIGN, stop_after: int = sys.maxsize) -> list[str]:
    """Return what is told of an output, at most so many lines of it: then the prediction is interrupted."""
    told: list[str] = []

    def report(line: str) -> None:
        told.append(line.split(",")[0])
        if len(told) == stop_after:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        predict_design([trained], design, out, batch_size=5, report=report)
    return told


def lines(*done: int) -> list[str]:
    """Return what is told of parts."""
    return [f"{number} of 36 strains" for number in done]


def parts_of(out: Path) -> Path:
    """Return the folder of its parts."""
    return out.with_name(f"{out.name}.parts") if out.suffix else out


class TestFolder:
    """An output without a suffix."""

    def test_it_is_a_table_for_others(self, tiny_run: RunDirectory, trained: Trained, tmp_path: Path) -> None:
        (tmp_path / "genes.txt").write_text("\n".join(trained.cell.genes.names[:9]))
        command = ["predict", str(tiny_run.path), "--all-pairs", "--genes", str(tmp_path / "genes.txt")]
        command += ["--with", "network"]
        for _ in range(2):
            assert main([*command, "--batch-size", "5", "-o", str(tmp_path / "out")]) == 0
        assert sorted(os.listdir(tmp_path / "out")) == [RECORD, *(f"part-0000{n}.parquet" for n in range(4))]
        predict(trained, tmp_path / "out.parquet")
        assert (
            pd.read_parquet(tmp_path / "out")
            .astype({"gene_1": str, "gene_2": str})
            .equals(pd.read_parquet(tmp_path / "out.parquet").astype({"gene_1": str, "gene_2": str}))
        )

    def test_what_is_missing_is_predicted(self, trained: Trained, tmp_path: Path) -> None:
        assert predict(trained, tmp_path / "out") == lines(10, 20, 30, 36)
        whole = pq.read_table(tmp_path / "out")
        (tmp_path / "out" / "part-00001.parquet").unlink()
        assert predict(trained, tmp_path / "out") == [
            "continuing after 26 of 36 strains in " + str(tmp_path / "out"),
            *lines(36),
        ]
        assert pq.read_table(tmp_path / "out").equals(whole)

    def test_what_is_there_already_stays(self, trained: Trained, tmp_path: Path) -> None:
        for out in (tmp_path / "out", tmp_path / "out.parquet"):
            parts_of(out).mkdir()
            (parts_of(out) / "thesis.tex").write_text("years of work")
            with pytest.raises(DataError, match=f"is in the way: it holds no {RECORD}\n.*choose another output"):
                predict(trained, out)
            assert os.listdir(parts_of(out)) == ["thesis.tex"]


class TestComplete:
    """The same command again, after the output has got its name."""

    @pytest.fixture(params=["out.parquet", "out.csv"])
    def out(self, request: pytest.FixtureRequest, trained: Trained, tmp_path: Path) -> Path:
        """Return an output whose parts have not been removed."""
        out = tmp_path / str(request.param)
        predict(trained, out, stop_after=4)
        shutil.copytree(parts_of(out), tmp_path / "kept")
        predict(trained, out)
        (tmp_path / "kept").rename(parts_of(out))
        return out

    @pytest.mark.parametrize("renamed", [False, True])
    def test_its_parts_are_removed(self, trained: Trained, out: Path, renamed: bool) -> None:
        if renamed:  # and partly removed
            (parts_of(out) / "part-00001.parquet").unlink()
            (parts_of(out) / RECORD).unlink()
            parts_of(out).rename(out.with_name(f"{out.name}.parts.joined"))
        before = out.read_bytes()
        assert predict(trained, out) == [f"{out} is complete already"]
        assert out.read_bytes() == before
        assert os.listdir(out.parent) == [out.name]

    @pytest.mark.parametrize("out", ["out.csv"], indirect=True)
    def test_a_csv_beside_parts_that_are_not_finished_is_another_one(self, trained: Trained, out: Path) -> None:
        (parts_of(out) / "part-00003.parquet").unlink()
        with pytest.raises(
            DataError, match=r"out\.csv' exists already; nothing was written\n  do: +name another file, or replace"
        ):
            predict(trained, out)

    def test_what_is_left_of_an_output_that_was_removed_is_not_used(self, trained: Trained, out: Path) -> None:
        parts_of(out).rename(out.with_name(f"{out.name}.parts.joined"))
        before = out.read_bytes()
        out.unlink()
        assert predict(trained, out) == lines(10, 20, 30, 36)
        assert out.read_bytes() == before
        assert os.listdir(out.parent) == [out.name]

    def test_another_design_is_refused(self, trained: Trained, tmp_path: Path) -> None:
        predict(trained, tmp_path / "out.parquet")
        with pytest.raises(DataError, match=r"out\.parquet' exists already"):
            predict(trained, tmp_path / "out.parquet", Design.of(range(8), 2))


class TestRefusals:
    """A folder of parts that do not belong together."""

    @pytest.fixture(params=["out.parquet", "out"])
    def out(self, request: pytest.FixtureRequest, trained: Trained, tmp_path: Path) -> Path:
        """Return an output of which three parts of 10 rows are finished."""
        predict(trained, tmp_path / str(request.param), stop_after=3)
        return tmp_path / str(request.param)

    def refusal(self, trained: Trained, out: Path, design: Design = DESIGN) -> str:
        with pytest.raises(DataError) as error:
            predict(trained, out, design)
        return str(error.value)

    def test_another_design(self, trained: Trained, out: Path) -> None:
        other = Design.of(range(1, 10), 2)
        message = self.refusal(trained, out, other)
        assert message.startswith(
            f"'{parts_of(out)}' holds parts of other predictions: design_sha256 differ\n"
            f"  got:      design_sha256 {other.describe()['design_sha256'][:12]}\n"
            f"  expected: design_sha256 {DESIGN.describe()['design_sha256'][:12]}\n"
            "  do:       go on with what they were begun with, remove the folder to begin anew"
        )
        assert "stop differ\n" in self.refusal(trained, out, Design.of(range(9), 2, 0, 35))

    def test_another_checkpoint(self, tiny_run: RunDirectory, out: Path, tmp_path: Path) -> None:
        run = RunDirectory(tmp_path / "run")
        shutil.copytree(tiny_run.path, run.path)
        with open(run.checkpoint("best_loss"), "ab") as file:
            file.write(b"\0")
        assert "holds parts of other predictions: checkpoint_sha256 differ\n" in self.refusal(load_trained(run), out)

    def test_a_damaged_part(self, trained: Trained, out: Path) -> None:
        part = parts_of(out) / "part-00001.parquet"
        os.truncate(part, 100)
        message = self.refusal(trained, out)
        assert message.startswith(f"'{part}' is damaged\n  got:      Parquet magic bytes not found")
        assert message.endswith("do:       remove it; the same command predicts it again")
        part.unlink()
        assert predict(trained, out)[1:] == lines(30, 36)
        assert len(pq.read_table(out)) == 36

    @pytest.mark.parametrize(("text", "differ"), [("{", "checkpoint_sha256, cell_sha256"), (None, "rows_of_a_part")])
    def test_a_torn_record(self, trained: Trained, out: Path, text: str | None, differ: str) -> None:
        record = parts_of(out) / RECORD
        record.write_text(text or record.read_text().replace('part": 10', 'part": -1'))
        assert f"other predictions: {differ}" in self.refusal(trained, out)


# Several processes.


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with a table and a list of genes."""
    (tmp_path / "in.csv").write_text("\n".join(["genes", *map(";".join, STRAINS)]) + "\n")
    (tmp_path / "genes.txt").write_text("\n".join(sorted({gene for strain in STRAINS for gene in strain})))
    return tmp_path


def arguments(kind: str, run: RunDirectory, folder: Path, output: str) -> list[str]:
    """Of `dglcell`."""
    what = [str(folder / "in.csv")] if kind == "table" else ["--all-triples", "--genes", str(folder / "genes.txt")]
    what += ["--top", "4"] * (kind == "ranked")
    return ["predict", str(run.path), *what, "-o", str(folder / output), "--batch-size", "3", "--threads", "1"]


def as_rank(monkeypatch: pytest.MonkeyPatch, rank: int, size: int) -> None:
    for name, value in (("RANK", rank), ("WORLD_SIZE", size)):
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize(
    ("kind", "name"), [("table", "out.csv"), ("design", "out.parquet"), ("ranked", "out.parquet"), ("design", "out")]
)
def test_processes_in_turn_write_what_one_does(
    kind: str,
    name: str,
    tiny_run: RunDirectory,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, out = files / f"one{Path(name).suffix}", files / name
    assert main(arguments(kind, tiny_run, files, one.name)) == 0
    for rank in (2, 0):
        as_rank(monkeypatch, rank, 3)
        assert main(arguments(kind, tiny_run, files, name)) == 0
        assert not (out.suffix and out.exists())
        assert f"process {rank + 1} of 3: its share is finished" in capsys.readouterr().out
    as_rank(monkeypatch, 1, 3)
    assert main(arguments(kind, tiny_run, files, name)) == 0
    assert f"predictions written to {out}" in capsys.readouterr().out
    assert not list(files.glob("out.*.*"))
    if out.suffix == ".csv":
        assert [line.split(",")[0] for line in out.open()] == [line.split(",")[0] for line in one.open()]
        return
    found, expected = pq.read_table(out), pq.read_table(one)
    texts = [table.drop(["predicted_fitness"]).to_pylist() for table in (found, expected)]
    assert texts[0] == texts[1]
    values = [table["predicted_fitness"].to_numpy() for table in (found, expected)]
    np.testing.assert_allclose(*values, rtol=1e-5)
    if out.suffix:
        assert found.schema.metadata == expected.schema.metadata
        # A process that is started again finds that all is done.
        assert main(arguments(kind, tiny_run, files, name)) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[0].endswith(f"{out} is complete already")
        assert said[1].endswith(f"predictions written to {out}")


def test_two_processes_at_once(tiny_run: RunDirectory, files: Path) -> None:
    assert main(arguments("design", tiny_run, files, "one.csv")) == 0
    words = arguments("design", tiny_run, files, "out.csv")
    environments = [process_environment(SLURM_PROCID=str(rank), SLURM_STEP_NUM_TASKS="2") for rank in range(2)]
    processes = [Forked(words, environment, files) for environment in environments]
    said = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    rows = [[line.split(",") for line in (files / name).open()] for name in ("one.csv", "out.csv")]
    assert [row[:-1] for row in rows[0]] == [row[:-1] for row in rows[1]]
    values = [[float(row[-1]) for row in table[1:]] for table in rows]
    np.testing.assert_allclose(*values, rtol=1e-4)
    assert not list(files.glob("out.csv.*"))


def test_another_number_of_processes_goes_on(
    tiny_run: RunDirectory, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments("design", tiny_run, files, "one.csv")) == 0
    as_rank(monkeypatch, 0, 2)
    for _ in range(2):  # A process that is started again has nothing left to do.
        assert main(arguments("design", tiny_run, files, "out.csv")) == 0
        assert "process 1 of 2: its share is finished" in capsys.readouterr().out
    as_rank(monkeypatch, 0, 1)
    assert main(arguments("design", tiny_run, files, "out.csv")) == 0
    assert f"continuing after 10 of 20 strains in {files / 'out.csv.parts'}" in capsys.readouterr().out
    assert (files / "out.csv").read_text() == (files / "one.csv").read_text()


def test_parts_of_another_table_are_not_taken_for_those_of_this(
    tiny_run: RunDirectory, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_rank(monkeypatch, 0, 2)
    assert main(arguments("table", tiny_run, files, "out.csv")) == 0
    text = (files / "in.csv").read_text()
    (files / "in.csv").write_text(text.replace("b0114", "b0728"))
    as_rank(monkeypatch, 1, 2)
    assert main(arguments("table", tiny_run, files, "out.csv")) == 2
    assert "out.csv.parts' holds parts of other predictions: table_sha256 differ" in capsys.readouterr().err


def test_several_processes_cannot_print(
    tiny_run: RunDirectory, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_rank(monkeypatch, 0, 2)
    assert main(["predict", str(tiny_run.path), str(files / "in.csv")]) == 2
    assert "several processes cannot print one table" in capsys.readouterr().err
