"""Write tables of results with what is known beside them, and the page of a run, which needs no other file."""

from __future__ import annotations

import base64
import json
import math
import shlex
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dglcell import __version__
from dglcell.data.config import CALIBRATES, INTERVAL_COVERAGE, KINDS
from dglcell.data.table import GENES
from dglcell.errors import aligned, count, printable
from dglcell.files.atomic import atomic_file
from dglcell.metrics import (
    COLUMNS,
    HEADLINE,
    LOWER_IS_BETTER,
    UNRANKED,
    WITHOUT_MESSAGES,
    ResultRow,
    best_row,
    format_metric,
)
from dglcell.report import format_value, number
from dglcell.report.pictures import CAPTION, MOST_PHENOTYPES, curve_key, overview
from dglcell.report.run_files import RunFiles, read_run, read_table
from dglcell.runs import RunDirectory


@dataclass(frozen=True)
class Grid:
    """Hold a table of texts."""

    columns: list[str]
    rows: list[list[str]]  #: rows with one text per column
    texts: int = 1  #: number of columns from the left that are text; the others are numbers, set flush right
    title: str = ""


def write_page(template: str, path: Path, **content: Any) -> Path:
    """Fill a template and write the page, whole or not at all."""
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("dglcell.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = templates.get_template(template).render(version=__version__, **content)
    with atomic_file(path) as partial:
        partial.write_text(page, encoding="utf-8")
    return path


NOTE = "* is the best of a column in its block. Baselines are grey, and fitted on the same split."
BEST = "* is the best of its column, for each phenotype and part."
NO_TEST_PART = (
    "There is no test part, because every strain trained (`split.kind: none`). Nothing here says how good the "
    "predictions are. The same settings with another split say it."
)


@dataclass(frozen=True)
class Line:
    """Hold one line of a table of results."""

    labels: list[str]  #: texts on the left; the first one is empty but where another phenotype or part begins
    cells: list[tuple[str, bool]]  #: (text, whether it is the best of its block) of every metric
    is_baseline: bool  #: whether the line is of a baseline


@dataclass(frozen=True)
class ResultsTable:
    """Hold a table whose best cells are marked."""

    columns: list[str]
    texts: int  # number of columns from the left that hold text
    rows: list[Line]


def best_of(values: Sequence[float], metric: str) -> set[int]:
    """Return the positions of the best of several values; undefined and single ones are no best."""
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    scores = {i: sign * value for i, value in enumerate(values) if math.isfinite(value)}
    if metric in UNRANKED or len(values) < 2 or not scores:
        return set()
    return {i for i, score in scores.items() if score == max(scores.values())}


def strongest(rows: Sequence[ResultRow], predicts: Collection[str] = (), number: int = 3) -> list[ResultRow]:
    """Return what a terminal shows: rows of the test part, if there is one, without the weaker baselines.

    Ablations and baselines that predict stay however weak they are, and a number of others for each phenotype.
    """
    rows = [row for row in rows if row.part == "test"] or list(rows)
    score = {id(row): row.metrics.get(HEADLINE[row.kind], math.nan) for row in rows}

    def is_strong(row: ResultRow) -> bool:
        of_it = (one for one in rows if one.is_baseline and one.phenotype == row.phenotype)
        return math.isfinite(score[id(row)]) and sum(score[id(one)] > score[id(row)] for one in of_it) < number

    rows = [row for row in rows if not row.model.endswith(("(0.00)", "(1.00)"))]  # ensembles of one
    return [row for row in rows if not row.is_baseline or row.model in (WITHOUT_MESSAGES, *predicts) or is_strong(row)]


def results_tables(
    rows: Iterable[ResultRow], show: Callable[[str, float], str], shown: Collection[ResultRow] | None = None
) -> list[ResultsTable]:
    """Make one table for each kind of labels, with one block for each phenotype and part; a line is a model.

    Args:
        rows: any order; blocks keep the order in which they first appear, lines the order within.
        show: formats the value of a metric.
        shown: rows that get a line, of those among which the best values are marked; None for all.
    """
    kinds: dict[str, dict[tuple[str, str], list[ResultRow]]] = {}
    for row in rows:
        kinds.setdefault(row.kind, {}).setdefault((row.phenotype, row.part), []).append(row)
    tables = []
    for kind, blocks in kinds.items():
        metrics, lines = COLUMNS[kind], list[Line]()
        for block, inside in blocks.items():
            values = {metric: [row.metrics.get(metric, math.nan) for row in inside] for metric in metrics}
            best = {metric: best_of(values[metric], metric) for metric in metrics}
            drawn = [(i, row) for i, row in enumerate(inside) if shown is None or row in shown]
            for place, (i, row) in enumerate(drawn):
                cells = [(show(metric, values[metric][i]), i in best[metric]) for metric in metrics]
                lines.append(Line([*(("", "") if place else block), row.model], cells, row.is_baseline))
        tables.append(ResultsTable(["phenotype", "part", "model", *metrics.values()], 3, lines))
    return tables


def format_results_table(
    rows: Iterable[ResultRow], *, color: bool = False, shown: Collection[ResultRow] | None = None
) -> str:
    """Format the comparison: blocks of phenotype and part, a line for each model, ``*`` at the best of each column."""
    tables = [_format_table(table, color) for table in results_tables(rows, format_metric, shown)]
    return "\n\n".join(tables) + f"\n{BEST}" if tables else NO_TEST_PART


def _format_table(found: ResultsTable, color: bool) -> str:
    """Format one table, at most 80 letters wide; a block has its phenotype, part and n above it."""
    # Cells keep room for the mark.
    marked = [[text + ("*" if best else " ") for text, best in line.cells[1:]] for line in found.rows]
    head, *numbers = aligned([found.columns[found.texts + 1 :], *marked], (), gap=" ")
    # Names may be a stranger's, whose escape codes would steer the terminal.
    names = [textwrap.wrap(printable(line.labels[-1]), 79 - len(head)) or [""] for line in found.rows]
    width = max((len(part) for name in names for part in name), default=0)
    lines = [("1", f"{'':{width}} {head}")]  # bold
    for line, (*above, name), of in zip(found.rows, names, numbers, strict=True):
        if line.labels[0]:
            lines.append(("0", printable(f"{line.labels[0]}, {line.labels[1]} part, n = {line.cells[0][0]}")))
        lines += [("2" if line.is_baseline else "0", text) for text in (*above, f"{name:{width}} {of}")]  # dim
    return "\n".join(f"\x1b[{style}m{text.rstrip()}\x1b[0m" if color else text.rstrip() for style, text in lines)


# What is known beside a table of results, a line for each fact: leads, ceilings, intervals, what is left out.


def lines_below(rows: Sequence[ResultRow], split: str) -> list[str]:
    """Return the lines below a table: leads, scores within media, what is the most possible, and intervals."""
    said = [say(*of) for say in (_ahead, _within, _ceiling) for of in tested(rows)]
    return [*filter(None, said), *coverage_lines(rows, split)]


def tested(rows: Sequence[ResultRow]) -> Iterator[tuple[ResultRow, list[ResultRow]]]:
    """Yield each row of the network on the test part, with those of baselines for the same phenotype."""
    test = [row for row in rows if row.part == "test"]
    for own in test:
        if own.is_network:
            yield own, [row for row in test if row.is_baseline and row.phenotype == own.phenotype]


def _ahead(own: ResultRow, baselines: Sequence[ResultRow]) -> str | None:
    """Say how far the model is ahead of the best baseline of the test part, with the wider of the intervals."""
    metric, number = COLUMNS[own.kind][HEADLINE[own.kind]], own.metrics.get("n", math.inf)
    if not math.isfinite(own.metrics.get(HEADLINE[own.kind], math.nan)):
        strains = count(int(own.metrics.get("n", 0)), "test strain")
        return f"{own.phenotype}: {metric} is undefined for {strains}: too few, or all alike"
    compared = [row for row in baselines if math.isfinite(row.metrics.get("ahead_low", math.nan))]
    if not compared or number <= 3:  # so few have no interval
        return None
    best = min(compared, key=lambda row: row.metrics["ahead"])
    # Over strains and over genes; the difference counts where it is beyond chance in both.
    drawn = [key for key in ("ahead", "ahead_genes") if f"{key}_low" in best.metrics]
    low, high = (f(best.metrics[f"{key}_{end}"] for key in drawn) for f, end in ((min, "low"), (max, "high")))
    ahead = best.metrics["ahead"]
    if low <= 0 <= high:
        verdict = f"no difference is shown between {own.model} and '{best.model}'"
    else:
        verdict = f"{own.model} is {'better' if ahead > 0 else 'worse'} than '{best.model}'"
    return f"{own.phenotype}: {verdict} ({metric} {ahead:+.3f}, 95 % interval {low:+.3f} to {high:+.3f})"


def _within(own: ResultRow, baselines: Sequence[ResultRow]) -> str | None:
    """Say the mean of Pearson's r within each medium or other covariate."""
    if not math.isfinite(own.metrics.get("pearson_within", math.nan)):
        return None
    best = best_row(baselines, "pearson_within")
    other = f", '{best.model}' {best.metrics['pearson_within']:.3f}" if best else ""
    found = f"{own.model} {own.metrics['pearson_within']:.3f}{other}"
    return f"{own.phenotype}: Pearson within one medium or batch at a time, on average: {found}"


def _ceiling(own: ResultRow, baselines: Sequence[ResultRow]) -> str | None:
    """Say what a model without error would reach, where replicates say it."""
    ceiling = own.metrics.get("ceiling", math.nan)
    said = f"{own.phenotype}: Pearson of a model without error, by replicates: about {ceiling:.3f}"
    return said if math.isfinite(ceiling) else None


def predicts_lines(choices: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Say for each phenotype what predicts it, and why."""
    return [f"{phenotype} is predicted by {one['name']} ({one['why']})" for phenotype, one in choices.items()]


def coverage_lines(rows: Sequence[ResultRow], split: str) -> list[str]:
    """Say what intervals and calibrated probabilities hold on the test part, and what the ``split`` lets expect."""
    lines, share = [], f"{INTERVAL_COVERAGE:.0%}".replace("%", " %")
    for row in (row for row in rows if row.part == "test"):
        of = {name: row.metrics.get(name, math.nan) for name in ("covered", "calibrated_brier", "brier", "n")}
        if math.isfinite(of["covered"]):
            width, same = (format_metric("mae", row.metrics[name]) for name in ("width", "constant_width"))
            inside, of_all = round(of["covered"] * of["n"]), int(of["n"])
            lines.append(
                f"{row.phenotype}: intervals for {share} hold {inside:,} of {of_all:,} test strains "
                f"({100 * of['covered']:.0f} %); their width is {width}"
                + ("" if width == same else f" on average, or {same} if all were equally wide")
            )
        if math.isfinite(of["calibrated_brier"]):
            calibrated, plain = (format_metric("brier", of[name]) for name in ("calibrated_brier", "brier"))
            said = f"Brier score of calibrated probabilities: {calibrated}, of predictions {plain}"
            lines.append(f"{row.phenotype}: {said}")
    if any("covered" in row.metrics for row in rows) and CALIBRATES.get(split):
        lines.append(CALIBRATES[split].format(share=share))
    return lines


def left_out_lines(left_out: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a sentence for each reason why baselines do not apply; given phenotype → baseline → reason."""
    phenotypes: dict[tuple[str, str], list[str]] = {}
    for phenotype, reasons in left_out.items():
        for reason in dict.fromkeys(reasons.values()):
            names = ", ".join(f"'{name}'" for name in reasons if reasons[name] == reason)
            phenotypes.setdefault((names, reason), []).append(phenotype)
    return [
        f"The baseline {names} is left out for {', '.join(found)}, because it {reason}."
        if "," not in names
        else f"The baselines {names} are left out for {', '.join(found)}, because each {reason}."
        for (names, reason), found in phenotypes.items()
    ]


def format_expected(rows: Sequence[ResultRow], metric: str, value: float, tolerance: float) -> str:
    """Say whether the model's result on the test part, for its first phenotype, is the expected one."""
    row, _ = next(tested(rows))
    found = row.metrics.get(metric, math.nan)
    wanted = f"{value:g} ± {tolerance:g}"
    about = f"{metric} of {row.phenotype} on the test part: {wanted} was expected, {found:.4f} was found."
    if abs(found - value) <= tolerance:
        return f"{about} The expected result was met."
    return f"{about} The expected result was NOT met. `dglcell doctor` checks what works on this machine."


# The page of one run.

SHOWN = 10  # most strains that a table shows


def write_report(path: Path, output: Path | None = None) -> Path:
    """Report on a finished run.

    It writes the picture (``report.png``) and the page (``report.html``) into the run directory; with ``output``, that
    page alone, and the directory is left as it is.
    """
    run = read_run(path, parts=("test",))
    picture = overview(run)
    if output is None:
        run.directory.refuse_links()
        with atomic_file(run.directory.report) as partial:
            partial.write_bytes(picture)
    return write_page("run.html", output or run.directory.page, **page_content(run, picture))


def page_content(run: RunFiles, picture: bytes) -> dict[str, Any]:
    """Return the variables of the page's template."""
    about, config, rows = run.environment, run.config, run.rows
    path = shlex.quote(str(run.directory.path))
    best = f"{run.results['checkpoint']}, after epoch {run.best_epoch}"
    return {
        "title": f"{run.name}, seed {run.seed}",
        "description": config["experiment"]["description"],
        "tags": config["experiment"]["tags"],
        "lines": run.lines,
        # The sort is stable, so that blocks and lines keep their order otherwise.
        "tables": results_tables(sorted(rows, key=lambda row: row.part != "test"), format_value),
        "table_note": f"{NOTE} Results are those of {best}." if rows else NO_TEST_PART,
        "lines_below": [
            f"Split {config['split']['kind']}: {KINDS[config['split']['kind']]}.",
            *predicts_lines(run.results.get("predicts", {})),
            *lines_below(rows, config["split"]["kind"]),
            *left_out_lines(run.results.get("left_out", {})),
        ],
        "strains": missed_strains(run),
        "picture": "data:image/png;base64," + base64.b64encode(picture).decode("ascii"),
        "caption": CAPTION,
        "config": run.directory.config.read_text(encoding="utf-8"),
        "command": about["command"],
        "command_again": f"dglcell train {shlex.quote(str(run.directory.config))} paths.runs=runs-again",
        "command_predict": f"dglcell predict {path} genotypes.csv --output predictions.csv",
        "command_report": f"dglcell report {path}",
        "environment": json.dumps(about, indent=2, ensure_ascii=False),
        "epochs": epochs_table(run),
    }


def epochs_table(run: RunFiles) -> Grid:
    """Make a table of the record's main columns, an epoch a row."""
    kinds = {row.phenotype: row.kind for row in run.rows}
    keys = ["train/loss", "validation/loss", *(curve_key(*of) for of in kinds.items()), "learning_rate", "seconds"]
    curves = {key: curve.tolist() for key in keys if np.isfinite(curve := run.curve(key)).any()}
    rows = [[str(epoch), *map(number, of)] for epoch, *of in zip(run.epochs, *curves.values(), strict=True)]
    return Grid(["epoch", *curves], rows, texts=0)


def strain_names(directory: RunDirectory) -> list[str]:
    """Return the standard names of the deleted genes of each test strain, with the systematic ones beside them."""
    table = read_table(directory, "test")

    def shown(gene: str, name: str) -> str:
        return gene if name == gene else f"{name} ({gene})"

    pairs = zip(table[GENES], table["names" if "names" in table else GENES], strict=True)
    of_strains = (map(shown, genes.split(";"), names.split(";")) for genes, names in pairs)
    return [", ".join(names) or "none deleted" for names in of_strains]


def missed_strains(run: RunFiles) -> list[Grid]:
    """Return a table of the test strains with the largest errors for each of the first phenotypes."""
    found, of_test = [], run.predictions.get("test", {})
    strains = strain_names(run.directory) if of_test else []
    for phenotype, p in [*of_test.items()][:MOST_PHENOTYPES]:
        errors = np.abs(p.predicted - p.measured)
        worst = [i for i in np.argsort(-errors, kind="stable") if np.isfinite(errors[i])][:SHOWN]
        rows = [[strains[i], number(float(p.predicted[i])), number(float(p.measured[i]))] for i in worst]
        unit = run.results["units"].get(phenotype, "")
        heads = ["deleted genes", *(f"{name} [{unit}]" if unit else name for name in ("predicted", "measured"))]
        found += [Grid(heads, rows, title=f"Worst missed strains: {phenotype}")] * bool(rows)
    return found
