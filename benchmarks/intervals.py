"""Count intervals that hold the measured value: ``python -m benchmarks.intervals OUT DRAWS EXPERIMENT … KEY=VALUE …``.

Each experiment is trained DRAWS times, with another seed of its split each time; keys such as ``paths.runs`` and
``paths.data`` say where, and ``experiment.name`` calls an experiment with other keys by another name. Intervals are
calibrated on the validation part of a draw. OUT says which share of the test part they hold, and how wide they are,
beside intervals that are equally wide everywhere. Draws that OUT has already are kept, and finished runs are not
trained again. An EXPERIMENT may also be the directory of a finished run, which is calibrated from its predictions.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dglcell
from dglcell.config.read import load_config
from dglcell.files.atomic import write_json
from dglcell.machine.processor import processor_name
from dglcell.report.run_tables import read_predictions
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import read_config
from dglcell.training.evaluate import calibrate_intervals
from dglcell.training.prepare import prepare_run
from dglcell.uncertainty.conformal import fewest_strains
from dglcell.uncertainty.difficulty import CONSTANT

COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)
KINDS = ("chosen", CONSTANT)


def measure(directory: RunDirectory) -> dict[str, Any]:
    """Return what intervals of a run's first phenotype do on its test part, for each coverage."""
    config = replace(read_config(directory), plot=False)
    prepared = prepare_run(config, directory, "benchmark", continued=True)
    strains = prepared.dataset.take(prepared.parts["test"]).numpy()
    of_parts = {part: read_predictions(directory, part) for part in ("validation", "test")}
    predictions = {part: np.stack([one.predicted for one in of.values()], 1) for part, of in of_parts.items()}
    results = json.loads(directory.results.read_text(encoding="utf-8"))
    calibration = calibrate_intervals(prepared, predictions, results["checkpoint"], results["epoch"])
    assert calibration is not None
    name, predicted = next(iter(of_parts["test"])), predictions["test"][:, 0]
    calibrated = calibration.phenotypes[name]
    found: dict[str, Any] = {"difficulty": calibrated.difficulty.kind, "calibrated": len(calibrated.scores)}
    for coverage in COVERAGES:
        if len(calibrated.scores) >= fewest_strains(coverage):
            of_kinds = {
                kind: calibration.coverage(name, strains, predicted, coverage, constant=kind == CONSTANT)
                for kind in KINDS
            }
            found[f"{coverage:g}"] = {
                kind: {"inside": round(one.inside, 4), "width": float(f"{one.width:.4g}"), "n": one.n}
                for kind, one in of_kinds.items()
            }
    return found


def summed_up(draws: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and standard deviation of coverage and width over the draws."""
    found: dict[str, Any] = {}
    for coverage in (f"{one:g}" for one in COVERAGES):
        mine = [draw[coverage] for draw in draws if coverage in draw]
        for kind in KINDS if len(mine) == len(draws) else ():
            inside = [one[kind]["inside"] for one in mine]
            found.setdefault(coverage, {})[kind] = {
                "inside": round(statistics.fmean(inside), 4),
                "inside_sd": round(statistics.stdev(inside), 4) if len(inside) > 1 else None,
                "width": float(f"{statistics.fmean(one[kind]['width'] for one in mine):.4g}"),
            }
    return found


def main(out: str, draws: str, *more: str) -> None:
    """Write the file."""
    path = Path(out)
    found = json.loads(path.read_text()) if path.exists() else {"experiments": {}}
    found["what"] = "Shares of test strains inside intervals that are calibrated on the validation part of each draw."
    found["processor"] = processor_name()
    named = [one for one in more if "=" in one]
    given = [one for one in named if not one.startswith("experiment.name=")]
    for experiment in (one for one in more if "=" not in one):
        is_run = Path(experiment).is_dir()
        config = read_config(RunDirectory(Path(experiment))) if is_run else load_config(Path(experiment), named)
        name = config.experiment.name
        of_experiment = found["experiments"].setdefault(name, {"draws": {}})
        of_experiment["split"] = config.split.kind
        measured = of_experiment["draws"]
        seeds = [str(config.seed)] if is_run else map(str, range(int(draws)))
        for seed in (one for one in seeds if one not in measured):
            run = Path(experiment)
            if not is_run:
                keys = [f"split.seed={seed}", f"seed={seed}", "trainer.threads=1", "null_models=false", "plot=false"]
                run = dglcell.train(experiment, *keys, f"experiment.name={name}/draw-{seed}", *given).directory
            measured[seed] = measure(RunDirectory(run))
            of_experiment["mean"] = summed_up(list(measured.values()))
            write_json(path, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
