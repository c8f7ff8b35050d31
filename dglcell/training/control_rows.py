"""Read the control of a run: the same model without messages."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from dglcell.metrics import ResultRow
from dglcell.report.run_files import read_run
from dglcell.runs.directory import RunDirectory

log = logging.getLogger("dglcell")

WITHOUT_MESSAGES = "without messages"
"""Tables give this name to the same model with no round of messages (``dglcell.training.control``)."""

CONTROL = "-without-messages"
"""The name of the control's experiment ends in this text."""


def control_rows(run: Path, split_sha256: str) -> list[ResultRow]:
    """Return the metrics of a run's control, if it was trained with its seed and on its split.

    Args:
        run: run directory of the experiment; that of its control is looked for beside the experiment.
        split_sha256: SHA-256 of the split of the run.
    """
    path = run.parent.with_name(f"{run.parent.name}{CONTROL}") / run.name
    if not RunDirectory(path).results.exists():
        return []
    control = read_run(path, parts=())
    if control.environment["hashes"]["split"] != split_sha256:
        log.info("%s was trained on another split, and is not compared with", path)
        return []
    rows = (row for row in control.rows if row.is_network)
    return [dataclasses.replace(row, model=WITHOUT_MESSAGES, is_null=True) for row in rows]
