"""The record of a run: one JSON line an epoch."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from dglcell.run_directory import EpochLog

FIGURES = {"train/loss": 1.0, "validation/loss": 0.5, "validation/pearson": 0.25, "seconds": 1.25}


@pytest.fixture
def log(tmp_path: Path) -> EpochLog:
    """An empty record."""
    return EpochLog(tmp_path / "metrics.jsonl", 10)


def test_epochs_are_appended_and_said(log: EpochLog) -> None:
    line = log.write(0, 4, FIGURES)
    assert line == "epoch    1/10  train loss 1.0000  validation loss 0.5000  r 0.2500  1.2 s  *"
    assert log.write(1, 8, {**FIGURES, "validation/loss": 0.6}).endswith("1.2 s")
    assert log.write(2, 12, {**FIGURES, "validation/loss": 0.4}).endswith("1.2 s  *")
    assert [(row["epoch"], row["step"], row["validation/loss"]) for row in log.read()] == [
        (0, 4, 0.5),
        (1, 8, 0.6),
        (2, 12, 0.4),
    ]


def test_classes_are_said_by_their_average_precision(log: EpochLog) -> None:
    line = log.write(0, 4, {**FIGURES, "validation/average_precision": 0.125})
    assert line == "epoch    1/10  train loss 1.0000  validation loss 0.5000  AP 0.1250  1.2 s  *"


def test_what_is_not_finite_becomes_null(log: EpochLog) -> None:
    log.write(0, 1, {**FIGURES, "validation/pearson": math.nan, "validation/loss": math.inf})
    row = json.loads(log.path.read_text())
    assert row["validation/pearson"] is None
    assert row["validation/loss"] is None
    assert log.write(1, 2, FIGURES).endswith("*")


def test_a_resumed_run_rewrites_its_later_epochs_and_torn_lines(log: EpochLog) -> None:
    log.rewind(0)
    assert not log.path.exists()
    for epoch in range(5):
        log.write(epoch, epoch, FIGURES)
    with log.path.open("a") as file:
        file.write('{"epoch": 5, "st')
    assert len(log.read()) == 5
    log.rewind(3)
    assert [json.loads(line)["epoch"] for line in log.path.read_text().splitlines()] == [0, 1, 2]
    log.rewind(0)
    assert log.path.read_text() == ""
    assert [p.name for p in log.path.parent.iterdir()] == ["metrics.jsonl"]
