"""Report on one run: a picture, and one page that has everything."""

from __future__ import annotations

import base64
import json
import logging
import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell import __version__
from dglcell.data.changes import GENES
from dglcell.data.config import KINDS
from dglcell.data.table import CLASSIFICATION
from dglcell.errors import DglcellError
from dglcell.graph.cell import read_cell
from dglcell.metrics import best_row
from dglcell.report.drawing import save
from dglcell.report.page import (
    NO_TEST_PART,
    NOTE,
    UNDEFINED,
    Grid,
    format_value,
    left_out_lines,
    lines_below,
    number,
    predicts_lines,
    results_tables,
    tested,
    write_page,
)
from dglcell.report.panels import MOST_PHENOTYPES, SCORES, curve_key, described, overview
from dglcell.report.run_files import RunFiles, read_run, read_table
from dglcell.runs.directory import RunDirectory

log = logging.getLogger("dglcell")

SHOWN = 10
"""Most strains that a table shows."""


def write_report(path: Path, output: Path | None = None) -> Path:
    """Report on a finished run.

    It writes the picture (``report.png``) and the page (``report.html``) into the run directory; with ``output``, that
    page alone, and the directory is left as it is.
    """
    run = read_run(path)
    picture = overview(run)
    if output is None:
        run.directory.refuse_links()
        save(picture, run.directory.report)
    return write_page("run.html", output or run.directory.page, **page_content(run, picture))


def page_content(run: RunFiles, picture: bytes) -> dict[str, Any]:
    """Return the variables of the page's template."""
    about, config, rows = run.environment, run.config, run.rows
    path = shlex.quote(str(run.directory.path))
    return {
        "version": __version__,
        "title": f"{run.name}, seed {run.seed}",
        "description": config["experiment"]["description"],
        "tags": config["experiment"]["tags"],
        "lines": [run.size_line, run.training_line],
        "cards": cards(run),
        # The sort is stable, so that blocks and lines keep their order otherwise.
        "tables": results_tables(sorted(rows, key=lambda row: row.part != "test"), format_value),
        "table_note": NOTE if rows else NO_TEST_PART,
        "lines_below": [
            f"Split {config['split']['kind']}: {KINDS[config['split']['kind']]}.",
            *predicts_lines(run.results.get("predicts", {})),
            *lines_below(rows, config["split"]["kind"]),
            *left_out_lines(run.results.get("left_out", {})),
        ],
        "strains": strain_tables(run),
        "picture": "data:image/png;base64," + base64.b64encode(picture).decode("ascii"),
        "caption": described(run),
        "facts": facts(run),
        "config": run.directory.config.read_text(encoding="utf-8"),
        "command": about["command"],
        "command_again": f"dglcell train {shlex.quote(str(run.directory.config))} paths.runs=runs-again",
        "command_predict": f"dglcell predict {path} genotypes.csv --output predictions.csv",
        "command_report": f"dglcell report {path}",
        "environment": json.dumps(about, indent=2, ensure_ascii=False),
        "epochs": epochs_table(run),
    }


def cards(run: RunFiles) -> list[dict[str, str]]:
    """Return the test score of the model for each phenotype, beside that of the best baseline."""
    found = []
    for own, baselines in tested(run.rows):
        score = SCORES[own.kind]
        best, reached = best_row(baselines, score.metric), own.metrics.get(score.metric, math.nan)
        of_best = "" if best is None else format_value(score.metric, best.metrics[score.metric])
        note = f"best baseline, {best.model}: {of_best}" if best else ""
        label, value = f"{own.phenotype}, test {score.title}", format_value(score.metric, reached)
        found.append({"label": label, "value": value, "note": note})
    return found


def facts(run: RunFiles) -> list[tuple[str, str]]:
    """Say what the configuration and the environment, which the page shows whole, do not."""
    units, kept = run.results["units"], sorted(path.name for path in run.directory.checkpoints.glob("*.ckpt"))
    return [
        ("predicted", ", ".join(f"{name} [{unit}]" if unit else name for name, unit in units.items())),
        ("epochs", f"{len(run.history)} of {run.config['trainer']['epochs']}, {run.duration}"),
        ("reported", f"{run.results['checkpoint']}, after epoch {run.best_epoch}"),
        ("checkpoints", ", ".join(kept) or UNDEFINED),
    ]


