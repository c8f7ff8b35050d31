"""What a finished run says."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from dglcell.report.run_files import read_run
from dglcell.run_directory import RunDirectory
from dglcell.training.checkpoint import load_trained
from dglcell.training.evaluate import predict_and_embed, predict_strains, report, write_embedding
from dglcell.training.prepare import prepare_run
from tests.tiny import Tiny


def test_the_report_says_what_was_trained_on_what(tiny_run: RunDirectory) -> None:
    prepared = prepare_run(load_trained(tiny_run).config, tiny_run, "tests", continued=True)
    files = read_run(tiny_run.path)
    edges = prepared.cell.num_edges
    sizes = "strains: 240 train, 30 validation, 30 test (random split)"
    assert files.size_line == f"{sizes} · cell: 137 genes, {edges:,} edges"
    assert " parameters · hetero_cell, node_mask · seed 0 · 2 epochs in " in files.training_line


def test_the_chosen_embeddings_are_those_of_their_strains(tiny_run: RunDirectory, tmp_path: Path) -> None:
    trained = load_trained(tiny_run)
    prepared = prepare_run(trained.config, tiny_run, "tests", continued=True)
    strains, dataset = prepared.parts["test"], prepared.dataset
    predicted, vectors = predict_and_embed(trained.model, trained.normaliser, dataset, strains, batch_size=7)
    assert vectors is not None
    alone = predict_strains(trained.model, trained.normaliser, dataset, strains, batch_size=7)
    np.testing.assert_array_equal(predicted, alone)
    kept = read_run(tiny_run.path).embedding
    assert kept is not None
    np.testing.assert_allclose(kept.vectors, vectors, rtol=1e-3, atol=1e-4)
    write_embedding(tmp_path / "some.npz", vectors, 5, 0)
    with np.load(tmp_path / "some.npz") as archive:
        np.testing.assert_array_equal(archive["vectors"], vectors[archive["strains"]])
        assert len(archive["strains"]) == 5
    write_embedding(tmp_path / "some.npz", None, 5, 0)
    assert not (tmp_path / "some.npz").exists()


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
    config = tiny.config(tmp_path, "trainer.epochs=1", "plot=false", "trainer.checkpoint=last")
    again = report(config, result.directory, prepare_run(config, result.directory, "tests", continued=True))
    assert {row.model for row in again} > {"hetero_cell", "training mean"}
    assert json.loads(result.directory.results.read_text())["checkpoint"] == "last.ckpt"
