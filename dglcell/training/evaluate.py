"""Write what a finished run leaves: baselines, predictions, metrics, embeddings, the report."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.config.experiment import Config
from dglcell.data.config import ALIKE_EVERYWHERE
from dglcell.data.strains import Strains
from dglcell.data.table import ACTIVITIES, LEARNED_ACTIVITIES, REGRESSION
from dglcell.errors import ConfigError
from dglcell.files.atomic import atomic_file, no_formula, shortest, write_json
from dglcell.machine import device_here, threads
from dglcell.metrics import WITHOUT_MESSAGES, ResultRow
from dglcell.models.terms.term import Term
from dglcell.report.page import predicts_lines, write_report
from dglcell.report.run_files import read_run
from dglcell.runs import EpochLog, RunDirectory
from dglcell.training.checkpoint import Trained, load_trained, refuse
from dglcell.training.predicting import (
    Baselines,
    Scored,
    baselines_of_run,
    fit_baselines,
    kept_baselines,
    predict_strains,
    score,
)
from dglcell.training.prepare import Prepared, prepare, prepare_run
from dglcell.uncertainty import OF_CLASSES, OF_INTERVALS, Calibration

log = logging.getLogger("dglcell")

ABLATION = "-without-messages"  # end of the name of its experiment


def report(config: Config, directory: RunDirectory, prepared: Prepared) -> list[ResultRow]:
    """Evaluate the chosen checkpoint and the baselines, write what is found, draw the report, and return the rows.

    Baselines are fitted once, and kept in the directory of the run.
    """
    trained = load_trained(directory, config.trainer.checkpoint, prepared.cell)
    baselines = baselines_of_run(prepared, directory) if config.baselines else Baselines()
    found, calibration = evaluate_parts(config, prepared, trained, baselines)
    rows = found.rows + ablation_rows(directory.path, prepared.split.sha256)
    learned = getattr(trained.model, "learned", None)  # a model of the user's own may have no such attribute
    for part, predicted_ST in found.chosen.items():
        tables = predicted_ST, found.of_network[part]
        write_predictions(directory.predictions(part), prepared, prepared.parts[part], *tables, learned)
    if calibration is None:
        directory.calibration.unlink(missing_ok=True)
    else:
        calibration.save(directory.calibration)
    results = {
        "checkpoint": trained.path.name,
        "epoch": trained.epoch,
        "epochs": len(EpochLog(directory.metrics, config.trainer.epochs).read()),
        "units": dict(zip(trained.phenotypes, trained.units, strict=True)),
        "rows": rows_as_json(rows),
        "predicts": {phenotype: vars(choice) for phenotype, choice in found.choices.items()},
        "left_out": baselines.left_out,
    }
    write_json(directory.results, results)
    if config.plot:
        write_report(directory.path)
    return rows


def evaluate_run(path: Path, checkpoint: str | None = None) -> list[ResultRow]:
    """Evaluate a run again, on the run's own split, with the baselines that it kept."""
    directory = RunDirectory(path)
    trained = load_trained(directory, checkpoint)
    config = dataclasses.replace(trained.config, plot=False)
    prepared = prepare_run(config, directory, "dglcell evaluate")
    if trained.split_sha256 != prepared.split.sha256:
        raise refuse(trained.path, "was trained on another split, so that it may have seen what it is tested on")
    baselines = kept_baselines(directory, prepared.cell) if directory.baselines.is_file() else Baselines()
    found, _ = evaluate_parts(config, prepared, trained, baselines)
    return found.rows + ablation_rows(path, prepared.split.sha256)


def evaluate_parts(
    config: Config, prepared: Prepared, trained: Trained, baselines: Baselines
) -> tuple[Scored, Calibration | None]:
    """Evaluate the network and baselines on validation and test, or on nothing if every strain trains.

    The calibration is that of intervals of what predicts; None where there is no validation part.
    """
    dataset = prepared.dataset
    if trained.phenotypes != tuple(dataset.phenotypes):
        names = (", ".join(found) for found in (trained.phenotypes, dataset.phenotypes))
        raise refuse(trained.path, "is of other phenotypes", *names)
    trained.model.to(device_here(config.trainer.accelerator))
    of, size = (trained.model, trained.normaliser, dataset), config.data.evaluation_batch
    predictions = {part: predict_strains(*of, prepared.parts[part], batch_size=size) for part in prepared.evaluated}
    found = score(prepared, baselines, config.model.name, predictions)
    for line in predicts_lines({name: vars(of) for name, of in found.choices.items()}) if baselines.models else ():
        log.info("%s", line)
    found.rows = with_ceilings(found.rows, prepared)
    if "validation" not in found.chosen:
        return found, None
    strains = {part: dataset.take(prepared.parts[part]) for part in ("train", *found.chosen)}
    counts_N = torch.bincount(strains["train"].targets.long(), minlength=len(dataset.names)).numpy()
    constant, of_run = prepared.split.kind in ALIKE_EVERYWHERE, (dataset.kinds, trained.path.name, trained.epoch)
    validation = strains["validation"].numpy(), counts_N, found.chosen["validation"]
    calibration = Calibration.of_run(*validation, *of_run, constant=constant)
    if "test" in found.chosen:
        coverage = calibration.measure(strains["test"].numpy(), found.chosen["test"])
        by = {(phenotype, choice.name, "test"): coverage[phenotype] for phenotype, choice in found.choices.items()}
        found.rows = [row.with_metrics(by.get((row.phenotype, row.model, row.part), {})) for row in found.rows]
    return found, calibration


