"""Compare several runs: metrics over the runs of each experiment, differences of configurations, page and list."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.errors import DataError, DglcellError, aligned, count, printable
from dglcell.files.atomic import atomic_file
from dglcell.files.owner import current_holder
from dglcell.metrics import COLUMNS, ENSEMBLE_OF, HEADLINE, UNRANKED, WITHOUT_MESSAGES, best_row
from dglcell.report import UNDEFINED, format_value, number
from dglcell.report.page import NOTE, Grid, Line, ResultsTable, best_of, tested, write_page
from dglcell.report.run_files import RunFiles, read_run, read_run_config
from dglcell.runs import EpochLog, RunDirectory

if TYPE_CHECKING:
    import pandas as pd

UNSHOWN = ("seed", "experiment", "paths", "tracking", "resume", "plot", "plot_points")
"""These keys name, place or draw a run, but do not change its results."""

EXPERIMENT, BASELINE = "experiment", "baseline"
GROUP = ["kind", "name", "model"]
"""Runs of one of the two kinds above, of one name, are averaged; baselines know no seed."""

NUMBER = ["labels", "phenotype", "part", "metric"]
"""Each group has a number for each of these; ``labels`` is the kind of the phenotype's labels."""


def summary(runs: Sequence[RunFiles]) -> pd.DataFrame:
    """Average the metrics of runs: a row for each group and number, with ``mean``, ``sd`` and the number of ``runs``.

    Experiments come first, with their ensembles and ablations, then the baselines, which have a group for each split
    and cell graph. Means are NaN where any value is undefined.
    """
    import pandas as pd

    paths = [run.directory.path.resolve() for run in runs]
    twice = sorted({str(run.directory.path) for run, path in zip(runs, paths, strict=True) if paths.count(path) > 1})
    if twice:
        raise DataError("a run is given twice", got=", ".join(twice), expected="different run directories")
    several = [what for what in ("split", "cell") if len({run.environment["hashes"][what] for run in runs}) > 1]
    values = list[tuple[object, ...]]()
    for run in runs:
        fitted_on = "".join(f", {what} {run.environment['hashes'][what][:8]}" for what in several)
        for row in run.rows:
            group = (BASELINE, row.model + fitted_on, "") if row.is_baseline else (EXPERIMENT, run.name, row.model)
            if row.is_ensemble:  # of each run with a weight of its own
                group = EXPERIMENT, f"{run.name}, with a baseline", f"{ENSEMBLE_OF}baseline"
            if row.model == WITHOUT_MESSAGES:
                group = EXPERIMENT, f"{run.name}, {row.model}", row.model
            of_row = (*group, row.kind, row.phenotype, row.part)
            values += [(*of_row, metric, value) for metric, value in row.metrics.items()]
    grouped = pd.DataFrame(values, columns=[*GROUP, *NUMBER, "value"]).groupby([*GROUP, *NUMBER], sort=False)["value"]
    found = grouped.agg(mean=lambda of: of.mean(skipna=False), sd=lambda of: of.std(skipna=False), runs="size")
    table: pd.DataFrame = found.reset_index()
    order = {"kind": table["kind"] == BASELINE, "name": pd.factorize(table["name"])[0]}  # names as they come first
    return table.loc[pd.DataFrame(order, table.index).sort_values(["kind", "name"], kind="stable").index]


def comparison_tables(found: pd.DataFrame) -> list[ResultsTable]:
    """Make a table for each kind of labels, with blocks of phenotype and part, test first; cells are mean ± SD."""
    tables = []
    for labels, of_kind in found.groupby("labels", sort=False):
        metrics, lines = COLUMNS[str(labels)], list[Line]()
        blocks = of_kind.groupby(["phenotype", "part"], sort=False)
        for block, inside in sorted(blocks, key=lambda one: one[0][1] != "test"):
            groups = [(group, own.set_index("metric")) for group, own in inside.groupby(GROUP, sort=False)]
            means = {metric: [own["mean"].get(metric, math.nan) for _, own in groups] for metric in metrics}
            best = {metric: best_of(of_metric, metric) for metric, of_metric in means.items()}
            for i, ((kind, name, model), own) in enumerate(groups):
                is_baseline = kind == BASELINE
                cells = [("" if is_baseline else str(own["runs"].iloc[0]), False)]
                for metric in metrics:
                    sd = math.nan if is_baseline or metric in UNRANKED else own["sd"].get(metric, math.nan)
                    spread = f" ± {sd:#.2g}".removesuffix(".") if math.isfinite(sd) else ""
                    cells.append((format_value(metric, means[metric][i]) + spread, i in best[metric]))
                labels_of = map(str, (*(block if i == 0 else ("", "")), name, model))
                lines.append(Line([*labels_of], cells, is_baseline))
        columns = ["phenotype", "part", "experiment", "model", "runs", *metrics.values()]
        tables.append(ResultsTable(columns, 4, lines))
    return tables


