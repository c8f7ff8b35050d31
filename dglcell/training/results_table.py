"""The table that compares models."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from dglcell.data.kinds import CLASSIFICATION, REGRESSION
from dglcell.training.metrics import ResultRow

COLUMNS = {
    REGRESSION: {"n": "n", "pearson": "Pearson", "spearman": "Spearman", "r2": "R²", "mse": "MSE", "mae": "MAE"},
    CLASSIFICATION: {
        "n": "n",
        "prevalence": "positive",
        "average_precision": "AP",
        "auroc": "AUROC",
        "f1": "F1",
        "brier": "Brier",
    },
}
"""Kind of labels → metric → title of its column."""

UNRANKED = frozenset({"n", "prevalence"})
LOWER_IS_BETTER = frozenset({"mse", "rmse", "mae", "brier"})
UNDEFINED = "-"


def best_in_block(rows: Sequence[ResultRow], metric: str) -> set[int]:
    """Positions of the best rows of each block (phenotype and part) by ``metric``.

    An undefined value never wins, and a block with a single row has no best.
    """
    blocks: dict[tuple[str, str], list[int]] = {}
    for position, row in enumerate(rows):
        blocks.setdefault((row.phenotype, row.part), []).append(position)
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    best: set[int] = set()
    for positions in blocks.values():
        scores = {i: sign * rows[i].metrics.get(metric, math.nan) for i in positions}
        finite = {i: score for i, score in scores.items() if math.isfinite(score)}
        if len(positions) > 1 and finite:
            top = max(finite.values())
            best |= {i for i, score in finite.items() if score == top}
    return best


def format_results_table(rows: Iterable[ResultRow], *, color: bool = False, width: int | None = None) -> str:
    """The comparison: blocks of phenotype and part, a line a model, ``*`` at the best of each column.

    Phenotypes of numbers and of classes have a table each, with the columns of their kind.

    Args:
        rows: any order; blocks keep the order in which they first appear, lines the order within.
        color: bold best values and dim null models, for a terminal.
        width: characters; as wide as needed if None.
    """
    rows = list(rows)
    kinds = dict.fromkeys(row.kind for row in rows)
    tables = (_format_kind([row for row in rows if row.kind == kind], COLUMNS[kind], color, width) for kind in kinds)
    return "\n\n".join(tables)


def _format_kind(rows: list[ResultRow], columns: Mapping[str, str], color: bool, width: int | None) -> str:
    order = list(dict.fromkeys((row.phenotype, row.part) for row in rows))
    rows.sort(key=lambda row: order.index((row.phenotype, row.part)))
    best = {metric: best_in_block(rows, metric) for metric in columns if metric not in UNRANKED}
    table = Table(box=None, pad_edge=False, header_style="bold" if color else "")
    for title in ("phenotype", "part", "model"):
        table.add_column(title, no_wrap=True)
    for title in columns.values():
        table.add_column(title, justify="right", no_wrap=True)
    previous: tuple[str, str] | None = None
    for i, row in enumerate(rows):
        block = (row.phenotype, row.part)
        if previous is not None and block != previous:
            table.add_section()
        labels = block if block != previous else ("", "")
        cells = [_cell(row, metric, i in best.get(metric, ())) for metric in columns]
        table.add_row(*labels, row.model, *cells, style="dim" if color and row.is_null else None)
        previous = block
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width or 400,
        force_terminal=color,
        color_system="standard" if color else None,
        markup=False,
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def format_metric(metric: str, value: float) -> str:
    """One value as the tables show it; errors with four digits, correlations with three decimals."""
    if not math.isfinite(value):
        return UNDEFINED
    if metric == "n":
        return f"{int(value):,}"
    # Adding zero turns a rounded −0.000 into 0.000.
    return f"{value:#.4g}" if metric in LOWER_IS_BETTER else f"{round(value, 3) + 0.0:.3f}"


def _cell(row: ResultRow, metric: str, is_best: bool) -> str:
    value = row.metrics.get(metric, math.nan)
    # A column that may be marked keeps room for the mark.
    mark = "" if metric == "n" and math.isfinite(value) else "*" if is_best else " "
    return format_metric(metric, value) + mark
