"""Regression metrics of one phenotype, and the table that compares models."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from rich.table import Table
from scipy.stats import rankdata

from dglcell.errors import DataError

METRICS = ("mse", "rmse", "mae", "pearson", "spearman", "r2", "n")
COLUMNS = {"n": "n", "pearson": "Pearson", "spearman": "Spearman", "r2": "R²", "mse": "MSE", "mae": "MAE"}
LOWER_IS_BETTER = frozenset({"mse", "rmse", "mae"})
UNDEFINED = "-"
# Below this spread relative to its size an array is a constant with rounding errors.
CONSTANT = 1e-13


def regression_metrics(prediction: ArrayLike, target: ArrayLike) -> dict[str, float]:
    """Compare predictions with measurements, in float64.

    Args:
        prediction: [S] predicted values. One that is not finite is not masked: it makes the metrics NaN.
        target: [S] measured values; NaN where missing, those strains are left out.

    Returns:
        ``mse``, ``rmse``, ``mae``, ``pearson``, ``spearman`` (average ranks for ties), ``r2`` (1 − SSE/SST,
        negative for a model worse than the mean of the target) and ``n``, the number of measured strains.
        What is undefined is NaN: everything but ``n`` for no strain, the correlations for fewer than two
        strains or where either side is constant, ``r2`` where the target is constant. JSON has no NaN: write
        the result through :func:`json_safe`.

    Raises:
        DataError: the shapes differ or are not one-dimensional.
    """
    p = np.asarray(prediction, dtype=np.float64)
    t = np.asarray(target, dtype=np.float64)
    if p.ndim != 1 or p.shape != t.shape:
        raise DataError(
            "metrics: predictions and targets differ in shape",
            got=f"{p.shape} and {t.shape}",
            expected="two arrays of shape [S]",
        )
    measured = ~np.isnan(t)
    p, t = p[measured], t[measured]
    if len(t) == 0:
        return {name: math.nan for name in METRICS[:-1]} | {"n": 0}
    if not np.isfinite(p).all():
        return {name: math.nan for name in METRICS[:-1]} | {"n": len(t)}
    error = p - t
    mse = float(np.mean(error**2))
    spread = float(np.sum((t - t.mean()) ** 2))
    return {
        "mse": mse,
        "rmse": math.sqrt(mse),
        "mae": float(np.mean(np.abs(error))),
        "pearson": pearson(p, t),
        "spearman": pearson(rankdata(p), rankdata(t)),
        "r2": math.nan if is_constant(t) else 1.0 - float(np.sum(error**2)) / spread,
        "n": len(t),
    }


def is_constant(x: NDArray[np.float64]) -> bool:
    """Whether all values are equal up to rounding; true for fewer than two values."""
    return len(x) < 2 or bool(np.ptp(x) <= CONSTANT * np.abs(x).max())


def pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Pearson correlation of two arrays without missing values; NaN where either is constant."""
    if is_constant(x) or is_constant(y):
        return math.nan
    # Scaling first keeps the sums of squares of very small or very large values in range.
    x, y = (x - x.mean()) / np.ptp(x), (y - y.mean()) / np.ptp(y)
    r = float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))
    return min(1.0, max(-1.0, r))


def json_safe(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """The same metrics with None in place of NaN and infinities, which JSON does not have."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


@dataclass(frozen=True)
class ResultRow:
    """Metrics of one model on one part of a split, for one phenotype.

    Attributes:
        model: name shown, e.g. ``additive ridge``.
        part: ``train``, ``validation`` or ``test``.
        phenotype: label column.
        metrics: from :func:`regression_metrics`, in the original units of the phenotype.
        is_null: whether it is a null model.
    """

    model: str
    part: str
    phenotype: str
    metrics: Mapping[str, float]
    is_null: bool = False


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
    """The comparison table: blocks of phenotype and part, a line a model, ``*`` at the best of each column.

    Args:
        rows: any order; blocks keep the order in which they first appear, lines the order within.
        color: bold best values and dim null models, for a terminal.
        width: characters; as wide as needed if None.
    """
    rows = list(rows)
    order = list(dict.fromkeys((row.phenotype, row.part) for row in rows))
    rows.sort(key=lambda row: order.index((row.phenotype, row.part)))
    best = {metric: best_in_block(rows, metric) for metric in COLUMNS if metric != "n"}
    table = Table(box=None, pad_edge=False, header_style="bold" if color else "")
    for title in ("phenotype", "part", "model"):
        table.add_column(title, no_wrap=True)
    for title in COLUMNS.values():
        table.add_column(title, justify="right", no_wrap=True)
    previous: tuple[str, str] | None = None
    for i, row in enumerate(rows):
        block = (row.phenotype, row.part)
        if previous is not None and block != previous:
            table.add_section()
        labels = block if block != previous else ("", "")
        cells = [_cell(row, metric, i in best.get(metric, ())) for metric in COLUMNS]
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
