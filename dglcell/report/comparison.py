"""Compare several runs: metrics over the runs of each experiment, differences of configurations, page and list."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dglcell import __version__
from dglcell.errors import CheckpointError, DataError, DglcellError, aligned, count, printable
from dglcell.files.atomic import atomic_file
from dglcell.files.owner import current_holder
from dglcell.metrics import COLUMNS, ENSEMBLE_OF, HEADLINE, UNRANKED, best_row, rows_of
from dglcell.report.page import UNDEFINED, Grid, Line, ResultsTable, best_of, format_value, number, tested, write_page
from dglcell.report.run_files import RunFiles, read_predictions, read_run, read_run_config
from dglcell.runs.directory import MEND, EpochLog, RunDirectory

UNSHOWN = ("seed", "experiment", "paths", "tracking", "resume", "plot", "plot_points")
"""These keys name, place or draw a run, but do not change its results."""


Key = tuple[str, str, str]
"""A number of a table belongs to a phenotype, a part and a metric."""


@dataclass(frozen=True)
class Group:
    """Hold runs that are averaged: those of one experiment, or baselines on one split."""

    name: str  #: of the experiment or baseline
    model: str
    is_baseline: bool
    kinds: dict[str, str]  #: phenotype → kind of its labels
    values: dict[Key, list[float]]  #: one value a run, NaN where undefined
    together: int = 0  #: runs whose mean prediction the values are of; 0 where each run has its own values

    @property
    def kind(self) -> str:
        """Say in a word or two what the group is."""
        return "baseline" if self.is_baseline else "mean of runs" if self.together else "experiment"

    def mean(self, key: Key) -> float:
        """Return the mean over the runs; NaN where any of them is undefined."""
        return float(np.mean(self.values.get(key, math.nan)))

    def sd(self, key: Key) -> float:
        """Return the sample standard deviation over the runs; NaN for a single one."""
        values = self.values.get(key, [])
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def group_runs(runs: Sequence[RunFiles]) -> list[Group]:
    """Group runs: experiments in the order they are given, then the baselines.

    Baselines know no seed: where all runs share a split there is one group for each; else one for each split.
    """
    paths = [run.directory.path.resolve() for run in runs]
    twice = sorted({str(run.directory.path) for run, path in zip(runs, paths, strict=True) if paths.count(path) > 1})
    if twice:
        raise DataError("a run is given twice", got=", ".join(twice), expected="different run directories")
    splits = list(dict.fromkeys(run.environment["hashes"]["split"] for run in runs))
    groups: dict[tuple[str, bool], Group] = {}
    for run in runs:
        split = f", split {run.environment['hashes']['split'][:8]}" if len(splits) > 1 else ""
        for row in run.rows:
            name, model = row.model + split if row.is_baseline else run.name, row.model
            if row.is_ensemble:  # of each run with a weight of its own
                name, model = f"{run.name}, with a baseline", f"{ENSEMBLE_OF}baseline"
            group = groups.setdefault((name, row.is_baseline), Group(name, model, row.is_baseline, {}, {}))
            group.kinds[row.phenotype] = row.kind
            for metric, value in row.metrics.items():
                group.values.setdefault((row.phenotype, row.part, metric), []).append(value)
    return sorted(groups.values(), key=lambda group: group.is_baseline)  # the sort is stable


def joined_runs(runs: Sequence[RunFiles]) -> list[Group]:
    """Score the mean prediction of each experiment of which several runs share a split with a test part."""
    by_name: dict[str, list[RunFiles]] = {}
    for run in runs:
        if run.rows:
            by_name.setdefault(run.name, []).append(run)
    splits = {name: {run.environment["hashes"]["split"] for run in own} for name, own in by_name.items()}
    return [_joined(name, own) for name, own in by_name.items() if len(own) > len(splits[name]) == 1]


def _joined(name: str, runs: Sequence[RunFiles]) -> Group:
    own = [row for row in runs[0].rows if row.is_network]
    group = Group(f"{name}, together", own[0].model, False, {row.phenotype: row.kind for row in own}, {}, len(runs))
    parts = dict.fromkeys(row.part for row in own)
    tables = {part: [read_predictions(run.directory, part, of_network=True) for run in runs] for part in parts}
    for phenotype, kind in group.kinds.items():
        measured, predicted = {}, {}
        for part, of_runs in tables.items():
            found = [table[phenotype] for table in of_runs if phenotype in table]
            labels = [each.measured for each in found]
            if len(found) < len(runs) or not all(np.array_equal(one, labels[0], equal_nan=True) for one in labels):
                what = f"the runs of {name} have the same split, but not predictions of the same strains"
                raise CheckpointError(what, do=MEND)
            measured[part], predicted[part] = labels[0], np.mean([each.predicted for each in found], axis=0)
        for row in rows_of(group.model, phenotype, kind, predicted, measured):
            group.values.update({(phenotype, row.part, metric): [value] for metric, value in row.metrics.items()})
    return group


def comparison_tables(groups: Sequence[Group]) -> list[ResultsTable]:
    """Make a table for each kind of labels."""
    kinds = dict.fromkeys(kind for group in groups for kind in group.kinds.values())
    return [_table(groups, kind) for kind in kinds]


def _table(groups: Sequence[Group], kind: str) -> ResultsTable:
    """Make a table with blocks of phenotype and part, test first; cells are mean ± SD over runs."""
    columns = COLUMNS[kind]
    blocks = dict.fromkeys((p, part) for group in groups for p, part, _ in group.values if group.kinds[p] == kind)
    lines = []
    for block in sorted(blocks, key=lambda block: block[1] != "test"):
        inside = [group for group in groups if (*block, "n") in group.values]
        best = {metric: best_of([group.mean((*block, metric)) for group in inside], metric) for metric in columns}
        for i, group in enumerate(inside):
            labels = [*(block if i == 0 else ("", "")), group.name, "" if group.is_baseline else group.model]
            runs = group.together or len(group.values[*block, "n"])
            cells = [("" if group.is_baseline else str(runs), False)]
            cells += [(_cell(group, (*block, metric)), i in best[metric]) for metric in columns]
            lines.append(Line(labels, cells, group.is_baseline))
    return ResultsTable(["phenotype", "part", "experiment", "model", "runs", *columns.values()], 4, lines)


def write_numbers(groups: Sequence[Group], path: Path) -> None:
    """Write the numbers of these tables and all other metrics as CSV, one value a row."""
    import pandas as pd

    columns = ("kind", "name", "phenotype", "part", "metric", "mean", "sd", "runs")
    rows = [
        (group.kind, group.name, *key, group.mean(key), group.sd(key), group.together or len(values))
        for group in groups
        for key, values in group.values.items()
    ]
    with atomic_file(path) as partial:
        pd.DataFrame(rows, columns=columns).to_csv(partial, index=False, float_format="%.7g", lineterminator="\n")


def differences(runs: Sequence[RunFiles]) -> Grid:
    """Return keys of the configurations that differ between any two runs: a key a row, an experiment a column.

    Where runs of one experiment differ among themselves, all its values are listed.
    """
    import pandas as pd

    names = [run.name for run in runs]
    flat = [_flatten({k: v for k, v in run.config.items() if k not in UNSHOWN}) for run in runs]
    table = pd.DataFrame(flat, dtype=object).fillna(UNDEFINED)
    of_each = table.groupby(names, sort=False).agg(_listed)
    rows = [[str(key), *of_each[key]] for key in table if table[key].nunique() > 1]
    return Grid(["key", *of_each.index], rows, texts=1 + len(of_each))


def _listed(texts: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(texts))


def warnings_of(runs: Sequence[RunFiles]) -> list[str]:
    """Return warnings that a reader needs before comparing."""
    found, names = [], list(dict.fromkeys(run.name for run in runs))
    if (splits := len({run.environment["hashes"]["split"] for run in runs})) > 1:
        found.append(f"The runs use {splits} different splits. They were therefore not tested on the same strains.")
    if untested := dict.fromkeys(run.name for run in runs if not run.rows):
        found.append(f"{', '.join(untested)}: every strain trained, so that there is no test part and no row below.")
    for name in names:
        differing = [row[0] for row in differences([run for run in runs if run.name == name]).rows]
        if differing:
            found.append(f"Runs of {name} differ in more than their seed: {', '.join(differing)}.")
    return found


def _flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return flat


def _cell(group: Group, key: Key) -> str:
    mean, sd = group.mean(key), group.sd(key)
    text = format_value(key[2], mean)
    if group.is_baseline or key[2] in UNRANKED or not math.isfinite(sd):
        return text
    return f"{text} ± {sd:#.2g}".removesuffix(".")


NOTE = (
    "Mean ± sample standard deviation over the runs of an experiment. “together” is the mean prediction of its runs. "
    "* is the best of a column in its block. Baselines are grey, and fitted on the same split."
)
DEFAULT_OUTPUT = Path("comparison.html")


def write_comparison(paths: Sequence[Path], output: Path | None = None) -> Path:
    """Compare finished runs on one page, and write its numbers to a CSV file beside it.

    Args:
        paths: run directories; those of the same experiment are averaged.
        output: path of the page; ``comparison.html`` in the working directory where None.
    """
    output = Path(output or DEFAULT_OUTPUT)
    runs = [read_run(path, parts=()) for path in paths]
    groups = sorted([*group_runs(runs), *joined_runs(runs)], key=lambda group: group.is_baseline)  # the sort is stable
    content = {
        "version": __version__,
        "title": "Comparison of " + ", ".join(dict.fromkeys(run.name for run in runs)),
        "subtitle": f"{count(len(runs), 'run')} of {count(len({run.name for run in runs}), 'experiment')}",
        "warnings": warnings_of(runs),
        "tables": comparison_tables(groups),
        "table_note": NOTE,
        "differences": differences(runs),
        "runs": runs_table(runs),
    }
    write_numbers(groups, output.with_suffix(".csv"))
    return write_page("comparison.html", output, **content)


def runs_table(runs: Sequence[RunFiles]) -> Grid:
    """Make a table of where each run is, and what it was made of."""
    rows = [
        [
            *(run.name, str(run.directory.path), run.environment["hashes"]["split"][:12]),
            (run.environment["git"] or {}).get("commit", UNDEFINED)[:12],
            *(str(run.seed), f"{run.environment['parameters']:,}", str(len(run.history)), str(run.best_epoch)),
            number(run.history.minutes, 3),
        ]
        for run in runs
    ]
    heads = ["experiment", "directory", "split", "commit", "seed", "parameters", "epochs", "best epoch", "minutes"]
    return Grid(heads, rows, texts=4)


# A list of the runs of a folder, a row for each: how far they are, and how good they are.


HEADER = ("run", "state", "epoch", "best", "phenotype", "", "val.", "test", "best baseline")
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
    """Format a table with a line for each run and phenotype, below the folder that the runs are in."""
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
    """Return best epoch, phenotype, metric, its values, and the baseline that comes closest or is ahead."""
    rows = files.rows
    if not rows:
        yield str(files.best_epoch), ", ".join(files.results["units"]), "", "", "no test part", ""
    for own, baselines in tested(rows):
        metric = HEADLINE[own.kind]
        best, same = best_row(baselines, metric), [row for row in rows if row.phenotype == own.phenotype]
        null = "-" if best is None else f"{best.metrics[metric]:.3f} {best.model}"
        values = {row.part: row.metrics.get(metric, math.nan) for row in same if row.is_network}
        shown = [f"{values[part]:.3f}" if part in values else "-" for part in ("validation", "test")]
        yield str(files.best_epoch), own.phenotype, TITLES[metric], *shown, null