def with_ceilings(rows: Sequence[ResultRow], prepared: Prepared) -> list[ResultRow]:
    """Return rows, those of the network on the test part with their ``ceiling`` (`Prepared.ceilings`)."""
    return [
        row.with_metrics({"ceiling": prepared.ceilings[row.phenotype]})
        if row.is_network and row.part == "test" and row.kind == REGRESSION and row.phenotype in prepared.ceilings
        else row
        for row in rows
    ]


def evaluate_baselines(
    config: Config, output: Path | None = None, command: str = "dglcell baselines"
) -> tuple[list[ResultRow], Baselines]:
    """Fit the baselines of an experiment alone, without its model, and write ``baselines.json`` or ``output``."""
    if config.split.trains_on_all:
        what = "`split.kind: none` leaves no strain on which baselines can be compared"
        raise ConfigError(what, do="choose another `split.kind`")
    prepared = prepare(config, command=command)
    with threads(config.trainer.given_threads):
        baselines = fit_baselines(prepared)
        rows = score(prepared, baselines).rows + ablation_rows(config.run_directory, prepared.split.sha256)
    about = {"command": command, "split": prepared.split.meta, "hashes": prepared.hashes}
    found = {"rows": rows_as_json(rows), "left_out": baselines.left_out}
    write_json(output or config.run_directory.parent / "baselines.json", about | found)
    return rows, baselines


def ablation_rows(run: Path, split_sha256: str) -> list[ResultRow]:
    """Return the metrics of a run's ablation beside it, if it was trained with its seed and on its split.

    Its intervals are left out, because it does not predict.
    """
    path = Path(f"{run.absolute().parent}{ABLATION}", run.absolute().name)
    if not RunDirectory(path).results.exists():
        return []
    ablation = read_run(path, parts=())
    if ablation.environment["hashes"]["split"] != split_sha256:
        log.info("%s was trained on another split, and is not compared with", path)
        return []
    rows = [row for row in ablation.rows if row.is_network]
    kept = [{n: x for n, x in row.metrics.items() if n not in (*OF_INTERVALS, OF_CLASSES)} for row in rows]
    named: dict[str, Any] = {"model": WITHOUT_MESSAGES, "is_baseline": True}
    return [dataclasses.replace(row, metrics=of, **named) for row, of in zip(rows, kept, strict=True)]


def rows_as_json(rows: Iterable[ResultRow]) -> list[dict[str, Any]]:
    """Return rows as they are written to ``results.json``; JSON has neither NaN nor infinities, which become null."""
    return [{**vars(of), "metrics": {n: x if np.isfinite(x) else None for n, x in of.metrics.items()}} for of in rows]


WRITTEN_STRAINS = 2**16  # together


def write_predictions(
    path: Path,
    prepared: Prepared,
    strains: Tensor,
    predicted_ST: NDArray[np.float32],
    network_ST: NDArray[np.float32],
    learned: Term | None = None,
) -> None:
    """Write a CSV with one row per strain: its genes, measured and predicted phenotypes in original units.

    Where the network does not predict a phenotype alone, its prediction is in a column ``network_<phenotype>``. Genes
    have their standard names in a column ``names``, if there are any. Activities and covariates have columns, too, so
    that the table can be predicted again, and what is left of genes for the model is in ``learned_activities``.
    """
    dataset, genes = prepared.dataset, prepared.cell.genes.names
    named = [prepared.cell.genes.standard(gene) for gene in genes]
    standard = [gene if not name or re.search('[;,"]', name) else name for gene, name in zip(genes, named, strict=True)]
    spelled = {"genes": genes} | ({} if standard == list(genes) else {"names": standard})
    differ = [t for t in range(len(dataset.phenotypes)) if not np.array_equal(predicted_ST[:, t], network_ST[:, t])]
    with atomic_file(path) as partial:
        for first in range(0, len(strains), WRITTEN_STRAINS):
            block = slice(first, first + WRITTEN_STRAINS)
            batch = (on_device := dataset.take(strains[block])).numpy()
            columns = {name: _joined(np.array(of, dtype=object)[batch.targets], batch) for name, of in spelled.items()}
            if batch.activities is not None:
                columns[ACTIVITIES] = _joined(shortest(batch.activities), batch)
            for name, categories in batch.covariates.items():
                values = batch.shown(name)
                columns[name] = [no_formula(str(one)) for one in values] if categories else shortest(values)
            if learned is not None:
                columns[LEARNED_ACTIVITIES] = _joined(shortest(_learned_activities(learned, on_device)), batch)
            for t, (name, measured_B) in enumerate(batch.phenotypes.items()):
                columns[f"measured_{name}"] = shortest(measured_B)
                columns[f"predicted_{name}"] = shortest(predicted_ST[block, t])
            columns |= {f"network_{[*dataset.phenotypes][t]}": shortest(network_ST[block, t]) for t in differ}
            pd.DataFrame(columns).to_csv(partial, mode="a", header=first == 0, index=False, lineterminator="\n")


@torch.inference_mode()
def _learned_activities(learned: Term, batch: Strains) -> NDArray[np.float32]:
    found = learned.strains(batch.to(next(learned.parameters()).device).perturbations).activities
    return np.zeros(len(batch.targets), np.float32) if found is None else found.float().cpu().numpy()


def _joined(names: Iterable[str], batch: Strains) -> list[str]:
    rest = iter(names)
    return [no_formula(";".join(itertools.islice(rest, count))) for count in batch.num_deletions.tolist()]
