"""Sum up how well fluxes of new genes are predicted: ``python -m benchmarks.core_fluxes OUT RUNS [EXPERIMENT]``.

RUNS is the folder of finished runs of `conf/115-core-fluxes/new_genes.yaml`, or of another experiment, a run for each
draw of new genes, and of their controls without messages, as far as there are any. Beside the model stand the null
models of its values, and the fluxes that its rounds of messages find without training. Differences in Pearson's r and
R² are taken draw by draw, with Student's interval at 95 %. They are summed up over all draws. Where there are more than
``FIRST_DRAWS``, they are also summed up over these first ones, which have a control, and over those after them.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from dglcell.config.read import load_config
from dglcell.files.atomic import parse_json, write_json
from dglcell.machine.processor import processor_name
from dglcell.metrics import ResultRow
from dglcell.report.run_files import NODES, result_rows
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import Trained, load_trained
from dglcell.training.control_rows import control_rows
from dglcell.training.node_values import PartScores, null_node_rows
from dglcell.training.predicted import predict_and_embed
from dglcell.training.prepare import Prepared, prepare
from dglcell.uncertainty.paired import student

EXPERIMENT = Path("conf/115-core-fluxes/new_genes.yaml")
MODEL, ROUNDS = "hetero_cell", "rounds without training"
METRICS = ("pearson", "r2", "mae", "unbalanced", "n", "nodes")
FIRST_DRAWS = 5

Scores = dict[str, dict[str, float]]
"""Predictor → metric → its value."""


def forget_training(trained: Trained) -> None:
    """Set the last weights of a head of fluxes to zero, so that it predicts those that the rounds find."""
    head = trained.model.node_heads["flux"]
    assert head.correction is not None
    with torch.no_grad():
        head.correction.zero_()
        for weight in head.strain[-1].parameters():
            weight.zero_()
        head.own.weight.zero_()


def rounds_alone(trained: Trained, prepared: Prepared) -> list[ResultRow]:
    """Return rows of metrics of the fluxes that a model's rounds find without training."""
    forget_training(trained)
    rows = []
    for part in prepared.evaluated:
        scores = PartScores(trained.model.node_heads, prepared, part)
        strains = (trained.model, trained.normaliser, prepared.dataset, prepared.parts[part])
        predict_and_embed(*strains, batch_size=128, also=scores.add)
        rows += scores.rows(ROUNDS)
    return rows


def draw(run: Path, trained: Trained, prepared: Prepared) -> dict[str, Any]:
    """Return the scores of a run, of its control, of null models and of the rounds alone, by part of the split.

    The model forgets its training.
    """
    rows = result_rows(parse_json(RunDirectory(run).results.read_bytes())[NODES])
    if not any(row.is_null for row in rows):
        rows += null_node_rows(trained.model.node_heads, prepared)
    rows += control_rows(run, prepared.split.sha256, NODES)
    rows += rounds_alone(trained, prepared)
    return {
        "split_seed": prepared.split.seed,
        "strains": {part: len(strains) for part, strains in prepared.parts.items()},
        "scores": scores_of(rows, "test"),
        "validation": scores_of(rows, "validation"),
    }


def scores_of(rows: Iterable[ResultRow], part: str) -> Scores:
    """Return the scores of a part."""
    return {row.model: {key: round(row.metrics[key], 5) for key in METRICS} for row in rows if row.part == part}


def ahead(draws: Sequence[dict[str, Any]], name: str, metric: str) -> list[float]:
    """Return by how much the model is ahead on average, with Student's interval at 95 % over draws."""
    leads = [one["scores"][MODEL][metric] - one["scores"][name][metric] for one in draws]
    return [round(value, 4) for value in (statistics.fmean(leads), *student(leads))]


def summary(draws: Sequence[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Return by how much the model is ahead of each predictor that all these draws have."""
    names = [name for name in draws[0]["scores"] if all(name in one["scores"] for one in draws)]
    return {name: {key: ahead(draws, name, key) for key in ("pearson", "r2")} for name in names if name != MODEL}


def main(out: str, runs: str, experiment: str = str(EXPERIMENT)) -> None:
    """Write the file."""
    name = load_config(Path(experiment)).experiment.name
    found = sorted((Path(runs) / name).glob("seed-*"), key=lambda run: int(run.name.removeprefix("seed-")))
    draws = []
    for run in found:
        trained = load_trained(RunDirectory(run))
        draws.append(draw(run, trained, prepare(trained.config, command="benchmark")))
    record = {
        "command": "python -m benchmarks.core_fluxes OUT RUNS" + f" {experiment}" * (experiment != str(EXPERIMENT)),
        "experiment": name,
        "processor": processor_name(),
        "draws": draws,
        "ahead": summary(draws),
    }
    if len(draws) > FIRST_DRAWS + 1:
        record["ahead_on_first_draws"] = summary(draws[:FIRST_DRAWS])
        record["ahead_on_later_draws"] = summary(draws[FIRST_DRAWS:])
    write_json(Path(out), record)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
