"""Report on one run: a picture, and one page that has everything."""

from __future__ import annotations

import base64
import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from dglcell import __version__
from dglcell.data.config import KINDS
from dglcell.data.table import CLASSIFICATION, GENES
from dglcell.metrics import best_row
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
from dglcell.report.pictures import MOST_PHENOTYPES, SCORES, curve_key, described, overview, save
from dglcell.report.run_files import RunFiles, read_run, read_table
from dglcell.runs import RunDirectory

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
    """Return the standard names of the deleted genes of each test strain, with the systematic ones beside them."""
    table = read_table(directory, "test")

    def shown(gene: str, name: str) -> str:
        return gene if name == gene else f"{name} ({gene})"

    pairs = zip(table[GENES], table["names" if "names" in table else GENES], strict=True)
    of_strains = (map(shown, genes.split(";"), names.split(";")) for genes, names in pairs)
    return [", ".join(names) or "none deleted" for names in of_strains]


def strain_tables(run: RunFiles) -> dict[str, list[Grid]]:
    """Return phenotype → tables of the strongest predictions and the largest errors of the test part."""
    if "test" not in run.predictions:
        return {}
    import pandas as pd

    strains, found = strain_names(run.directory), dict[str, list[Grid]]()
    for phenotype, p in [*run.predictions["test"].items()][:MOST_PHENOTYPES]:
        table = pd.DataFrame({"predicted": p.predicted, "measured": p.measured}, dtype=float)
        table = table.where(np.isfinite(table))
        strongest, middle = table.predicted, table.predicted.median()
        by = "predicted most surely"
        if run.kind(phenotype) != CLASSIFICATION:
            strongest = (table.predicted - middle).abs()
            by = f"farthest from the median prediction, {number(float(middle))}"
        unit = run.results["units"].get(phenotype, "")
        heads = ["deleted genes", *(f"{name} [{unit}]" if unit else name for name in ("predicted", "measured"))]
        for key, title, note in (
            (strongest, "Strongest predicted strains", f"Test strains {by}."),
            ((table.predicted - table.measured).abs(), "Worst missed strains", "Test strains with the largest errors."),
        ):
            chosen = key.dropna().sort_values(ascending=False, kind="stable").index[:SHOWN]
            rows = [[strains[i], *map(number, table.loc[i].tolist())] for i in chosen]
            found.setdefault(phenotype, []).extend([Grid(heads, rows, title=title, note=note)] * bool(rows))
    return {phenotype: tables for phenotype, tables in found.items() if tables}
