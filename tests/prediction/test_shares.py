"""Which of several processes this is, and the files that they leave for one another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dglcell.cli import main
from dglcell.errors import ConfigError
from dglcell.machine.ranks import Ranks
from dglcell.runs.directory import RunDirectory
from tests.tiny import process_environment


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Ranks()),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, Ranks(3, 8, 1, 2)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "1"}, Ranks(1, 2, 1, 1)),
        # The script of a job is one process, however many tasks the job has.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, Ranks()),
    ],
)
def test_launchers_say_which_process_this_is(environment: dict[str, str], expected: Ranks) -> None:
    assert Ranks.of(environment) == expected


def test_what_launchers_cannot_mean_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"the variables RANK and WORLD_SIZE contradict each other\s+got: +RANK=2, WORLD_SIZE=2"
    ):
        Ranks.of({"RANK": "2", "WORLD_SIZE": "2"})
    with pytest.raises(ConfigError, match=r"the variable WORLD_SIZE is no number\s+got: +two"):
        Ranks.of({"RANK": "0", "WORLD_SIZE": "two"})


STRAINS = [("b0008", "b2464"), ("b0118", "b0351"), ("b0114", "b0116"), ("b0008", "b0118"), ("b0351", "b2464")]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a table and a list of genes."""
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


@pytest.mark.parametrize(("kind", "suffix"), [("table", "csv"), ("design", "parquet"), ("ranked", "parquet")])
def test_processes_in_turn_write_what_one_does(
    kind: str,
    suffix: str,
    tiny_run: RunDirectory,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(arguments(kind, tiny_run, files, f"one.{suffix}")) == 0
    for rank in (2, 0, 2):
        as_rank(monkeypatch, rank, 3)
        assert main(arguments(kind, tiny_run, files, f"out.{suffix}")) == 0
        assert not (files / f"out.{suffix}").exists()
        assert f"process {rank + 1} of 3: its share is finished" in capsys.readouterr().out
    assert len(list(files.glob("out.*.share-*-of-3.parquet"))) == 2
    as_rank(monkeypatch, 1, 3)
    assert main(arguments(kind, tiny_run, files, f"out.{suffix}")) == 0
    assert f"predictions written to {files / 'out'}.{suffix}" in capsys.readouterr().out
    assert not list(files.glob("out.*.*"))
    one, together = files / f"one.{suffix}", files / f"out.{suffix}"
    if suffix == "csv":
        assert [line.split(",")[0] for line in together.open()] == [line.split(",")[0] for line in one.open()]
        return
    found, expected = pq.read_table(together), pq.read_table(one)
    assert found.drop(["predicted_fitness"]).equals(expected.drop(["predicted_fitness"]))
    values = [table["predicted_fitness"].to_numpy() for table in (found, expected)]
    np.testing.assert_allclose(*values, rtol=1e-5)
    if kind != "table":
        assert found.schema.metadata == expected.schema.metadata
        # A process that is started again finds that all is done.
        assert main(arguments(kind, tiny_run, files, "out.parquet")) == 0
        assert "is complete already" in capsys.readouterr().out


def test_two_processes_at_once(tiny_run: RunDirectory, files: Path) -> None:
    assert main(arguments("design", tiny_run, files, "one.csv")) == 0
    command = [sys.executable, "-m", "dglcell", *arguments("design", tiny_run, files, "out.csv")]
    environments = [process_environment(SLURM_PROCID=str(rank), SLURM_STEP_NUM_TASKS="2") for rank in range(2)]
    processes = [subprocess.Popen(command, env=environment, cwd=files) for environment in environments]
    assert [process.wait() for process in processes] == [0, 0]
    rows = [[line.split(",") for line in (files / name).open()] for name in ("one.csv", "out.csv")]
    assert [row[:-1] for row in rows[0]] == [row[:-1] for row in rows[1]]
    values = [[float(row[-1]) for row in table[1:]] for table in rows]
    np.testing.assert_allclose(*values, rtol=1e-4)
    assert not list(files.glob("out.csv.*"))


def test_a_share_of_another_table_is_not_taken_for_one_of_this(
    tiny_run: RunDirectory, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank(monkeypatch, 0, 2)
    assert main(arguments("table", tiny_run, files, "out.csv")) == 0
    text = (files / "in.csv").read_text()
    (files / "in.csv").write_text(text.replace("b0114", "b0728"))
    as_rank(monkeypatch, 1, 2)
    assert main(arguments("table", tiny_run, files, "out.csv")) == 0
    assert not (files / "out.csv").exists()
    as_rank(monkeypatch, 0, 2)
    assert main(arguments("table", tiny_run, files, "out.csv")) == 0
    assert "b0728" in (files / "out.csv").read_text()


def test_another_number_of_processes_is_refused(
    tiny_run: RunDirectory, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_rank(monkeypatch, 0, 2)
    assert main(arguments("design", tiny_run, files, "out.csv")) == 0
    as_rank(monkeypatch, 1, 3)
    assert main(arguments("design", tiny_run, files, "out.csv")) == 2
    assert "out.csv.share-0-of-2.parquet' was begun by another number of processes" in capsys.readouterr().err


def test_several_processes_cannot_print(
    tiny_run: RunDirectory, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_rank(monkeypatch, 0, 2)
    assert main(["predict", str(tiny_run.path), str(files / "in.csv")]) == 2
    assert "several processes cannot print one table" in capsys.readouterr().err


def test_more_processes_than_strains_leave_some_without_work(
    tiny_run: RunDirectory, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in (6, *range(5)):
        as_rank(monkeypatch, rank, 7)
        assert main(arguments("table", tiny_run, files, "out.csv")) == 0
    assert len((files / "out.csv").read_text().splitlines()) == len(STRAINS) + 1
