"""Measure what cross-validation shows of an experiment: ``python -m benchmarks.folds OUT EXPERIMENT SEED [SEED …]``.

EXPERIMENT has `split.folds`. For each seed of the split every fold is predicted once, by the model and by null models
that were fitted and chosen without it. Q² is 1 minus the squared error over that of the mean of all labels, over all
folds together; Pearson's r is over all folds together, too.
"""

from __future__ import annotations

import csv
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dglcell
from dglcell.baselines.fit import fit_null_models
from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.files.atomic import write_json
from dglcell.machine.processor import processor_name
from dglcell.report.run_tables import MEASURED, PREDICTED
from dglcell.runs.directory import RunDirectory
from dglcell.training.null_problems import null_problems, strains_by_part
from dglcell.training.prepare import prepare

MODEL = "model"

Vector = NDArray[np.float64]


def _of_run(run: Path, phenotype: str) -> tuple[Vector, Vector]:
    """Return what a run's test strains were measured and predicted to have."""
    with RunDirectory(run).predictions("test").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    measured, predicted = (np.array([float(row[kind + phenotype]) for row in rows]) for kind in (MEASURED, PREDICTED))
    return measured, predicted


def _of_nulls(config: Config) -> dict[str, Vector]:
    """Return what each null model predicts for the test part of a fold."""
    prepared = prepare(config, command="benchmark")
    test = strains_by_part(prepared)["test"]
    return {name: model.predict(test) for name, model in fit_null_models(null_problems(prepared)[0]).items()}


def draw(experiment: Path, seed: int, folder: Path) -> tuple[Vector, dict[str, Vector]]:
    """Return labels of all strains, fold by fold, and all predictions of them."""
    folds, labels, found = load_config(experiment).split.folds, [], defaultdict(list)
    assert folds is not None
    for fold in range(folds):
        keys = [f"split.seed={seed}", f"split.fold={fold}", f"seed={seed}", "trainer.threads=1"]
        more = ["null_models=false", "plot=false", f"paths.runs={folder}", f"experiment.name=seed-{seed}-fold-{fold}"]
        run = dglcell.train(experiment, *keys, *more)
        measured, predicted = _of_run(run.directory, run.phenotypes[0])
        labels.append(measured)
        for name, values in {MODEL: predicted, **_of_nulls(load_config(experiment, keys))}.items():
            found[name].append(values)
    return np.concatenate(labels), {name: np.concatenate(parts) for name, parts in found.items()}


def scores(labels: Vector, predicted: Vector) -> dict[str, float]:
    """Return Q² and Pearson's r."""
    rest = float(np.square(labels - predicted).sum() / np.square(labels - labels.mean()).sum())
    r = float(np.corrcoef(labels, predicted)[0, 1]) if predicted.std() > 0 else 0.0
    return {"q2": round(1 - rest, 4), "pearson": round(r, 4)}


def main(out: str, experiment: str, *seeds: str) -> None:
    """Write the file."""
    path = Path(experiment)
    with tempfile.TemporaryDirectory() as folder:
        draws = [draw(path, int(seed), Path(folder)) for seed in seeds]
    found: list[dict[str, dict[str, float]]] = [
        {name: scores(labels, values) for name, values in predictions.items()} for labels, predictions in draws
    ]
    everywhere = [name for name in found[0] if all(name in one for one in found)]
    summary: dict[str, Any] = {
        name: {
            "q2": round(statistics.fmean(one[name]["q2"] for one in found), 4),
            "q2_sd": round(statistics.stdev(one[name]["q2"] for one in found), 4) if len(found) > 1 else None,
        }
        for name in everywhere
    }
    about = {
        "command": f"python -m benchmarks.folds OUT {experiment} {' '.join(seeds)}",
        "experiment": load_config(path).experiment.name,
        "processor": processor_name(),
        "strains": len(draws[0][0]),
    }
    write_json(Path(out), {**about, "mean": summary, "draws": dict(zip(seeds, found, strict=True))})


if __name__ == "__main__":
    main(*sys.argv[1:])
