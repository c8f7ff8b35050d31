"""What a finished run leaves: table, predictions, embeddings, weights of relations, and the report on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dglcell.config import Config
from dglcell.files import atomic_file, write_json
from dglcell.nn.cross_relation import RelationWeights
from dglcell.plots.density import sample
from dglcell.report.run_page import write_report
from dglcell.training.checkpoint import Trained, load_trained
from dglcell.training.device import device_here
from dglcell.training.directory import RunDirectory
from dglcell.training.evaluate import model_rows, null_rows, predict_and_embed, write_predictions
from dglcell.training.metrics import ResultRow, json_safe
from dglcell.training.prepare import Prepared, prepare_run
from dglcell.training.record import EpochLog

EVALUATED = ("validation", "test")


@dataclass(frozen=True)
class Evaluation:
    """What a trained model is worth.

    Attributes:
        rows: of the table: model and null models.
        predictions: part → [n, T] in original units.
        embedding: [n, D] of the test part, or None for a model that has none.
    """

    rows: list[ResultRow]
    predictions: dict[str, NDArray[np.float32]]
    embedding: NDArray[np.float32] | None


def report(config: Config, directory: RunDirectory, prepared: Prepared) -> list[ResultRow]:
    """Evaluate the chosen checkpoint and the null models; write table and predictions, and draw the report.

    Returns:
        the rows of the table.
    """
    trained = load_trained(directory, config.trainer.evaluate, prepared.cell)
    found = evaluate_parts(config, prepared, trained)
    for part, predicted_ST in found.predictions.items():
        write_predictions(directory.predictions(part), prepared, prepared.parts[part], predicted_ST)
    write_relation_weights(directory.relation_weights, trained.model.relation_weights())
    write_embedding(directory.embedding, found.embedding, config.plot_points, config.seed)
    results = {
        "checkpoint": trained.path.name,
        "epoch": trained.epoch,
        "epochs": len(EpochLog(directory.metrics, config.trainer.epochs).read()),
        "units": dict(zip(trained.phenotypes, trained.units, strict=True)),
        "rows": [{**vars(row), "metrics": json_safe(row.metrics)} for row in found.rows],
    }
    write_json(directory.results, results)
    if config.plot:
        write_report(directory.path)
    return found.rows


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
    return evaluate_parts(config, prepared, trained).rows


def evaluate_parts(config: Config, prepared: Prepared, trained: Trained) -> Evaluation:
    """Model and null models on validation and test."""
    trained.model.to(device_here(config.trainer.accelerator))
    predictions, embedding = {}, None
    for part in EVALUATED:
        # That of the last part, test, is kept.
        predictions[part], embedding = predict_and_embed(
            trained.model,
            trained.normaliser,
            prepared.dataset,
            prepared.parts[part],
            batch_size=config.data.evaluation_batch,
        )
    rows = model_rows(config.model.name, prepared, predictions)
    if config.null_models:
        rows += null_rows(prepared, EVALUATED)
    return Evaluation(rows, predictions, embedding)


def write_relation_weights(path: Path, weights: Sequence[RelationWeights]) -> None:
    """Options and weights of every layer and node type; nothing is left where the model has none."""
    if not weights:
        path.unlink(missing_ok=True)
        return
    content = {
        f"{found.layer + 1}, {found.node_type}": {"relations": found.options, "weights": found.weights.tolist()}
        for found in weights
    }
    write_json(path, content)


def write_embedding(path: Path, embedding_SD: NDArray[np.float32] | None, points: int, seed: int) -> None:
    """Embeddings of at most ``points`` strains, chosen at random, with their rows among the predictions.

    Nothing is left where the model has no embedding.
    """
    if embedding_SD is None:
        path.unlink(missing_ok=True)
        return
    strains = sample(len(embedding_SD), points, seed)
    with atomic_file(path) as partial, open(partial, "wb") as file:
        np.savez(file, strains=strains, vectors=embedding_SD[strains])
