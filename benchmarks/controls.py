"""Collect what stands beside a model's score: ``python -m benchmarks.controls OUT RUN …``.

Each RUN is the directory of a finished run, for example of ``dglcell train FILE --permuted-labels 20``. Controls that
lie beside it count, whichever process trained them. OUT has its results on the test part, from which the site makes the
table of controls. A run of an earlier version has no intervals: its null models are fitted again, and compared with its
predictions. A run takes the place of an earlier one of the same experiment. Where a run is gone, and controls on its
split are there, they are added to what OUT has of the run, or else to its committed record.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dglcell.errors import DataError
from dglcell.files.atomic import write_json
from dglcell.machine.devices import threads
from dglcell.metrics import ResultRow
from dglcell.report.run_files import NODES, ROWS, RunFiles, read_run, result_rows
from dglcell.report.run_tables import read_predictions
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import read_config
from dglcell.training.control_rows import CONTROLS, control_rows
from dglcell.training.evaluate import rows_as_json, with_ceilings
from dglcell.training.prepare import prepare_run
from dglcell.training.result_rows import null_results

DIGITS = 6
RECORDS = Path("docs/results")

OUTSIDE = re.compile(r"/\S*/(?=conf/)")
"""The folder of a checkout, before the path of an experiment in it."""


def collected(run: RunFiles) -> dict[str, Any]:
    """Return the results of a run on the test part, and how it was made."""
    rows = run.rows if any("ahead_low" in row.metrics for row in run.rows) else compared(run)
    found = described(run.seed, run.environment, run.results["epochs"], [*rows, *run.node_rows])
    return with_controls(found, run.directory.path)


def described(seed: int, about: Mapping[str, Any], epochs: int, rows: Iterable[ResultRow]) -> dict[str, Any]:
    """Return rows of the test part, and how the run with this ``environment.json`` was made."""
    return {
        "seed": seed,
        "command": command_of(about),
        "commit": (about["git"] or {}).get("commit"),
        "epochs": epochs,
        "split_sha256": about["hashes"]["split"],
        "devices": about["devices"],
        "rows": _of_test(rows),
    }


def with_controls(found: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """Return what is known of a run with controls that lie beside its directory, in place of earlier ones."""
    # They may have been trained on other machines.
    beside = _of_test(row for kind in (ROWS, NODES) for row in control_rows(run, found["split_sha256"], kind))
    renewed = {(row["model"], row["phenotype"]) for row in beside}
    kept = [row for row in found["rows"] if (row["model"], row["phenotype"]) not in renewed]
    return {**found, "rows": [*kept, *beside]}


def known(experiments: Mapping[str, Any], run: Path) -> tuple[str, dict[str, Any]]:
    """Return the name of the experiment of a run that is no longer there, and what is known of the run.

    Raises:
        DataError: nothing is known of it.
    """
    for name in ("/".join(run.parts[-3:-1]), run.parts[-2]):
        if f"seed-{experiments.get(name, {}).get('seed')}" == run.name:
            return name, experiments[name]
        record = RunDirectory(RECORDS / name / run.name)
        if record.results.exists():
            about, results = (json.loads(path.read_text()) for path in (record.environment, record.results))
            rows = result_rows([*results[ROWS], *results.get(NODES, [])])
            return name, described(int(run.name.removeprefix("seed-")), about, results["epochs"], rows)
    raise DataError(
        f"there is no run in '{run}'",
        expected="a finished run, or a folder beside controls of a run with a record",
        do="give RUNS/EXPERIMENT/seed-SEED",
    )


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


def _of_test(rows: Iterable[ResultRow]) -> list[dict[str, Any]]:
    return rows_as_json(replace(row, metrics=_short(row.metrics)) for row in rows if row.part == "test")


def _short(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value if math.isnan(value) else float(f"{value:.{DIGITS}g}") for name, value in metrics.items()}


def main(out: str, *runs: str) -> None:
    """Write the file."""
    path = Path(out)
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"experiments": {}}
    found["what"] = "Results of single runs on the test part, with null models and controls."
    for given in map(Path, runs):
        if RunDirectory(given).results.exists():
            run = read_run(given, parts=())
            # The name of the experiment is that of its file, whatever a draw of it was called.
            name, of_run = run.name.partition("/draw-")[0], collected(run)
        else:
            name, before = known(found["experiments"], given)
            of_run = with_controls(before, given)
        found["experiments"] = dict(sorted({**found["experiments"], name: of_run}.items()))
        write_json(path, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
