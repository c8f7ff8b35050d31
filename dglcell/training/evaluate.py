"""Write what a finished run leaves: predictions of the model and of null models, tables, embeddings, the report."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.baselines.fit import Problem, fit_null_models, in_words, left_out_null_models
from dglcell.config.experiment import Config
from dglcell.data.columns import CONDITION
from dglcell.data.config import ALIKE_EVERYWHERE
from dglcell.data.dataset import EpochBatches
from dglcell.data.strains import Strains
from dglcell.data.table import LEARNED_STRENGTHS, REGRESSION, STRENGTHS
from dglcell.data.transform import Normaliser
from dglcell.errors import ConfigError, count
from dglcell.files.atomic import atomic_file, no_formula, shortest, write_json
from dglcell.kernels.spmm import check_kernel
from dglcell.machine.devices import ThreadTurns, device_here, threads
from dglcell.machine.processor import idle_cores
from dglcell.metrics import ResultRow, json_safe, row_of, rows_of
from dglcell.models.model import Prediction, StrainModel
from dglcell.nn.conditions import LearnedStrengths
from dglcell.nn.cross_relation import RelationWeights
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.plots.style import sample
from dglcell.report.genes import own_names
from dglcell.report.run_files import NODES, ROWS, read_started
from dglcell.report.run_page import write_report
from dglcell.report.sentences import left_out_lines
from dglcell.runs.directory import EpochLog, RunDirectory
from dglcell.training.batch_trials import MOST, TRIED, fitting_batch
from dglcell.training.checkpoint import Trained, load_trained
from dglcell.training.checkpoint_file import refuse
from dglcell.training.control_rows import control_rows
from dglcell.training.explained import write_explained
from dglcell.training.node_results import PartScores, null_node_rows
from dglcell.training.node_targets import bare_node_heads
from dglcell.training.null_problems import null_problems, strains_by_part
from dglcell.training.prepare import Prepared, prepare, prepare_run
from dglcell.uncertainty.calibration import Calibration
from dglcell.uncertainty.paired import ahead

log = logging.getLogger("dglcell")

# Predictions of a trained model and of null models on the parts of a split.


WRITTEN_STRAINS = 2**16
"""So many strains are written together."""

SEPARATORS = frozenset(';,"')
"""No name of a gene may contain this in the column ``names``."""


@torch.inference_mode()
def predict_and_embed(
    model: StrainModel,
    normaliser: Normaliser,
    dataset: Strains,
    strains: Tensor,
    *,
    batch_size: int,
    also: Callable[[Prediction], None] = lambda prediction: None,
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Return [n, T] predictions in original units, and [n, D] embeddings; None for a model that has none.

    Args:
        model: the model, whose device decides where this runs.
        normaliser: statistics of the training labels.
        dataset: data set with the deleted genes.
        strains: [n] strain numbers, on the host; predictions are in their order.
        batch_size: strains per forward pass.
        also: function that is called with the output of each batch.

    Raises:
        MissingDependencyError: the model's kernel does not run on its device.
    """
    outputs, embeddings = [], []
    for prediction in _predictions(model, dataset, strains, batch_size):
        also(prediction)
        outputs.append(prediction.phenotypes.float())
        if prediction.embedding is not None:
            embeddings.append(prediction.embedding.float())
    predicted_ST = normaliser.to(outputs[0].device).restore(torch.cat(outputs))
    return predicted_ST.cpu().numpy(), torch.cat(embeddings).cpu().numpy() if embeddings else None


@torch.inference_mode()
def predict_batches(model: StrainModel, batches: Iterable[GenotypeBatch]) -> Iterator[Prediction]:
    """Yield the model's output for each batch, on its device, in normalised units.

    The states of the wild type that a model keeps during evaluation are computed once for all batches.

    Args:
        model: the model, whose device decides where this runs.
        batches: genotypes, on the device of the model.

    Raises:
        MissingDependencyError: the model's kernel does not run on its device.
    """
    device = next(model.parameters()).device.type
    check_kernel(model.config.kernel, device)
    model.eval()
    turns = ThreadTurns.of_process() if device == "cpu" else ThreadTurns(1)
    for batch in batches:
        with turns.work():
            found = model(batch)
        yield found


