"""The table of results as a page shows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dglcell.report.html import UNDEFINED
from dglcell.training.metrics import ResultRow
from dglcell.training.results_table import COLUMNS, UNRANKED, best_in_block, format_metric

NOTE = "* best of its block, by that column. Grey: null models, fitted on the same split; they know no network."


@dataclass(frozen=True)
class Line:
    """One line.

    Attributes:
        labels: texts on the left.
        cells: (text, whether it is the best of its block) of every metric.
        is_null: whether it is of a null model.
        begins_block: whether another phenotype or part begins here.
    """

    labels: list[str]
    cells: list[tuple[str, bool]]
    is_null: bool
    begins_block: bool


@dataclass(frozen=True)
class ResultsTable:
    """A table whose best cells are marked.

    Attributes:
        columns: heads.
        texts: how many of them, from the left, head texts.
        rows: in blocks.
    """

    columns: list[str]
    texts: int
    rows: list[Line]


def results_tables(rows: Sequence[ResultRow]) -> list[ResultsTable]:
    """One table for each kind of labels."""
    return [_table([row for row in rows if row.kind == kind], kind) for kind in dict.fromkeys(row.kind for row in rows)]


def _table(rows: Sequence[ResultRow], kind: str) -> ResultsTable:
    """One block for each phenotype and part, test first; a line a model."""
    rows = sorted(rows, key=lambda row: row.part != "test")  # stable
    order = list(dict.fromkeys((row.phenotype, row.part) for row in rows))
    rows = sorted(rows, key=lambda row: order.index((row.phenotype, row.part)))
    columns = COLUMNS[kind]
    best = {metric: best_in_block(rows, metric) for metric in columns if metric not in UNRANKED}
    lines: list[Line] = []
    previous: tuple[str, str] | None = None
    for i, row in enumerate(rows):
        block = (row.phenotype, row.part)
        labels = [*(block if block != previous else ("", "")), row.model]
        cells = [
            (format_value(metric, row.metrics.get(metric, math.nan)), i in best.get(metric, ())) for metric in columns
        ]
        lines.append(Line(labels, cells, row.is_null, block != previous))
        previous = block
    return ResultsTable(["phenotype", "part", "model", *columns.values()], 3, lines)


def format_value(metric: str, value: float) -> str:
    """As in a terminal, but with a true minus."""
    return format_metric(metric, value).replace("-", "−") if math.isfinite(value) else UNDEFINED
