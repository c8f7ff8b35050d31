"""Two processes train one model: one run directory, one report, every strain once in evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dglcell.runs.directory import RunDirectory
from tests.tiny import BARE, Tiny, dglcell, history

DDP = ("trainer.devices=2", "trainer.accelerator=cpu", "trainer.strategy=ddp")


@pytest.mark.slow
def test_two_processes_make_one_run(tiny: Tiny, tmp_path: Path) -> None:
    # 41 validation strains in batches of 10: three batches of rank 0 would meet two of rank 1 if they were cut naively.
    options = [*BARE, *DDP, "split.subset.size=205", "split.fractions=[0.6,0.2,0.2]", "data.eval_batch_size=20"]
    done = dglcell("train", tiny.file, *tiny.overrides(tmp_path, *options), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [p.name for p in (tmp_path / "tiny").iterdir()] == ["seed-0"]
    run = tmp_path / "tiny" / "seed-0"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1]
    assert [row["validation/fitness/n"] for row in rows] == [41, 41]
    # 123 training strains: both ranks take as many steps, and none counts twice.
    assert [row["train/fitness/n"] for row in rows] == [123, 123]
    assert [row["step"] for row in rows] == [1, 2]
    table = {(r["model"], r["part"]): r["metrics"] for r in json.loads((run / "results.json").read_text())["rows"]}
    assert table["hetero_cell", "validation"]["n"] == 41
    assert table["hetero_cell", "test"]["n"] == 41
    assert done.stdout.count("hetero_cell") == 2
    assert done.stdout.count("epoch    1/2") == 1
    assert done.stderr.count("training from scratch") == 1
    assert "Warning" not in done.stderr
    assert "sync_dist" not in done.stderr


@pytest.mark.slow
def test_two_processes_continue_a_run(tiny: Tiny, tmp_path: Path) -> None:
    options = [*BARE, *DDP]
    whole = dglcell("train", tiny.file, *tiny.overrides(tmp_path / "whole", *options, "trainer.epochs=3"), cwd=tmp_path)
    parts = dglcell("train", tiny.file, *tiny.overrides(tmp_path / "parts", *options), cwd=tmp_path)
    assert (whole.returncode, parts.returncode) == (0, 0), whole.stderr + parts.stderr
    more = dglcell("train", tiny.file, *tiny.overrides(tmp_path / "parts", *options, "trainer.epochs=3"), cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    assert more.stderr.count("continuing from") == 1
    directories = [RunDirectory(tmp_path / name / "tiny" / "seed-0") for name in ("whole", "parts")]
    assert history(directories[0]) == history(directories[1])


@pytest.mark.slow
def test_a_mistake_in_both_processes_ends_both(tiny: Tiny, tmp_path: Path) -> None:
    options = [*BARE, *DDP, "optimizer.name=SGD", "optimizer.lr=1e30", "trainer.gradient_clip_val=null"]
    done = dglcell("train", tiny.file, *tiny.overrides(tmp_path, *options), cwd=tmp_path)
    assert done.returncode == 2
    assert "error: the training loss is not finite" in done.stderr
    assert "Traceback" not in done.stderr
