"""What a finished run says."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from dglcell.training.checkpoint import load_trained
from dglcell.training.directory import RunDirectory
from dglcell.training.prepare import prepare_run
from dglcell.training.report import report, subtitle
from tests.tiny import Tiny


def test_the_picture_says_what_was_trained_on_what(tiny_run: RunDirectory) -> None:
    trained = load_trained(tiny_run)
    prepared = prepare_run(trained.config, tiny_run, "tests", continued=True)
    first, second = subtitle(trained.config, tiny_run, prepared, trained)
    edges = prepared.cell.graph.num_edges()
    assert first == f"strains: 240 train, 30 validation, 30 test (random split) · cell: 137 genes, {edges:,} edges"
    assert " parameters · hetero_cell, node_mask · seed 0 · 2 epochs in " in second


def test_the_numbers_behind_the_picture_are_those_of_the_table(tiny_run: RunDirectory) -> None:
    table = json.loads(tiny_run.results.read_text())
    drawn = list(csv.DictReader(tiny_run.report.with_suffix(".csv").open()))
    for row in table["rows"]:
        (found,) = (
            line for line in drawn if (line["panel"], line["series"], line["x"]) == ("mse", row["model"], row["part"])
        )
        assert float(found["value"]) == pytest.approx(row["metrics"]["mse"])
    epochs = {line["x"] for line in drawn if line["panel"] == "learning"}
    assert epochs == {"1", "2"}


def test_a_report_without_picture_and_null_models_has_the_model_alone(tiny: Tiny, tmp_path: Path) -> None:
    result = tiny.train(tmp_path, "trainer.epochs=1")
    assert {row.model for row in result.rows} == {"hetero_cell"}
    assert not result.directory.report.exists()
    config = tiny.config(tmp_path, "trainer.epochs=1", "plot=false", "trainer.evaluate=last")
    again = report(config, result.directory, prepare_run(config, result.directory, "tests", continued=True))
    assert {row.model for row in again} > {"hetero_cell", "training mean"}
    assert json.loads(result.directory.results.read_text())["checkpoint"] == "last.ckpt"
