"""The runs of a folder, a row for each: how far they are, and how good they are."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dglcell.data.table import CLASSIFICATION
from dglcell.errors import DataError, DglcellError
from dglcell.metrics import UNDEFINED, ResultRow
from dglcell.owner import current_holder
from dglcell.report.run_files import RunFiles, read_run, read_run_config
from dglcell.run_directory import EpochLog, RunDirectory

HEADER = ("run", "state", "epochs", "best epoch", "phenotype", "metric", "validation", "test", "best null model")
RIGHT = ("epochs", "best epoch", "validation", "test")
TITLES = {"pearson": "Pearson", "average_precision": "AP"}


@dataclass(frozen=True)
class RunRow:
    """One run.

    Attributes:
        path: its directory.
        state: ``finished``, ``running``, ``stopped``, or ``damaged``.
        epochs: how many are done.
        planned: how many there shall be; 0 where that cannot be read.
        files: of a finished run.
    """

    path: Path
    state: str
    epochs: int
    planned: int
    files: RunFiles | None = None


def find_runs(folder: Path) -> list[RunRow]:
    """All runs in a folder and below it, by name.

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


def format_runs(runs: Sequence[RunRow], width: int | None = None) -> str:
    """A table with a line for each run and phenotype.

    Args:
        runs: at least one.
        width: of the terminal; as wide as it takes where None.
    """
    table = Table(box=None, pad_edge=False)
    for title in HEADER:
        table.add_column(title, justify="right" if title in RIGHT else "left", no_wrap=True)
    for run in runs:
        about = (str(run.path), run.state, f"{run.epochs}/{run.planned or '?'}")
        lines = list(_results(run.files)) if run.files is not None else []
        for number, line in enumerate(lines or [("", "", "", "", "", "")]):
            table.add_row(*(about if number == 0 else ("", "", "")), *line)
    buffer = io.StringIO()
    Console(file=buffer, force_jupyter=False, width=width or 1000, markup=False, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def _results(files: RunFiles) -> Iterable[tuple[str, ...]]:
    """Best epoch, phenotype, metric, its values, and the null model that comes closest or is ahead."""
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
