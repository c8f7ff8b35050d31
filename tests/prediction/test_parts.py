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


def test_a_folder_is_a_table_for_others(tiny_run: RunDirectory, trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "genes.txt").write_text("\n".join(trained.cell.genes.names[:9]))
    command = ["predict", str(tiny_run.path), "--all-pairs", "--genes", str(tmp_path / "genes.txt")]
    for _ in range(2):
        assert main([*command, "--with", "network", "--batch-size", "5", "-o", str(tmp_path / "out")]) == 0
    assert sorted(os.listdir(tmp_path / "out")) == [RECORD, *(f"part-0000{n}.parquet" for n in range(4))]
    predict(trained, tmp_path / "out.parquet")
    folder, file = (
        pd.read_parquet(tmp_path / name).astype({"gene_1": str, "gene_2": str}) for name in ("out", "out.parquet")
    )
    assert folder.equals(file)


def test_what_is_missing_is_predicted(trained: Trained, tmp_path: Path) -> None:
    assert predict(trained, tmp_path / "out") == lines(10, 20, 30, 36)
    whole = pq.read_table(tmp_path / "out")
    (tmp_path / "out" / "part-00001.parquet").unlink()
    again = [f"continuing after 26 of 36 strains in {tmp_path / 'out'}", *lines(36)]
    assert predict(trained, tmp_path / "out") == again
    assert pq.read_table(tmp_path / "out").equals(whole)


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_what_is_there_already_stays(name: str, trained: Trained, tmp_path: Path) -> None:
    folder = parts_of(tmp_path / name)
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match=f"is in the way: it holds no {RECORD}\n.*choose another output"):
        predict(trained, tmp_path / name)
    assert os.listdir(folder) == ["thesis.tex"]


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

    def test_what_is_left_of_an_output_that_was_removed_is_not_used(self, trained: Trained, out: Path) -> None:
        parts_of(out).rename(out.with_name(f"{out.name}.parts.joined"))
        before = out.read_bytes()
        out.unlink()
        assert predict(trained, out) == lines(10, 20, 30, 36)
        assert out.read_bytes() == before
        assert os.listdir(out.parent) == [out.name]

    def test_another_output_is_refused(self, trained: Trained, out: Path) -> None:
        if out.suffix == ".csv":  # which has no record but that of its parts
            (parts_of(out) / "part-00003.parquet").unlink()
        with pytest.raises(
            DataError, match=r"exists already; nothing was written\n  do: +name another file, or replace"
        ):
            predict(trained, out, DESIGN if out.suffix == ".csv" else Design.of(range(8), 2))


@pytest.mark.parametrize("name", ["out.parquet", "out"])
def test_parts_that_do_not_belong_together_are_refused(
    name: str, tiny_run: RunDirectory, trained: Trained, tmp_path: Path
) -> None:
    out = tmp_path / name
    predict(trained, out, stop_after=3)
    run = RunDirectory(shutil.copytree(tiny_run.path, tmp_path / "run"))
    with open(run.checkpoint("best_loss"), "ab") as file:
        file.write(b"\0")
    other = Design.of(range(1, 10), 2)
    sha256 = [design.describe()["design_sha256"][:12] for design in (other, DESIGN)]
    record, part = parts_of(out) / RECORD, parts_of(out) / "part-00001.parquet"
    written = record.read_text()

    def refused(message: str, member: Trained = trained, design: Design = DESIGN) -> None:
        with pytest.raises(DataError) as error:
            predict(member, out, design)
        assert message in str(error.value)

    refused(
        f"'{parts_of(out)}' holds parts of other predictions: design_sha256 differ\n"
        f"  got:      design_sha256 {sha256[0]}\n  expected: design_sha256 {sha256[1]}\n"
        "  do:       remove the folder to begin anew",
        design=other,
    )
    refused("stop differ\n", design=Design.of(range(9), 2, 0, 35))
    refused("other predictions: checkpoint_sha256 differ\n", load_trained(run))
    for torn, differ in (
        ("{", "checkpoint_sha256, cell_sha256"),
        (written.replace('part": 10', 'part": -1'), "rows_of"),
    ):
        record.write_text(torn)
        refused(f"other predictions: {differ}")
    record.write_text(written)
    os.truncate(part, 100)
    refused(f"'{part}' is damaged\n  got:      Parquet magic bytes not found")
    part.unlink()
    assert predict(trained, out)[1:] == lines(30, 36)
    assert len(pq.read_table(out)) == 36


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
    assert main(["predict", str(tiny_run.path), str(files / "in.csv")]) == 2
    assert "several processes cannot print one table" in capsys.readouterr().err
    (files / "in.csv").write_text((files / "in.csv").read_text().replace("b0114", "b0728"))
    as_rank(monkeypatch, 1, 2)
    assert main(arguments("table", tiny_run, files, "out.csv")) == 2
    assert "out.csv.parts' holds parts of other predictions: table_sha256 differ" in capsys.readouterr().err
