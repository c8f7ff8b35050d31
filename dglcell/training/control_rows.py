"""Read the controls of a run: the same model without messages, and the same model on permuted labels."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dglcell.metrics import COLUMNS, LOWER_IS_BETTER, PERMUTED, UNRANKED, ResultRow
from dglcell.report.run_files import ROWS, RunFiles, read_run, result_rows
from dglcell.runs.directory import RunDirectory

log = logging.getLogger("dglcell")

WITHOUT_MESSAGES = "without messages"
"""Tables give this name to the same model with no round of messages (``dglcell.training.control``)."""

CONTROL = "-without-messages"
"""The name of the control's experiment ends in this text."""

OF_PERMUTED = "-permuted-labels"
"""The name of the experiment of runs on permuted labels ends in this text and the number of the permutation."""

CHANCE = 0.95
"""So many of the runs on permuted labels score no better than their row says."""

CONTROLS = (WITHOUT_MESSAGES, PERMUTED)
"""Rows of these names are of the model itself under other conditions, and no null models."""


def control_rows(run: Path, split_sha256: str, kind: str = ROWS) -> list[ResultRow]:
    """Return the metrics of a run's controls, as far as they were trained with its seed and on its split.

    Args:
        run: run directory of the experiment; those of its controls are looked for beside the experiment.
        split_sha256: SHA-256 of the split of the run.
        kind: ``rows`` of phenotypes, or of ``nodes``.
    """
    name = run.parent.name
    quiet = list(_on_split([run.parent.with_name(f"{name}{CONTROL}") / run.name], split_sha256))
    rows = [dataclasses.replace(row, model=WITHOUT_MESSAGES, is_null=True) for row in _own(quiet, kind)]
    if kind != ROWS:  # values of nodes are never permuted
        return rows
    found = sorted(run.parent.with_name(f"{name}{OF_PERMUTED}").glob(f"*/{run.name}"))
    permuted = [_own([one], kind) for one in _on_split(found, split_sha256)]
    return rows + [_at_chance(of_all) for of_all in zip(*permuted, strict=True)]


def _on_split(paths: list[Path], split_sha256: str) -> Iterator[RunFiles]:
    """Yield the runs that are finished and have a split."""
    for path in paths:
        if not RunDirectory(path).results.exists():
            continue
        control = read_run(path, parts=())
        if control.environment["hashes"]["split"] == split_sha256:
            yield control
        else:
            log.info("%s was trained on another split, and is not compared with", path)


def _own(runs: list[RunFiles], kind: str) -> list[ResultRow]:
    """Return the rows of the models of runs, without their null models."""
    return [row for run in runs for row in result_rows(run.results.get(kind, [])) if not row.is_null]


def _at_chance(rows: tuple[ResultRow, ...]) -> ResultRow:
    """Return the row that 95 % of some rows do not exceed, metric by metric; of fewer than 20 rows it is the best."""
    metrics = {"permutations": float(len(rows))}
    for name in COLUMNS[rows[0].kind]:
        values = [row.metrics.get(name, np.nan) for row in rows]
        if name in UNRANKED:
            metrics[name] = values[0]
        elif name in LOWER_IS_BETTER:
            metrics[name] = float(np.quantile(values, 1 - CHANCE, method="lower"))
        else:
            metrics[name] = float(np.quantile(values, CHANCE, method="higher"))
    return dataclasses.replace(rows[0], model=PERMUTED, is_null=True, metrics=metrics)