def _predictions(model: StrainModel, dataset: Strains, strains: Tensor, batch_size: int) -> Iterator[Prediction]:
    """Yield the output of the model batch by batch, on its device."""
    device = next(model.parameters()).device
    counts, resident = dataset.offsets.cpu().diff(), dataset.to(device)
    return predict_batches(
        model,
        (
            resident.take(batch.to(device), int(counts[batch].sum())).perturbations
            for batch in EpochBatches(strains, batch_size, shuffle=False, seed=0)
        ),
    )


@torch.inference_mode()
def batch_that_fits(model: StrainModel, first: Callable[[int], GenotypeBatch], strains: int, most: int = MOST) -> int:
    """Return how many strains per forward pass are expected to fit into memory (`fitting_batch`).

    Args:
        model: the model on its device.
        first: returns a given number of strains, on the device of the model.
        strains: number of all strains.
        most: the largest batch that is wanted.

    Raises:
        MissingDependencyError: the model's kernel does not run on its device.
    """
    device = next(model.parameters()).device
    check_kernel(model.config.kernel, device.type)
    model.eval()
    return fitting_batch(lambda number: model(first(number)), device, strains, most)


def table_batch(model: StrainModel, dataset: Strains, strains: Tensor, most: int = MOST) -> int:
    """Return the same as `batch_that_fits` for strains of a data set, by trying those with the most deletions.

    Args:
        model: the model on its device.
        dataset: data set with the deleted genes.
        strains: [n] strain numbers, on the host.
        most: the largest batch that is wanted.
    """
    device = next(model.parameters()).device
    counts, resident = dataset.offsets.cpu().diff(), dataset.to(device)
    tried = strains[counts[strains].topk(min(TRIED, len(strains))).indices]

    def first(number: int) -> GenotypeBatch:
        batch = tried[:number]
        return resident.take(batch.to(device), int(counts[batch].sum())).perturbations

    return batch_that_fits(model, first, len(strains), most)


def model_rows(model: str, prepared: Prepared, predictions: Mapping[str, NDArray[np.float32]]) -> list[ResultRow]:
    """Return the metrics of the model, a row per phenotype and part.

    Args:
        model: name of the model in the table.
        prepared: the data that the model was trained on.
        predictions: part → [S, T] in original units.
    """
    dataset = prepared.dataset
    strains = {part: dataset.take(prepared.parts[part]) for part in predictions}
    measured = {part: found.labels.numpy() for part, found in strains.items()}
    groups = {part: same_conditions(found) for part, found in strains.items()}
    return [
        row
        for t, (name, kind) in enumerate(zip(dataset.phenotypes, dataset.kinds, strict=True))
        for row in rows_of(model, name, kind, _column(predictions, t), _column(measured, t), groups=groups)
    ]


def same_conditions(strains: Strains) -> NDArray[np.int64]:
    """Return the number of a group for each strain, [S]: strains of a group have the same medium and other classes."""
    columns = [
        np.asarray(values)
        for column, values in strains.columns.items()
        if column.kind == CONDITION and column.categories
    ]
    if not columns:
        return np.zeros(len(strains), np.int64)
    return np.unique(np.stack(columns, 1), axis=0, return_inverse=True)[1].reshape(-1)


@dataclass(frozen=True)
class NullResults:
    """This holds the metrics of the null models.

    Attributes:
        rows: rows of the table.
        left_out: phenotype → null model → why it does not apply.
        node_rows: rows of values of nodes.
    """

    rows: list[ResultRow] = field(default_factory=list)
    left_out: dict[str, dict[str, str]] = field(default_factory=dict)
    node_rows: list[ResultRow] = field(default_factory=list)


