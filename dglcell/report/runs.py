"""List the runs of a folder, a row for each: how far they are, and how good they are."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dglcell.data.table import CLASSIFICATION
from dglcell.errors import DataError, DglcellError, printable
from dglcell.files.owner import current_holder
from dglcell.metrics import UNDEFINED, ResultRow
from dglcell.report.run_files import RunFiles, read_run, read_run_config
from dglcell.runs.directory import EpochLog, RunDirectory

HEADER = ("run", "state", "epoch", "best", "phenotype", "", "val.", "test", "best null model")
RIGHT = ("epoch", "best", "val.", "test")
TITLES = {"pearson": "r", "average_precision": "AP"}
WIDTH = 80


@dataclass(frozen=True)
class RunRow:
    """Hold the state of one run.

    Attributes:
        path: directory of the run.
        state: ``finished``, ``running``, ``stopped``, or ``damaged``.
        epochs: number of epochs that are done.
        planned: number of epochs that the run shall have; 0 where that cannot be read.
        files: contents of a finished run.
    """

    path: Path
    state: str
    epochs: int
    planned: int
    files: RunFiles | None = None


def find_runs(folder: Path) -> list[RunRow]:
    """Return all runs in a folder and below it, by name.

    Raises:
        DataError: there is no such folder, or no run in it.
    """
    if not folder.is_dir():
        raise DataError(f"folder '{folder}' not found", do="give the folder of runs: `dglcell runs FOLDER`")
    paths = sorted(file.parent for file in folder.rglob("seed-*/config.yaml"))
    if not paths:
        raise DataError(f"there is no run in '{folder}'", do="train first with `dglcell train`")
    return [_read(RunDirectory(path)) for path in paths]


def _read(directory: RunDirectory) -> RunRow:
    try:
        planned = int(read_run_config(directory)["trainer"]["epochs"])
        epochs = len(EpochLog(directory.metrics, planned).read())
    except DglcellError:
        return RunRow(directory.path, "damaged", 0, 0)
    try:
        return RunRow(directory.path, "finished", epochs, planned, read_run(directory.path, parts=()))
    except DglcellError:
        return RunRow(directory.path, "running" if current_holder(directory.owner) else "stopped", epochs, planned)


def format_runs(runs: Sequence[RunRow]) -> str:
    """Format a table with a line for each run and phenotype, below the folder that the runs are in.

    Args:
        runs: the runs, at least one.
    """
    lines: list[tuple[Path | None, tuple[str, ...]]] = [(None, HEADER)]
    for run in runs:
        about = (run.path.name, run.state, f"{run.epochs}/{run.planned or '?'}")
        results = list(_results(run.files)) if run.files is not None else [("",) * 6]
        for n, result in enumerate(results):
            # Names may come from untrusted files; their escape codes would control the terminal.
            texts = (*(("",) * 3 if n else about), *result)
            lines.append((run.path.parent, tuple(map(printable, texts))))
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in lines), strict=True)]
    text, before = [], None
    for folder, cells in lines:
        if folder != before:
            text.append(printable(str(folder)))
            before = folder
        *found, null = (
            cell.rjust(width) if title in RIGHT else cell.ljust(width)
            for cell, width, title in zip(cells, widths, HEADER, strict=True)
        )
        line = "  ".join(found) + "  "
        # The last cell goes onto another line where there is no room for it.
        text.append(textwrap.fill(null, WIDTH, initial_indent=line, subsequent_indent=" " * len(line)) or line.rstrip())
    return "\n".join(text)


def _results(files: RunFiles) -> Iterable[tuple[str, ...]]:
    """Return best epoch, phenotype, metric, its values, and the null model that comes closest or is ahead."""
    rows = files.rows
    if not rows:
        yield str(files.best_epoch), ", ".join(files.results["units"]), "", "", "no test part", ""
    for name in dict.fromkeys(row.phenotype for row in rows):
        of_it = [row for row in rows if row.phenotype == name]
        metric = "average_precision" if of_it[0].kind == CLASSIFICATION else "pearson"
        values = {row.part: _value(row, metric) for row in of_it if not row.is_null}
        nulls = [(_value(row, metric), row.model) for row in of_it if row.is_null and row.part == "test"]
        best = max(((value, model) for value, model in nulls if not math.isnan(value)), default=None)
        null = UNDEFINED if best is None else f"{best[0]:.3f} {best[1]}"
        shown = [f"{values[part]:.3f}" if part in values else UNDEFINED for part in ("validation", "test")]
        yield str(files.best_epoch), name, TITLES[metric], *shown, null


def _value(row: ResultRow, metric: str) -> float:
    return float(row.metrics.get(metric, math.nan))
