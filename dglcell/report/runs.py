"""List the runs of a folder, a row for each: how far they are, and how good they are."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dglcell.errors import DataError, DglcellError, aligned, printable
from dglcell.files.owner import current_holder
from dglcell.metrics import HEADLINE, UNDEFINED, best_row
from dglcell.report.run_files import RunFiles, read_run, read_run_config
from dglcell.report.sentences import tested
from dglcell.runs.directory import EpochLog, RunDirectory

HEADER = ("run", "state", "epoch", "best", "phenotype", "", "val.", "test", "best null model")
LEFT = (0, 1, 4, 5)
"""These columns hold words, and are aligned on the left."""

TITLES = {"pearson": "r", "average_precision": "AP"}
WIDTH = 80


@dataclass(frozen=True)
class RunRow:
    """Hold the state of one run."""

    path: Path
    state: str  #: ``finished``, ``running``, ``stopped``, or ``damaged``
    epochs: int  #: number of epochs that are done
    planned: int  #: number of epochs that the run shall have; 0 where that cannot be read
    files: RunFiles | None = None  #: contents of a finished run


def find_runs(folder: Path) -> list[RunRow]:
    """Return all runs in a folder and below it, by name."""
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
    rows, folders = list[tuple[str, ...]]([HEADER]), list[Path | None]([None])
    for run in runs:
        about = (run.path.name, run.state, f"{run.epochs}/{run.planned or '?'}")
        results = list(_results(run.files)) if run.files is not None else [("",) * 6]
        for n, result in enumerate(results):
            # Names may come from untrusted files; their escape codes would control the terminal.
            rows.append(tuple(map(printable, (*(("",) * 3 if n else about), *result))))
            folders.append(run.path.parent)
    text, before = [], None
    for folder, (*_, null), line in zip(folders, rows, aligned([row[:-1] for row in rows], LEFT), strict=True):
        if folder != before:
            text.append(printable(str(folder)))
            before = folder
        # The last cell goes onto another line where there is no room for it.
        line = f"{line}  "
        text.append(textwrap.fill(null, WIDTH, initial_indent=line, subsequent_indent=" " * len(line)) or line.rstrip())
    return "\n".join(text)


def _results(files: RunFiles) -> Iterable[tuple[str, ...]]:
    """Return best epoch, phenotype, metric, its values, and the null model that comes closest or is ahead."""
    rows = files.rows
    if not rows:
        yield str(files.best_epoch), ", ".join(files.results["units"]), "", "", "no test part", ""
    for own, nulls in tested(rows):
        metric = HEADLINE[own.kind]
        best, same = best_row(nulls, metric), [row for row in rows if row.phenotype == own.phenotype]
        null = UNDEFINED if best is None else f"{best.metrics[metric]:.3f} {best.model}"
        values = {row.part: row.metrics.get(metric, math.nan) for row in same if row.is_network}
        shown = [f"{values[part]:.3f}" if part in values else UNDEFINED for part in ("validation", "test")]
        yield str(files.best_epoch), own.phenotype, TITLES[metric], *shown, null
