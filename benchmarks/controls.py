"""Collect what stands beside a model's score: ``python -m benchmarks.controls OUT RUN …``.

Each RUN is the directory of a finished run, for example of ``dglcell train FILE --permuted-labels 20``. Controls that
lie beside it count, whichever process trained them. OUT has its results on the test part, from which the site makes the
table of controls. A run of an earlier version has no intervals: its null models are fitted again, and compared with its
predictions. A run takes the place of an earlier one of the same experiment.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dglcell.files.atomic import write_json
from dglcell.machine.devices import threads
from dglcell.metrics import ResultRow
from dglcell.report.run_files import RunFiles, read_predictions, read_run
from dglcell.training.checkpoint import read_config
from dglcell.training.control_rows import CONTROLS, control_rows
from dglcell.training.evaluate import null_results, rows_as_json, with_ceilings
from dglcell.training.prepare import prepare_run

DIGITS = 6

OUTSIDE = re.compile(r"/\S*/(?=conf/)")
"""The folder of a checkout, before the path of an experiment in it."""


def collected(run: RunFiles) -> dict[str, Any]:
    """Return the results of a run on the test part, and how it was made."""
    rows = run.rows if any("ahead_low" in row.metrics for row in run.rows) else compared(run)
    about = run.environment
    # Controls may have been trained beside the run, on other machines.
    beside = control_rows(run.directory.path, about["hashes"]["split"])
    rows = [row for row in rows if row.model not in {one.model for one in beside}] + beside
    test = [replace(row, metrics=_short(row.metrics)) for row in [*rows, *run.node_rows] if row.part == "test"]
    return {
        "seed": run.seed,
        "command": command_of(about),
        "commit": (about["git"] or {}).get("commit"),
        "epochs": run.results["epochs"],
        "split_sha256": about["hashes"]["split"],
        "devices": about["devices"],
        "rows": rows_as_json(test),
    }


def command_of(environment: Mapping[str, Any]) -> str:
    """Return the command of a run without where files lay, which says nothing about it."""
    command = OUTSIDE.sub("", environment["command"])
    return shlex.join(word for word in shlex.split(command) if not word.startswith(("paths.", "data.store=")))


def compared(run: RunFiles) -> list[ResultRow]:
    """Return the rows of a run with null models that are fitted now, and compared with its predictions."""
    directory = run.directory
    prepared = prepare_run(read_config(directory), directory, "benchmark", continued=True)
    predicted_ST = np.stack([one.predicted for one in read_predictions(directory, "test").values()], 1)
    own = with_ceilings([row for row in run.rows if not row.is_null], prepared)
    with threads(1):
        nulls = null_results(prepared, predicted_ST).rows
    return [*own, *nulls, *(row for row in run.rows if row.model in CONTROLS)]


def _short(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value if math.isnan(value) else float(f"{value:.{DIGITS}g}") for name, value in metrics.items()}


def main(out: str, *runs: str) -> None:
    """Write the file."""
    path = Path(out)
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"experiments": {}}
    found["what"] = "Results of single runs on the test part, with null models and controls."
    for run in (read_run(Path(name), parts=()) for name in runs):
        # The name of the experiment is that of its file, whatever a draw of it was called.
        name = run.name.partition("/draw-")[0]
        found["experiments"] = dict(sorted({**found["experiments"], name: collected(run)}.items()))
        write_json(path, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
