"""Phenotypes of 0 and 1 from training to table, and the units in which models learn."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dglcell.data.store import Store
from dglcell.data.store_build import build_store
from dglcell.errors import ConfigError
from dglcell.metrics import best_threshold, classification_metrics, f1, format_results_table, regression_metrics
from dglcell.run_directory import RunDirectory
from dglcell.training.checkpoint import load_trained, read_checkpoint
from dglcell.training.evaluate import evaluate_run, rows_of
from dglcell.training.prepare import prepare_run
from tests.tiny import Tiny, history


@pytest.fixture(scope="module")
def screen(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Fitness, and whether it is impaired, with a tenth of these labels missing."""
    folder = tmp_path_factory.mktemp("classes")
    table = Store(tiny.store).read()
    fitness = table.phenotypes["fitness"]
    sick = (fitness < 0.97).astype(np.float32)
    assert 0.1 < sick.mean() < 0.9
    sick[np.random.default_rng(0).random(len(sick)) < 0.1] = np.nan
    both = dataclasses.replace(table, phenotypes={"sick": sick, "fitness": fitness}, units={})
    build_store(both, folder / "store", command="tests")
    return Tiny(tiny.file, folder / "store")


OPTIONS = (
    "data.phenotypes=[sick]",
    "trainer.checkpoint=best_average_precision",
    "trainer.epochs=6",
    "optimizer.lr=0.02",
)


@pytest.fixture(scope="module")
def run(screen: Tiny, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A model of sickness, with null models and picture; for reading only."""
    from dglcell.training.run import train

    return train(screen.config(tmp_path_factory.mktemp("runs"), *OPTIONS)).directory


def measured_and_predicted(run: RunDirectory, part: str) -> tuple[np.ndarray, np.ndarray]:
    """From the table of predictions, NaN where a label is missing."""
    rows = list(csv.DictReader(run.predictions(part).open()))
    return tuple(np.array([float(row[f"{k}_sick"] or "nan") for row in rows]) for k in ("measured", "predicted"))  # type: ignore[return-value]


def test_epochs_record_the_metrics_of_classes(run: RunDirectory) -> None:
    rows = history(run)
    for row in rows:
        for part in ("train", "validation"):
            assert row[f"{part}/average_precision"] == row[f"{part}/sick/average_precision"]
            assert row[f"{part}/sick/brier"] == row[f"{part}/sick/mse"]
            assert 0 < row[f"{part}/sick/prevalence"] < 1
    assert rows[-1]["train/average_precision"] > rows[-1]["train/sick/prevalence"] + 0.2
    best = read_checkpoint(run.checkpoint("best_average_precision"))["epoch"]
    assert best == max(rows, key=lambda row: row["validation/average_precision"])["epoch"]
    assert json.loads(run.results.read_text())["checkpoint"] == "best_average_precision.ckpt"


def test_results_are_those_of_the_predictions_at_the_validation_part_s_threshold(run: RunDirectory) -> None:
    found = {(row["model"], row["part"]): row for row in json.loads(run.results.read_text())["rows"]}
    measured, predicted = measured_and_predicted(run, "validation")
    threshold = best_threshold(predicted, measured)
    for part in ("validation", "test"):
        row = found["hetero_cell", part]
        measured, predicted = measured_and_predicted(run, part)
        assert row["kind"] == "classification"
        for name, value in classification_metrics(predicted, measured).items():
            assert row["metrics"][name] == pytest.approx(value, rel=1e-4)
        assert row["metrics"]["threshold"] == pytest.approx(threshold, rel=1e-4)
        assert row["metrics"]["f1"] == pytest.approx(f1(predicted, measured, threshold - 1e-5))
        mean = found["training mean", part]["metrics"]
        assert mean["average_precision"] == pytest.approx(mean["prevalence"])
        assert (mean["auroc"], mean["prevalence"]) == (0.5, row["metrics"]["prevalence"])
        assert 0 < found["additive ridge", part]["metrics"]["auroc"] <= 1
    assert found["hetero_cell", "test"]["metrics"]["n"] < 30


def test_the_table_has_the_columns_of_classes(run: RunDirectory) -> None:
    table = format_results_table(evaluate_run(run.path))
    assert table.splitlines()[0].split()[-4:] == ["AP", "AUROC", "F1", "Brier"]
    assert table.count("hetero_cell") == table.count("training mean") == 2


def test_numbers_have_no_metrics_of_classes(tiny_run: RunDirectory) -> None:
    assert "validation/average_precision" not in history(tiny_run)[0]
    assert not (tiny_run.checkpoints / "best_average_precision.ckpt").exists()
    rows = json.loads(tiny_run.results.read_text())["rows"]
    assert {row["kind"] for row in rows} == {"regression"}
    assert "auroc" not in rows[0]["metrics"]


def test_the_best_average_precision_of_numbers_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"best_average_precision` is for phenotypes of 0 and 1\n.*\n  do: .*best_loss"
    ):
        tiny.train(tmp_path, "trainer.checkpoint=best_average_precision")
    assert not list(tmp_path.rglob("*.ckpt"))


def test_numbers_and_classes_are_learnt_together(screen: Tiny, tmp_path: Path) -> None:
    result = screen.train(tmp_path, "data.phenotypes=null", "trainer.epochs=2")
    assert {(row.phenotype, row.kind) for row in result.rows} == {
        ("sick", "classification"),
        ("fitness", "regression"),
    }
    row = history(result.directory)[-1]
    assert row["validation/average_precision"] == row["validation/sick/average_precision"]
    pearsons = [row[f"validation/{name}/pearson"] for name in ("sick", "fitness")]
    assert row["validation/pearson"] == pytest.approx(np.mean(pearsons))


def test_rows_of_numbers_are_the_metrics_of_numbers() -> None:
    parts = {"validation": np.array([0.1, 0.5, 0.7]), "test": np.array([0.2, 0.4])}
    labels = {"validation": np.array([0.0, 1.0, 1.0]), "test": np.array([1.0, 0.0])}
    rows = rows_of("m", "x", "regression", parts, labels)
    assert [(row.part, row.metrics) for row in rows] == [
        (part, regression_metrics(parts[part], labels[part])) for part in parts
    ]


@pytest.mark.parametrize("kind", ["minmax", "robust", "none"])
def test_models_learn_in_any_units(tiny: Tiny, tmp_path: Path, kind: str) -> None:
    directory = tiny.train(tmp_path, f"data.normalise={kind}", "trainer.epochs=8", "optimizer.lr=0.02").directory
    rows = history(directory)
    assert rows[-1]["validation/loss"] == pytest.approx(rows[-1]["validation/fitness/normalised/mse"], rel=1e-4)
    assert rows[-1]["validation/pearson"] > 0.4
    trained = load_trained(directory)
    assert trained.normaliser.kind == kind
    scale = float(trained.normaliser.scale)
    assert rows[-1]["validation/fitness/mse"] == pytest.approx(
        rows[-1]["validation/fitness/normalised/mse"] * scale**2, rel=1e-4
    )
    prepared = prepare_run(trained.config, directory, "tests", continued=True)
    train = prepared.dataset.labels[prepared.parts["train"]][:, 0].double()
    expected = {
        "minmax": (train.min(), train.max() - train.min()),
        "robust": (train.quantile(0.25), train.quantile(0.75) - train.quantile(0.25)),
        "none": (torch.tensor(0.0), torch.tensor(1.0)),
    }[kind]
    assert (float(trained.normaliser.shift), scale) == pytest.approx((float(expected[0]), float(expected[1])), rel=1e-5)
