"""The page that compares runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dglcell import __version__
from dglcell.plots.comparison import comparison_panels
from dglcell.plots.panel import render
from dglcell.plots.scores import SCORES, Score
from dglcell.report.comparison import (
    Group,
    comparison_numbers,
    comparison_tables,
    differences,
    group_runs,
    warnings_of,
)
from dglcell.report.html import UNDEFINED, Grid, figure, number, write_page
from dglcell.report.run_files import RunFiles, read_run

NOTE = (
    "Mean ± sample standard deviation over the runs of an experiment. * best of its block, by that column. Grey: null "
    "models, fitted on the same split."
)
DEFAULT_OUTPUT = Path("comparison.html")


def write_comparison(paths: Sequence[Path], output: Path | None = None) -> Path:
    """Compare finished runs on one page, and write its numbers to a CSV file beside it.

    Args:
        paths: run directories; those of the same experiment are averaged.
        output: of the page; ``comparison.html`` in the working directory where None.

    Returns:
        the path of the page.

    Raises:
        CheckpointError: a run is not finished, or its files are missing or damaged.
        DataError: a run is given twice.
        MissingDependencyError: matplotlib or jinja2 is not installed.
    """
    output = Path(output or DEFAULT_OUTPUT)
    runs = [read_run(path, parts=()) for path in paths]
    groups = group_runs(runs)
    panels = comparison_panels(_scores(groups), _curves(runs))
    content = {
        "version": __version__,
        "title": "Comparison of " + ", ".join(dict.fromkeys(run.name for run in runs)),
        "subtitle": f"{len(runs)} runs of {len({run.name for run in runs})} experiments",
        "warnings": warnings_of(runs),
        "tables": comparison_tables(groups),
        "table_note": NOTE,
        "figures": [figure(panel, render(panel)["png"]) for panel in panels],
        "differences": differences(runs),
        "runs": runs_table(runs),
    }
    comparison_numbers(groups).write(output.with_suffix(".csv"))
    return write_page("comparison.html", output, **content)


def runs_table(runs: Sequence[RunFiles]) -> Grid:
    """Where each run is, and how it was made."""
    rows = [
        [
            run.name,
            os.fspath(run.directory.path),
            run.results["checkpoint"],
            run.environment["hashes"]["split"][:12],
            (run.environment["git"] or {}).get("commit", UNDEFINED)[:12],
            str(run.seed),
            f"{run.environment['parameters']:,}",
            f"{len(run.history)}",
            str(run.best_epoch),
            number(run.history.minutes, 3),
        ]
        for run in runs
    ]
    heads = ["experiment", "directory", "checkpoint", "split", "commit"]
    return Grid([*heads, "seed", "parameters", "epochs", "best epoch", "minutes"], rows, texts=len(heads))


def _scores(groups: Sequence[Group]) -> dict[str, tuple[Score, dict[str, tuple[bool, list[float]]]]]:
    """Phenotype → its score, and name → whether it is a null model, and test score of every run."""
    scores: dict[str, tuple[Score, dict[str, tuple[bool, list[float]]]]] = {}
    for group in groups:
        for (phenotype, part, metric), values in group.values.items():
            score = SCORES[group.kinds[phenotype]]
            if (part, metric) == ("test", score.metric):
                scores.setdefault(phenotype, (score, {}))[1][group.name] = (group.is_null, values)
    return scores


def _curves(runs: Sequence[RunFiles]) -> dict[str, list[tuple[list[int], list[float]]]]:
    """Experiment → epochs and validation Pearson, averaged over phenotypes, of every run."""
    curves: dict[str, list[tuple[list[int], list[float]]]] = {}
    for run in runs:
        curve = (run.history.epochs.tolist(), run.history.curve("validation/pearson").tolist())
        curves.setdefault(run.name, []).append(curve)
    return curves