def null_results(prepared: Prepared, of_model: NDArray[np.float32] | None = None) -> NullResults:
    """Return the metrics of null models, fitted on the training part, for every phenotype and evaluated part.

    Args:
        prepared: the data to fit and evaluate them on.
        of_model: [n, T] predictions of the model for the test part, whose lead over each null model is among the
            metrics then (`dglcell.uncertainty.paired.ahead`).
    """
    dataset, found = prepared.dataset, NullResults()
    if not prepared.evaluated:
        return found
    strains = strains_by_part(prepared)
    of_phenotypes = zip(dataset.phenotypes, dataset.kinds, null_problems(prepared), strict=True)
    for t, (phenotype, kind, problem) in enumerate(of_phenotypes):
        labels = {part: found.phenotypes[phenotype] for part, found in strains.items()}
        groups = {part: same_conditions(found) for part, found in strains.items()}
        rows, tested = [], {}
        found.left_out[phenotype] = left_out_null_models(problem)
        _say_fitted(phenotype, problem)
        for name, model in fit_null_models(problem).items():
            log.info("null model of %s: %s", phenotype, in_words(name, model))
            predicted = {part: model.predict(strains[part]) for part in prepared.evaluated}
            rows += rows_of(name, phenotype, kind, predicted, labels, is_null=True, groups=groups)
            if "test" in predicted:
                tested[name] = predicted["test"]
        leads = {} if of_model is None else ahead(kind, of_model[:, t], tested, labels["test"], strains["test"])
        found.rows.extend(
            dataclasses.replace(row, metrics={**row.metrics, **leads.get(row.model, {})}) if row.part == "test" else row
            for row in rows
        )
    return found


def _say_fitted(phenotype: str, problem: Problem) -> None:
    log.info("fitting null models of %s to %s", phenotype, count(int(np.isfinite(problem.y_train).sum()), "strain"))


def null_rows_on(
    prepared: Prepared, strains: Strains, measured: Mapping[str, NDArray[np.floating]], part: str
) -> list[ResultRow]:
    """Return the metrics of the null models on strains outside the data set; none where they cannot be fitted.

    Args:
        prepared: the data that they are fitted on.
        strains: strains to predict; their genes are those of the cell graph.
        measured: phenotype of the data set → [S] labels.
        part: name of the part in the table.
    """
    if not prepared.evaluated:
        return []
    rows = []
    for phenotype, problem in zip(prepared.dataset.phenotypes, null_problems(prepared, strains), strict=True):
        if phenotype in measured:
            _say_fitted(phenotype, problem)
            for name, model in fit_null_models(problem).items():
                values = model.predict(strains)
                rows.append(row_of(name, phenotype, part, values, measured[phenotype], is_null=True))
    return rows


def _column(table: Mapping[str, NDArray[np.float32]], t: int) -> dict[str, NDArray[np.float32]]:
    """Return part → [S] values of the t-th phenotype."""
    return {part: values_ST[:, t] for part, values_ST in table.items()}


def write_predictions(
    path: Path,
    prepared: Prepared,
    strains: Tensor,
    predicted_ST: NDArray[np.float32],
    own: Mapping[str, str] | None = None,
    learned: LearnedStrengths | None = None,
) -> None:
    """Write a CSV with one row per strain: its genes, measured and predicted phenotypes in original units.

    Strengths of genes, where there are any, are in a column ``strengths``, and each condition in one of its name, so
    that the table can be predicted again. A column ``learned_strengths`` says what is left of the genes for the model.

    Args:
        path: path of the file.
        prepared: data and cell graph.
        strains: [S] rows of the data set.
        predicted_ST: predictions in original units.
        own: systematic name → the user's own name; if there are any, they are written into a column ``names``.
        learned: the part of the model that learns strengths; there is no column of them where None.
    """
    dataset, genes = prepared.dataset, prepared.cell.genes.names
    called = {"genes": genes} | ({"names": [own.get(gene, gene) for gene in genes]} if own else {})
    names = [np.array(column, dtype=object) for column in called.values()]
    about = [STRENGTHS] * (dataset.strengths is not None) + list(dataset.conditions)
    about += [LEARNED_STRENGTHS] * (learned is not None)
    header = [*called, *about] + [f"{kind}_{name}" for name in dataset.phenotypes for kind in ("measured", "predicted")]
    with atomic_file(path) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        parts = (strains.split(WRITTEN_STRAINS), torch.from_numpy(predicted_ST).split(WRITTEN_STRAINS))
        for block, predicted_BT in zip(*parts, strict=True):
            batch = dataset.take(block)
            deleted = [_joined(column[batch.targets.numpy()], batch.num_deletions) for column in names]
            if batch.strengths is not None:
                deleted.append(_joined_strengths(batch.strengths, batch.num_deletions))
            deleted += [
                [no_formula(c.categories[int(v)]) for v in values] if c.categories else shortest(values.numpy())
                for c, values in batch.columns.items()
                if c.kind == CONDITION
            ]
            if learned is not None:
                deleted.append(_joined_strengths(_learned_strengths(learned, batch), batch.num_deletions))
            pairs = zip(batch.labels.T, predicted_BT.T, strict=True)
            columns = [shortest(column.numpy()) for pair in pairs for column in pair]
            writer.writerows(zip(*deleted, *columns, strict=True))