def epochs_table(run: RunFiles) -> Grid:
    """Make a table of the record's main columns, an epoch a row."""
    kinds = {row.phenotype: row.kind for row in run.rows}
    keys = ["train/loss", "validation/loss", *(curve_key(*of) for of in kinds.items()), "learning_rate", "seconds"]
    curves = {key: curve.tolist() for key in keys if np.isfinite(curve := run.curve(key)).any()}
    rows = [[str(epoch), *map(number, of)] for epoch, *of in zip(run.epochs, *curves.values(), strict=True)]
    return Grid(["epoch", *curves], rows, texts=0)


# The strongest and the worst missed strains.


def strain_names(directory: RunDirectory) -> list[str]:
    """Return the names of the deleted genes of each test strain.

    A gene has the name in the user's table, or else the common one, with the systematic one beside it. Common names are
    left out where the cell graph of the run is missing or damaged.
    """
    table = read_table(directory, "test")
    standard: Callable[[str], str] = str  # a gene without a common name has its own
    if directory.cell.is_dir():
        try:
            standard = read_cell(directory.cell).genes.standard
        except DglcellError as error:
            log.warning("the report has systematic names of genes alone: %s", error)

    def shown(gene: str, own: str) -> str:
        name = own if own != gene else standard(gene)
        return f"{name} ({gene})" if name and name != gene else gene

    pairs = zip(table[GENES], table["names" if "names" in table else GENES], strict=True)
    of_strains = ([*zip(genes.split(";"), names.split(";"), strict=False)] for genes, names in pairs)
    return [", ".join(shown(*gene) for gene in strain) or "none deleted" for strain in of_strains]


def strain_tables(run: RunFiles) -> dict[str, list[Grid]]:
    """Return phenotype → tables of strains; none where no strain is tested."""
    if "test" not in run.predictions:
        return {}
    strains = strain_names(run.directory)
    kinds = {row.phenotype: row.kind for row in run.rows}
    found = {
        phenotype: list(_strain_tables(run, strains, phenotype, is_class=kinds.get(phenotype) == CLASSIFICATION))
        for phenotype in [*run.predictions["test"]][:MOST_PHENOTYPES]
    }
    return {phenotype: tables for phenotype, tables in found.items() if tables}


def _strain_tables(run: RunFiles, strains: Sequence[str], phenotype: str, *, is_class: bool) -> Iterator[Grid]:
    """Make tables of the strongest predictions and the largest errors of the test part."""
    predictions = run.predictions["test"][phenotype]
    predicted, measured = (np.asarray(v, np.float64) for v in (predictions.predicted, predictions.measured))
    if not np.isfinite(predicted).any():
        return
    unit = run.results["units"].get(phenotype, "")
    heads = ["deleted genes", *(f"{name} [{unit}]" if unit else name for name in ("predicted", "measured"))]

    def rows(key: NDArray[np.float64]) -> list[list[str]]:
        order = np.argsort(-np.where(np.isfinite(key), key, -np.inf), kind="stable")[:SHOWN]
        return [
            [strains[i], number(float(predicted[i])), number(float(measured[i]))]
            for i in order.tolist()
            if np.isfinite(key[i])
        ]

    middle = float(np.nanmedian(predicted))
    activity = predicted if is_class else np.abs(predicted - middle)
    by = "predicted most surely" if is_class else f"farthest from the median prediction, {number(middle)}"
    yield Grid(heads, rows(activity), title="Strongest predicted strains", note=f"Test strains {by}.")
    error = np.abs(predicted - measured)
    if np.isfinite(error).any():
        note = "Test strains with the largest errors."
        yield Grid(heads, rows(error), title="Worst missed strains", note=note)
