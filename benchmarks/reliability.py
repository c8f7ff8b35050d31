"""Say whether calibrated probabilities of a class are right: ``python -m benchmarks.reliability OUT RUN …``.

Each RUN is the directory of a finished run whose first phenotype is a class. Test strains are put together by the
probability that was calibrated on the validation part, and OUT has the share of each group that is of the class. The
same is measured for the model's predictions themselves, cut to 0 and 1. A run takes the place of an earlier one of the
same experiment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.files.atomic import write_json
from dglcell.report.run_files import read_run
from dglcell.report.run_tables import read_predictions
from dglcell.runs.directory import RunDirectory
from dglcell.uncertainty.calibration import Calibration

EDGES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""These probabilities divide strains into groups."""


def reliability(probability_S: NDArray[np.floating], is_class_S: NDArray[np.bool_]) -> dict[str, Any]:
    """Return how far probabilities are from what happened.

    Args:
        probability_S: probability of each strain.
        is_class_S: whether it is of the class.

    Returns:
        ``groups`` of strains with similar probabilities, with their number ``n``, mean ``probability``, the ``share``
        that is of the class and its ``standard_error``; ``error``, the mean distance of probability and share over
        groups, each counted by its strains; and ``brier``, the mean squared error.
    """
    group_S = np.searchsorted(EDGES, probability_S, side="right")
    groups = []
    for group in np.unique(group_S):
        inside = group_S == group
        n, mean, share = int(inside.sum()), float(probability_S[inside].mean()), float(is_class_S[inside].mean())
        error = (share * (1 - share) / n) ** 0.5
        groups.append({"n": n, "probability": mean, "share": share, "standard_error": error})
    distance = sum(one["n"] * abs(one["probability"] - one["share"]) for one in groups) / len(probability_S)
    return {
        "groups": [
            {name: value if name == "n" else float(f"{value:.4g}") for name, value in one.items()} for one in groups
        ],
        "error": float(f"{distance:.3g}"),
        "brier": float(f"{np.mean((probability_S - is_class_S) ** 2):.4g}"),
    }


def measure(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the name of a run's experiment, and what its probabilities are worth on the test part."""
    directory, run = RunDirectory(path), read_run(path, parts=())
    calibrated = Calibration.load(directory.calibration).phenotypes
    phenotype = next(iter(calibrated))
    made = calibrated[phenotype].probability
    assert made is not None, f"{path} has no calibrated probabilities"
    found = read_predictions(directory, "test")[phenotype]
    known = ~np.isnan(found.measured)
    predicted, is_class = found.predicted[known], found.measured[known] == 1
    about = run.environment
    return run.name, {
        "phenotype": phenotype,
        "seed": run.seed,
        "command": about["command"],
        "commit": (about["git"] or {}).get("commit"),
        "devices": about["devices"],
        "split_sha256": about["hashes"]["split"],
        "map": made.kind,
        "n": len(predicted),
        "of_class": int(is_class.sum()),
        "probabilities": reliability(made(predicted), is_class),
        "predictions": reliability(np.clip(predicted, 0, 1), is_class),
    }


def main(out: str, *runs: str) -> None:
    """Write the file."""
    path = Path(out)
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"experiments": {}}
    found["what"] = "Shares of test strains of a class, in groups of similar calibrated probabilities."
    for name, measured in map(measure, map(Path, runs)):
        found["experiments"] = dict(sorted({**found["experiments"], name: measured}.items()))
        write_json(path, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
