"""What a finished run says: table, predictions, picture."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.config import Config
from dglcell.files import write_json
from dglcell.models.prediction import count_parameters
from dglcell.plots import EpochRecord, Predictions, ReportData, report_figure
from dglcell.training.checkpoint import Trained, load_trained
from dglcell.training.device import device_here
from dglcell.training.directory import RunDirectory
from dglcell.training.evaluate import model_rows, null_rows, predict_strains, write_predictions
from dglcell.training.metrics import ResultRow, json_safe
from dglcell.training.prepare import Prepared, prepare_run
from dglcell.training.record import EpochLog

EVALUATED = ("validation", "test")


def report(config: Config, directory: RunDirectory, prepared: Prepared) -> list[ResultRow]:
    """Evaluate the chosen checkpoint and the null models; write table, predictions and picture.

    Returns:
        the rows of the table.
    """
    trained = load_trained(directory, config.trainer.evaluate, prepared.cell)
    rows, predictions = evaluate_parts(config, directory, prepared, trained)
    for part, predicted_ST in predictions.items():
        write_predictions(directory.predictions(part), prepared, prepared.parts[part], predicted_ST)
    table = [{**vars(row), "metrics": json_safe(row.metrics)} for row in rows]
    write_json(directory.results, {"checkpoint": trained.path.name, "epoch": trained.epoch, "rows": table})
    if config.plot:
        draw(config, directory, prepared, trained, rows, predictions["test"])
    return rows


def evaluate_run(path: Path, checkpoint: str | None = None) -> list[ResultRow]:
    """Evaluate a run again, and its null models, on its own split.

    Args:
        path: run directory.
        checkpoint: by name or path; the configured one where None.

    Raises:
        CheckpointError: the run or checkpoint is missing or torn.
    """
    directory = RunDirectory(path)
    trained = load_trained(directory, checkpoint)
    config = dataclasses.replace(trained.config, plot=False)
    prepared = prepare_run(config, directory, "dglcell evaluate", continued=True)
    return evaluate_parts(config, directory, prepared, trained)[0]


def evaluate_parts(
    config: Config, directory: RunDirectory, prepared: Prepared, trained: Trained
) -> tuple[list[ResultRow], dict[str, NDArray[np.float32]]]:
    """Model and null models on validation and test.

    Returns:
        the rows of the table, and the model's predictions [n, T] by part.
    """
    trained.model.to(device_here(config.trainer.accelerator))
    batch_size = config.data.evaluation_batch
    predictions = {
        part: predict_strains(
            trained.model, trained.normaliser, prepared.dataset, prepared.parts[part], batch_size=batch_size
        )
        for part in EVALUATED
    }
    rows = model_rows(config.model.name, prepared, predictions)
    if config.null_models:
        rows += null_rows(prepared, EVALUATED)
    return rows, predictions


def draw(
    config: Config,
    directory: RunDirectory,
    prepared: Prepared,
    trained: Trained,
    rows: Sequence[ResultRow],
    predicted_ST: NDArray[np.float32],
) -> None:
    """The picture of the run, and the numbers behind it."""
    dataset, strains = prepared.dataset, prepared.parts["test"]
    counts = dataset.offsets.diff()[strains].numpy()
    measured_ST = dataset.labels[strains].numpy()
    data = ReportData(
        title=config.experiment.name,
        subtitle=subtitle(config, directory, prepared, trained),
        rows=rows,
        history=[_epoch(row, dataset.phenotypes) for row in EpochLog(directory.metrics, config.trainer.epochs).read()],
        predictions={
            name: Predictions(measured_ST[:, t], predicted_ST[:, t], counts)
            for t, name in enumerate(dataset.phenotypes)
        },
        units=dict(zip(dataset.phenotypes, dataset.units, strict=True)),
        best_epoch=trained.epoch + 1,
    )
    report_figure(data, directory.report)


def subtitle(config: Config, directory: RunDirectory, prepared: Prepared, trained: Trained) -> list[str]:
    """Two lines below the title: what was trained on what."""
    sizes = ", ".join(f"{len(strains):,} {name}" for name, strains in prepared.parts.items())
    history = EpochLog(directory.metrics, config.trainer.epochs).read()
    minutes = sum(row["seconds"] for row in history) / 60
    about = json.loads(directory.environment.read_text())
    return [
        f"strains: {sizes} ({config.split.kind} split) · cell: {len(prepared.cell.genes):,} genes, "
        f"{prepared.cell.graph.num_edges():,} edges",
        f"{count_parameters(trained.model):,} parameters · {config.model.about()} · seed {config.seed} · "
        f"{len(history)} epochs in {minutes:.1f} min on {about['devices'][0]}",
    ]


def _epoch(row: dict[str, Any], phenotypes: Sequence[str]) -> EpochRecord:
    """A line of the record as the picture takes it: epochs counted from 1, NaN for what is not there."""

    def value(key: str) -> float:
        return math.nan if row.get(key) is None else float(row[key])

    pearson = {name: value(f"validation/{name}/pearson") for name in phenotypes}
    return EpochRecord(row["epoch"] + 1, value("train/loss"), value("validation/loss"), pearson)