def differences(runs: Sequence[RunFiles]) -> Grid:
    """Return keys of the configurations that differ between any two runs: a key a row, an experiment a column.

    Where runs of one experiment differ among themselves, all its values are listed.
    """
    import pandas as pd

    def text(value: object) -> str:
        return value if isinstance(value, str) else UNDEFINED if value != value else json.dumps(value)

    shown = [{key: value for key, value in run.config.items() if key not in UNSHOWN} for run in runs]
    table = pd.json_normalize(shown).map(text)
    of_each = table.groupby([run.name for run in runs], sort=False).agg(list)
    rows = [
        [str(key), *(" | ".join(dict.fromkeys(of)) for of in of_each[key])] for key in table if table[key].nunique() > 1
    ]
    return Grid(["key", *of_each.index], rows, texts=1 + len(of_each))


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


def write_comparison(paths: Sequence[Path], output: Path) -> Path:
    """Compare finished runs on one page, and write all its numbers to a CSV file beside it, one a row."""
    runs = [read_run(path, parts=()) for path in paths]
    found = summary(runs)
    content = {
        "title": "Comparison of " + ", ".join(dict.fromkeys(run.name for run in runs)),
        "subtitle": f"{count(len(runs), 'run')} of {count(len({run.name for run in runs}), 'experiment')}",
        "warnings": warnings_of(runs),
        "tables": comparison_tables(found),
        "table_note": f"Mean ± sample standard deviation over the runs of an experiment. {NOTE}",
        "differences": differences(runs),
        "runs": runs_table(runs),
    }
    columns = ["kind", "name", "phenotype", "part", "metric", "mean", "sd", "runs"]
    with atomic_file(output.with_suffix(".csv")) as partial:
        found[columns].to_csv(partial, index=False, float_format="%.7g", lineterminator="\n")
    return write_page("comparison.html", output, **content)


def runs_table(runs: Sequence[RunFiles]) -> Grid:
    """Make a table of where each run is, and what it was made of."""
    rows = [
        [
            *(run.name, str(run.directory.path), *(run.environment["hashes"][what][:12] for what in ("split", "cell"))),
            (run.environment["git"] or {}).get("commit", UNDEFINED)[:12],
            *(str(run.seed), f"{run.environment['parameters']:,}", str(len(run.history)), str(run.best_epoch)),
            number(run.minutes, 3),
        ]
        for run in runs
    ]
    heads = ["experiment", "directory", "split", "cell", "commit", "seed", "parameters", "epochs", "best epoch"]
    return Grid([*heads, "minutes"], rows, texts=5)


# A list of the runs of a folder, a row for each: how far they are, and how good they are.


HEADER = ("run", "state", "epoch", "best", "phenotype", "", "val.", "test", "best baseline")
LEFT = (0, 1, 4, 5)  # these columns hold words, and are aligned on the left


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
    paths = sorted((f.parent for f in folder.rglob("seed-*/config.yaml")), key=lambda p: (p.parent, len(p.name), p))
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
    rows, folders = list[Sequence[str]]([HEADER]), [""]
    for run in runs:
        about = (run.path.name, run.state, f"{run.epochs}/{run.planned or '?'}")
        results = list(_results(run.files)) if run.files is not None else [("",) * 6]
        rows += [(*(about if n == 0 else ("",) * 3), *result) for n, result in enumerate(results)]
        folders += [printable(str(run.path.parent))] * len(results)
    # Names may come from untrusted files; their escape codes would control the terminal.
    rows = [[printable(cell) for cell in row] for row in rows]
    text, wrapper = list[str](), textwrap.TextWrapper(80, break_long_words=False, break_on_hyphens=False)
    for i, line in enumerate(aligned([row[:-1] for row in rows], LEFT)):
        text += [folders[i]] * (i > 0 and folders[i] != folders[i - 1])
        # The last cell goes onto another line where there is no room for it.
        wrapper.initial_indent, wrapper.subsequent_indent = f"{line}  ", " " * (len(line) + 2)
        text.append(wrapper.fill(rows[i][-1]) or line.rstrip())
    return "\n".join(text)


def _results(files: RunFiles) -> Iterable[tuple[str, ...]]:
    """Return best epoch, phenotype, metric, its values, and the baseline that comes closest or is ahead."""
    if not files.rows:
        yield str(files.best_epoch), ", ".join(files.results["units"]), "", "", "no test part", ""
    for own, baselines in tested(files.rows):
        metric = HEADLINE[own.kind]
        best, same = best_row(baselines, metric), [row for row in files.rows if row.phenotype == own.phenotype]
        baseline = "-" if best is None else f"{best.metrics[metric]:.3f} {best.model}"
        values = {row.part: row.metrics.get(metric, math.nan) for row in same if row.is_network}
        shown = [f"{values[part]:.3f}" if part in values else "-" for part in ("validation", "test")]
        yield str(files.best_epoch), own.phenotype, "r" if metric == "pearson" else "AP", *shown, baseline
