"""Predictions of the model and of null models on the parts of a split."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from dglcell.baselines import AdditiveRidge, Strains
from dglcell.metrics import regression_metrics
from dglcell.run_directory import RunDirectory
from dglcell.training import evaluate
from dglcell.training.checkpoint import Trained, load_trained
from dglcell.training.evaluate import null_rows, predict_strains, write_predictions
from dglcell.training.prepare import Prepared, prepare_run


@pytest.fixture(scope="module")
def trained(tiny_run: RunDirectory) -> Trained:
    """The tiny model."""
    return load_trained(tiny_run)


@pytest.fixture(scope="module")
def prepared(tiny_run: RunDirectory, trained: Trained) -> Prepared:
    """What it was trained on."""
    return prepare_run(trained.config, tiny_run, "tests", continued=True)


def test_predictions_are_in_the_order_asked_for_whatever_the_batch(trained: Trained, prepared: Prepared) -> None:
    strains = prepared.parts["test"].flip(0)

    def predict(batch_size: int) -> np.ndarray:
        return predict_strains(trained.model, trained.normaliser, prepared.dataset, strains, batch_size=batch_size)

    expected = [
        predict_strains(trained.model, trained.normaliser, prepared.dataset, strains[i : i + 1], batch_size=1)
        for i in range(len(strains))
    ]
    assert predict(7).shape == (30, 1)
    assert len(np.unique(predict(7))) > 5
    np.testing.assert_allclose(predict(7), np.concatenate(expected), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(predict(100), predict(7), rtol=1e-4, atol=1e-5)


def test_null_models_see_the_training_part_and_nothing_else(prepared: Prepared) -> None:
    rows = {(row.model, row.part): row for row in null_rows(prepared, ("validation", "test"))}
    assert all(row.is_null for row in rows.values())
    dataset, parts = prepared.dataset, prepared.parts
    mean = float(dataset.labels[parts["train"]].double().mean())
    test = dataset.labels[parts["test"], 0].double()
    assert rows["training mean", "test"].metrics["mse"] == pytest.approx(float((test - mean).square().mean()))
    everything = Strains(dataset.genes.numpy(), dataset.offsets.numpy(), len(prepared.cell.genes))
    strains = {name: everything.take(numbers.numpy()) for name, numbers in parts.items()}
    labels = {name: dataset.labels[numbers, 0].numpy() for name, numbers in parts.items()}
    candidates = []
    for alpha in (0.1, 1.0, 10.0, 100.0, 1000.0):
        ridge = AdditiveRidge(alpha).fit(strains["train"], labels["train"])
        metrics = {p: regression_metrics(ridge.predict(strains[p]), labels[p]) for p in ("validation", "test")}
        candidates.append(metrics)
    chosen = min(candidates, key=lambda metrics: metrics["validation"]["mse"])
    assert rows["additive ridge", "test"].metrics == pytest.approx(chosen["test"])


def test_predictions_are_written_in_blocks_without_a_seam(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strains = torch.cat([prepared.parts["test"], prepared.parts["validation"]])
    predicted = np.linspace(-1, 1, len(strains), dtype=np.float32)[:, None]
    write_predictions(tmp_path / "whole.csv", prepared, strains, predicted)
    monkeypatch.setattr(evaluate, "WRITTEN_STRAINS", 7)
    write_predictions(tmp_path / "blocks.csv", prepared, strains, predicted)
    rows = list(csv.DictReader((tmp_path / "blocks.csv").open()))
    assert {row["genes"].count(";") for row in rows} == {0, 1}
    assert [float(row["predicted_fitness"]) for row in rows] == pytest.approx(predicted[:, 0].tolist(), rel=1e-5)
    assert (tmp_path / "blocks.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_written_predictions_name_genes_and_leave_missing_labels_empty(prepared: Prepared, tmp_path: Path) -> None:
    strains = prepared.parts["validation"][:3]
    labels = prepared.dataset.labels.clone()
    prepared.dataset.labels[strains[1]] = torch.nan
    try:
        write_predictions(tmp_path / "x.csv", prepared, strains, np.array([[1.5], [2.0], [-0.25]], np.float32))
    finally:
        prepared.dataset.labels.copy_(labels)
    rows = list(csv.DictReader((tmp_path / "x.csv").open()))
    assert [row["predicted_fitness"] for row in rows] == ["1.5", "2", "-0.25"]
    assert rows[1]["measured_fitness"] == ""
    assert float(rows[0]["measured_fitness"]) == pytest.approx(float(labels[strains[0], 0]), rel=1e-5)
    offsets, names = prepared.dataset.offsets, prepared.cell.genes.names
    genes = prepared.dataset.genes[offsets[strains[2]] : offsets[strains[2] + 1]]
    assert rows[2]["genes"] == ";".join(names[g] for g in genes.tolist())