@torch.inference_mode()
def _learned_strengths(learned: LearnedStrengths, batch: Strains) -> Tensor:
    """Return what is left of the genes of all strains, [P], on the host."""
    found = learned(batch.to(learned.conditions.shift.device).perturbations).strengths
    return torch.zeros(len(batch.targets)) if found is None else found.float().cpu()


def _joined_strengths(strengths_P: Tensor, counts: Tensor) -> list[str]:
    return _joined(np.array(shortest(strengths_P.numpy()), dtype=object), counts)


def _joined(names: NDArray[np.object_], counts: Tensor) -> list[str]:
    """Return the names of deleted genes, joined strain by strain."""
    rest = iter(names.tolist())
    return [no_formula(";".join(itertools.islice(rest, count))) for count in counts.tolist()]


# The files of a finished run: table, predictions, embeddings, weights of relations, and the report on them.


@dataclass(frozen=True)
class Evaluation:
    """An evaluation holds the predictions and metrics of a trained model.

    Attributes:
        rows: rows of the table, for the model and null models.
        left_out: phenotype → null model → why it does not apply.
        predictions: part → [n, T] predictions in original units.
        embedding: [n, D] embeddings of the test part, or None for a model that has none.
        calibration: the calibration of intervals on the validation part; None where there is no such part.
        node_rows: rows of values of nodes, for the model and null models.
        node_scores: what was predicted of values of nodes of the test part; None without a part that is evaluated.
    """

    rows: list[ResultRow]
    left_out: dict[str, dict[str, str]]
    predictions: dict[str, NDArray[np.float32]]
    embedding: NDArray[np.float32] | None
    calibration: Calibration | None
    node_rows: list[ResultRow] = field(default_factory=list)
    node_scores: PartScores | None = None


def report(config: Config, directory: RunDirectory, prepared: Prepared) -> list[ResultRow]:
    """Evaluate the chosen checkpoint and the null models; write table and predictions, and draw the report.

    Returns:
        the rows of the table.
    """
    trained = load_trained(directory, config.trainer.checkpoint, prepared.cell)
    found = evaluate_parts(config, prepared, trained)
    rows = found.rows + control_rows(directory.path, prepared.split.sha256)
    of_nodes = found.node_rows + control_rows(directory.path, prepared.split.sha256, NODES)
    own = own_names(config, prepared.cell.genes)
    own = {gene: name for gene, name in own.items() if not SEPARATORS.intersection(name)}
    learned = getattr(trained.model, "learned", None)  # a model of the user's own may have no such attribute
    for part, predicted_ST in found.predictions.items():
        write_predictions(directory.predictions(part), prepared, prepared.parts[part], predicted_ST, own, learned)
    write_relation_weights(directory.relation_weights, trained.model.relation_weights())
    write_embedding(directory.embedding, found.embedding, config.plot_points, config.seed)
    if found.node_scores is not None:
        found.node_scores.write_changes(directory.node_changes, config.plot_points)
    if found.calibration is None:
        directory.calibration.unlink(missing_ok=True)
    else:
        found.calibration.save(directory.calibration)
    results = {
        "checkpoint": trained.path.name,
        "epoch": trained.epoch,
        "epochs": len(EpochLog(directory.metrics, config.trainer.epochs).read()),
        "units": dict(zip(trained.phenotypes, trained.units, strict=True)),
        "rows": rows_as_json(rows),
        "left_out": found.left_out,
        NODES: rows_as_json(of_nodes),
    }
    started = read_started(directory)
    if started is not None:
        results["started_from"] = started
    write_json(directory.results, results)
    if config.plot:
        write_explained(directory, trained, prepared, found.predictions.get("test"))
        write_report(directory.path)
    return rows + of_nodes


