"""Predictions of designs that are killed, or find no room: what is finished is kept, and what follows is the same."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dglcell.designs import Design
from dglcell.errors import DataError
from dglcell.predict import predict_design
from dglcell.run_directory import RunDirectory
from dglcell.training.checkpoint import load_trained
from tests.small_disk import small_disk
from tests.tiny import process_environment

SCRIPT = """
import sys
from pathlib import Path
from dglcell.designs import Design
from dglcell.predict import predict_design
from dglcell.training.checkpoint import load_trained
from dglcell.run_directory import RunDirectory

trained = load_trained(RunDirectory(Path(sys.argv[1])))
print("ready", flush=True)
predict_design(trained, Design.of(range(14), 3), Path(sys.argv[2]), batch_size=2, part_strains=10)
"""


def start(run: RunDirectory, out: Path) -> subprocess.Popen[str]:
    """Predict 364 strains in parts of ten, in a process of its own; returns when its model is loaded."""
    command = [sys.executable, "-c", SCRIPT, str(run.path), str(out)]
    child = subprocess.Popen(
        command, env=process_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.mark.slow
def test_predictions_killed_again_and_again_end_as_if_they_had_not_been(tiny_run: RunDirectory, tmp_path: Path) -> None:
    out, moments, killed, finished = tmp_path / "out.parquet", random.Random(3), 0, 0
    for _ in range(12):
        child = start(tiny_run, out)
        try:
            child.wait(moments.uniform(0, 0.4))
        except subprocess.TimeoutExpired:
            child.kill()
            killed += 1
        _, said = child.communicate(timeout=300)
        if out.exists():
            break
        assert child.returncode < 0, said
        parts = list(out.with_name("out.parquet.parts").glob("part-*"))
        assert sum(pq.read_metadata(part).num_rows for part in parts) == 10 * len(parts)
        assert len(parts) >= finished
        finished = len(parts)
    assert killed
    trained, design = load_trained(tiny_run), Design.of(range(14), 3)
    if not out.exists():
        predict_design(trained, design, out, batch_size=2, part_strains=10, report=lambda text: None)
    predict_design(trained, design, tmp_path / "whole.parquet", batch_size=2, report=lambda text: None)
    assert pq.read_table(out).equals(pq.read_table(tmp_path / "whole.parquet"), check_metadata=True)
    assert sorted(os.listdir(tmp_path)) == ["out.parquet", "whole.parquet"]


def test_a_full_disk_stops_predictions_which_go_on_when_there_is_room(tiny_run: RunDirectory, tmp_path: Path) -> None:
    trained, design = load_trained(tiny_run), Design.of(range(14), 3)

    def predict(out: Path) -> None:
        predict_design(trained, design, out, batch_size=64, part_strains=64, report=lambda text: None)

    with small_disk(tmp_path / "disk", 40) as disk:
        out = disk / "out.parquet"
        ballast = disk / "ballast"
        ballast.write_bytes(b"\0" * 16_000)
        with pytest.raises(DataError) as error:
            predict(out)
        message = str(error.value)
        assert message.startswith("predictions cannot be written; the first ")
        assert message.endswith("do:       make room; the same command goes on from here")
        assert not out.exists()
        assert not [name for name in os.listdir(disk / "out.parquet.parts") if name.startswith(".")]
        ballast.unlink()
        subprocess.run(["mount", "-o", "remount,size=400k", str(disk)], check=True)
        predict(out)
        predict(tmp_path / "whole.parquet")
        assert pq.read_table(out).equals(pq.read_table(tmp_path / "whole.parquet"), check_metadata=True)
