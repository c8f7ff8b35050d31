"""Predictions in a folder of parts: continued where they stopped, by one process or several."""

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

from dglcell.errors import DataError
from dglcell.prediction import predict as module
from dglcell.prediction.design import Design
from dglcell.prediction.predict import predict_design
from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import Trained, load_trained
from tests.forked import Forked
from tests.prediction.conftest import Predict
from tests.tiny import process_environment

RECORD = "_predictions.json"
DESIGN = Design.of(range(9), 2)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten strains a part, so that the design of 36 pairs has four."""
    monkeypatch.setattr(module, "PART_STRAINS", 10)


def parts_of(trained: Trained, out: Path, design: Design = DESIGN, stop_after: int = sys.maxsize) -> list[str]:
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


def test_a_folder_is_a_table_for_others(predict: Predict, trained: Trained) -> None:
    Path("genes.txt").write_text("\n".join(trained.cell.genes.names[:9]))
    for _ in range(2):
        predict("--all-pairs", "--genes", "genes.txt", "--with", "network", "--batch-size", "5", "-o", "out")
    assert sorted(os.listdir("out")) == [RECORD, *(f"part-0000{n}.parquet" for n in range(4))]
    assert parts_of(trained, Path("out.parquet")) == lines(10, 20, 30, 36)
    folder, file = map(pd.read_parquet, ("out", "out.parquet"))
    texts = {"gene_1": str, "gene_2": str}
    assert folder.astype(texts).equals(file.astype(texts))


def test_what_is_missing_is_predicted(trained: Trained, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert parts_of(trained, out) == lines(10, 20, 30, 36)
    whole = pq.read_table(out)
    (out / "part-00001.parquet").unlink()
    assert parts_of(trained, out) == [f"continuing after 26 of 36 strains in {out}", *lines(36)]
    assert pq.read_table(out).equals(whole)
    assert parts_of(trained, out) == [f"{out} is complete already"]


def test_a_file_that_is_interrupted_is_not_there(trained: Trained, tmp_path: Path) -> None:
    parts_of(trained, tmp_path / "out.parquet", stop_after=3)
    assert os.listdir(tmp_path) == []


def test_parts_that_do_not_belong_together_are_refused(
    tiny_run: RunDirectory, trained: Trained, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match=f"is in the way: it holds no {RECORD}\n.*choose another output"):
        parts_of(trained, out)
    assert os.listdir(out) == ["thesis.tex"]
    (out / "thesis.tex").unlink()
    parts_of(trained, out, stop_after=3)
    run = RunDirectory(shutil.copytree(tiny_run.path, tmp_path / "run"))
    with open(run.checkpoint("best_loss"), "ab") as file:
        file.write(b"\0")
    other = Design.of(range(1, 10), 2)
    sha256 = [design.describe()["design_sha256"][:12] for design in (other, DESIGN)]
    record, part = out / RECORD, out / "part-00001.parquet"
    written = record.read_text()

    def refused(message: str, member: Trained = trained, design: Design = DESIGN) -> None:
        with pytest.raises(DataError) as error:
            parts_of(member, out, design)
        assert message in str(error.value)

    refused(
        f"'{out}' holds parts of other predictions: design_sha256 differ\n"
        f"  got:      design_sha256 {sha256[0]}\n  expected: design_sha256 {sha256[1]}\n"
        "  do:       remove the folder to begin anew",
        design=other,
    )
    refused("stop differ\n", design=Design.of(range(9), 2, 0, 35))
    refused("other predictions: checkpoint_sha256 differ\n", load_trained(run))
    for torn, differ in (("{", "checkpoint_sha256, cell"), (written.replace('part": 10', 'part": -1'), "rows_of")):
        record.write_text(torn)
        refused(f"other predictions: {differ}")
    record.write_text(written)
    os.truncate(part, 100)
    refused(f"'{part}' is damaged\n  got:      Parquet magic bytes not found")
    part.unlink()
    assert parts_of(trained, out)[1:] == lines(30, 36)
    assert len(pq.read_table(out)) == 36


# Several processes.


@pytest.fixture
def triples(predict: Predict) -> list[str]:
    """Return the options for 20 triples of six genes, which one process has written to ``one.parquet``."""
    Path("genes.txt").write_text("\n".join(["b0008", "b0114", "b0116", "b0118", "b0351", "b2464"]))
    words = ["--all-triples", "--genes", "genes.txt", "--batch-size", "3", "--threads", "1"]
    predict(*words, "-o", "one.parquet")
    return [*words, "-o"]


def check_same() -> None:
    """Check that the parts of several processes are what one has written."""
    found, expected = map(pq.read_table, ("out", "one.parquet"))
    assert found.drop(["predicted_fitness"]).to_pylist() == expected.drop(["predicted_fitness"]).to_pylist()
    values = [table["predicted_fitness"].to_numpy() for table in (found, expected)]
    np.testing.assert_allclose(*values, rtol=1e-4)


def test_processes_in_turn_write_what_one_does_and_fewer_go_on(
    predict: Predict, triples: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_rank(rank: int, size: int, *words: str, status: int = 0) -> str:
        for name, value in (("RANK", rank), ("WORLD_SIZE", size)):
            monkeypatch.setenv(name, str(value))
        return predict(*words, status=status)

    for rank in (2, 0, 0):  # the last one is started again, and has nothing left to do
        assert f"process {rank + 1} of 3: its share is finished" in as_rank(rank, 3, *triples, "out")
    said = as_rank(0, 1, *triples, "out")
    assert "continuing after 14 of 20 strains in out" in said
    assert "20 predictions written to out" in said
    check_same()
    for other in (["in.csv"], [*triples, "two.parquet"]):
        refused = as_rank(0, 2, *other, status=2)
        assert "several processes share no table or file, but a folder of parts\n" in refused


def test_two_processes_at_once(predict: Predict, triples: list[str]) -> None:
    words = ["predict", str(predict.run), *triples, "out"]
    environments = [process_environment(SLURM_PROCID=str(rank), SLURM_STEP_NUM_TASKS="2") for rank in range(2)]
    processes = [Forked(words, environment, Path.cwd()) for environment in environments]
    said = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    check_same()