def evaluate_run(path: Path, checkpoint: str | None = None) -> list[ResultRow]:
    """Evaluate a run and its null models again, on the run's own split.

    Args:
        path: path of the run directory.
        checkpoint: name or path of the checkpoint; None for the configured one.

    Raises:
        CheckpointError: the run or checkpoint is missing or damaged, or was trained on another split.
    """
    directory = RunDirectory(path)
    trained = load_trained(directory, checkpoint)
    config = dataclasses.replace(trained.config, plot=False)
    prepared = prepare_run(config, directory, "dglcell evaluate", continued=True)
    if trained.split_sha256 != prepared.split.sha256:
        raise refuse(trained.path, "was trained on another split, so that it may have seen what it is tested on")
    if config.data.eval_batch_size is None:
        # The batch of the training may be too large here, because this machine may be another one.
        model, dataset = trained.model.to(device_here(config.trainer.accelerator)), prepared.dataset
        parts, wanted = [prepared.parts[part] for part in prepared.evaluated], config.data.training_batch
        size = min((table_batch(model, dataset, strains, wanted) for strains in parts), default=wanted)
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, eval_batch_size=size))
    found = evaluate_parts(config, prepared, trained)
    controls = [row for kind in (ROWS, NODES) for row in control_rows(path, prepared.split.sha256, kind)]
    return found.rows + found.node_rows + controls


def evaluate_parts(config: Config, prepared: Prepared, trained: Trained) -> Evaluation:
    """Evaluate the model and null models on validation and test, or on nothing if every strain trains.

    Raises:
        CheckpointError: the phenotypes of the checkpoint are not those of the configuration.
    """
    if trained.phenotypes != tuple(prepared.dataset.phenotypes):
        names = (", ".join(found) for found in (trained.phenotypes, prepared.dataset.phenotypes))
        raise refuse(trained.path, "is of other phenotypes", *names)
    trained.model.to(device_here(config.trainer.accelerator))
    predictions, embedding, of_nodes, scores = {}, None, [], None
    heads = getattr(trained.model, "node_heads", {})  # a model of the user's own may have no such attribute
    for part in prepared.evaluated:
        scores = PartScores(heads, prepared, part)
        # The embedding and the values of nodes of the last part, test, are kept.
        predictions[part], embedding = predict_and_embed(
            trained.model,
            trained.normaliser,
            prepared.dataset,
            prepared.parts[part],
            batch_size=config.data.evaluation_batch,
            also=scores.add,
        )
        of_nodes += scores.rows(config.model.name)
    rows = model_rows(config.model.name, prepared, predictions)
    calibration = calibrate_intervals(prepared, predictions, trained.path.name, trained.epoch)
    if calibration is not None:
        rows = with_coverage(rows, calibration, prepared, predictions)
    rows = with_ceilings(rows, prepared)
    nulls = null_results(prepared, predictions.get("test")) if config.null_models else NullResults()
    for line in left_out_lines(nulls.left_out):
        log.info("%s", line)
    of_nodes += null_node_rows(heads, prepared, scores) if config.null_models else []
    return Evaluation(rows + nulls.rows, nulls.left_out, predictions, embedding, calibration, of_nodes, scores)


def calibrate_intervals(
    prepared: Prepared, predictions: Mapping[str, NDArray[np.floating]], checkpoint: str, epoch: int
) -> Calibration | None:
    """Calibrate the intervals of a model on the validation part; return None where there is no such part.

    Args:
        prepared: the data that the model was trained on.
        predictions: part → [n, T] in original units.
        checkpoint, epoch: name and epoch of the checkpoint that predicted.
    """
    if "validation" not in predictions:
        return None
    dataset = prepared.dataset
    changed = dataset.take(prepared.parts["train"]).targets
    training = torch.bincount(changed.long(), minlength=len(dataset.names)).numpy()
    strains = dataset.take(prepared.parts["validation"]).numpy()
    constant = prepared.split.kind in ALIKE_EVERYWHERE
    of_part = strains, training, predictions["validation"], dataset.kinds
    return Calibration.of_run(*of_part, checkpoint, epoch, constant=constant)


