"""Format the table that compares a model with null models."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from dglcell.errors import printable
from dglcell.metrics import COLUMNS, COUNTED, LOWER_IS_BETTER, UNRANKED, ResultRow, format_metric
from dglcell.report.sentences import beaten

BEST = "* marks the best value of its column, for each phenotype and part."
NO_TEST_PART = (
    "There is no test part, because every strain trained (`split.kind: none`). Nothing here says how good the "
    "predictions are. The same settings with another split say it."
)


def best_in_block(rows: Sequence[ResultRow], metric: str) -> set[int]:
    """Return the positions of the best rows of each block (phenotype and part) by ``metric``.

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


def format_results_table(rows: Iterable[ResultRow], *, color: bool = False) -> str:
    """Format the comparison: blocks of phenotype and part, a line for each model, ``*`` at the best of each column.

    Phenotypes of numbers and of classes have a table each, with the columns of their kind. A sentence below says where
    a null model is better than the model. Without rows, a sentence says that there is no test part.

    Args:
        rows: any order; blocks keep the order in which they first appear, lines the order within.
        color: bold best values and dim null models, for a terminal.
    """
    rows = list(rows)
    if not rows:
        return NO_TEST_PART
    kinds = dict.fromkeys(row.kind for row in rows)
    tables = [_format_kind([row for row in rows if row.kind == kind], COLUMNS[kind], color) for kind in kinds]
    return "\n\n".join([*tables, BEST, *map(printable, beaten(rows))])


def _format_kind(rows: list[ResultRow], columns: Mapping[str, str], color: bool) -> str:
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
        # Names may be a stranger's, whose escape codes would steer the terminal.
        texts = [printable(text) for text in (*labels, row.model)]
        table.add_row(*texts, *cells, style="dim" if color and row.is_null else None)
        previous = block
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        force_jupyter=False,  # a notebook would show the table instead of writing it
        width=400,
        force_terminal=color,
        color_system="standard" if color else None,
        markup=False,
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def _cell(row: ResultRow, metric: str, is_best: bool) -> str:
    value = row.metrics.get(metric, math.nan)
    # A column that may be marked keeps room for the mark.
    mark = "" if metric in COUNTED and math.isfinite(value) else "*" if is_best else " "
    return format_metric(metric, value) + mark