def with_coverage(
    rows: Sequence[ResultRow],
    calibration: Calibration,
    prepared: Prepared,
    predictions: Mapping[str, NDArray[np.float32]],
) -> list[ResultRow]:
    """Return the rows of a model, those of the test part with metrics of its intervals (`Calibrated.measure`)."""
    if "test" not in predictions:
        return list(rows)
    measured = calibration.measure(prepared.dataset.take(prepared.parts["test"]).numpy(), predictions["test"])
    return [
        dataclasses.replace(row, metrics={**row.metrics, **measured[row.phenotype]}) if row.part == "test" else row
        for row in rows
    ]


def with_ceilings(rows: Sequence[ResultRow], prepared: Prepared) -> list[ResultRow]:
    """Return the rows of a model, those of the test part with what a model without error would have.

    The metric is ``ceiling`` (`Prepared.ceilings`).
    """
    return [
        dataclasses.replace(row, metrics={**row.metrics, "ceiling": prepared.ceilings[row.phenotype]})
        if row.part == "test" and row.kind == REGRESSION and row.phenotype in prepared.ceilings
        else row
        for row in rows
    ]


def evaluate_null_models(config: Config, output: Path | None = None, command: str = "dglcell baselines") -> NullResults:
    """Fit the null models of an experiment alone, without its model, and write ``baselines.json``.

    Args:
        config: validated configuration.
        output: path of the file; None for a file beside the run directories of the experiment.
        command: command that is recorded in the file.

    Raises:
        ConfigError: there is no part but the training part.
        DglcellError: there is another fault that the user can mend.
    """
    if config.split.trains_on_all:
        raise ConfigError(
            "`split.kind: none` leaves no strain on which null models can be compared", do="choose another `split.kind`"
        )
    prepared = prepare(config, command=command)
    with threads(config.trainer.given_threads or idle_cores()):
        found = null_results(prepared)
        found.node_rows.extend(null_node_rows(bare_node_heads(config, prepared), prepared))
    found.rows.extend(control_rows(config.run_directory, prepared.split.sha256))
    found.node_rows.extend(control_rows(config.run_directory, prepared.split.sha256, NODES))
    about = {
        "command": command,
        "split": prepared.split.meta,
        "hashes": {"cell": prepared.cell.sha256, "store": prepared.store.sha256, "split": prepared.split.sha256},
        "rows": rows_as_json(found.rows),
        "left_out": found.left_out,
        NODES: rows_as_json(found.node_rows),
    }
    path = output or config.run_directory.parent / "baselines.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, about)
    return found


def rows_as_json(rows: Iterable[ResultRow]) -> list[dict[str, Any]]:
    """Return rows as they are written to ``results.json``."""
    return [{**vars(row), "metrics": json_safe(row.metrics)} for row in rows]


def write_relation_weights(path: Path, weights: Sequence[RelationWeights]) -> None:
    """Write options and weights of every layer and node type, or remove the file if the model has none."""
    if not weights:
        path.unlink(missing_ok=True)
        return
    content = {
        f"{found.layer + 1}, {found.node_type}": {"relations": found.options, "weights": found.weights.tolist()}
        for found in weights
    }
    write_json(path, content)


def write_embedding(path: Path, embedding_SD: NDArray[np.float32] | None, points: int, seed: int) -> None:
    """Write embeddings of at most ``points`` random strains, with their rows among the predictions.

    The file is removed if the model has no embedding.
    """
    if embedding_SD is None:
        path.unlink(missing_ok=True)
        return
    strains = sample(len(embedding_SD), points, seed)
    with atomic_file(path) as partial, open(partial, "wb") as file:
        np.savez(file, strains=strains, vectors=embedding_SD[strains])
