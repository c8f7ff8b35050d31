"""Residuals: predicted minus measured, along the predictions and as a histogram."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from dglcell.plots.calibration import calibration
from dglcell.plots.data import Subject
from dglcell.plots.density import draw_density
from dglcell.plots.panel import Panel, Table
from dglcell.plots.style import (
    BLUE,
    INK,
    VERMILION,
    count_axis,
    draw_nothing,
    heading,
    number,
    robust_range,
    shorten,
    with_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST_FOR_SD, LEAST_FOR_NORMAL = 2, 20


def residuals(subject: Subject) -> list[Panel]:
    """Both panels."""
    n, error = len(subject.usable), residual(subject)
    mean, sd = _moments(error)
    along = (
        f"Predicted minus measured {subject.phenotype} along the prediction, n = {n:,} {subject.part} strains. "
        "Red: mean residual of bins with equally many strains; away from zero, predictions of that size are biased."
    )
    spread = f"The same residuals counted: mean {number(mean)}, SD {number(sd)}, n = {n:,}." + (
        " The line is the normal distribution with this mean and SD." if _is_normal_drawn(error) else ""
    )
    bins = [(b.predicted, b.predicted - b.measured, b.standard_error, b.n) for b in calibration(subject.predictions)]
    counts, edges = _counts(error)
    return [
        Panel(
            subject.key("residuals"),
            "Residuals along the prediction",
            along,
            Table(("mean predicted", "mean residual", "standard_error", "n"), bins),
            lambda axes: draw_residuals(axes, subject),
        ),
        Panel(
            subject.key("residual-histogram"),
            "Distribution of residuals",
            spread,
            Table(
                ("from", "to", "strains"),
                list(zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)),
            ),
            lambda axes: draw_residual_histogram(axes, subject),
        ),
    ]


def residual(subject: Subject) -> NDArray[np.float64]:
    """[S] predicted − measured."""
    error: NDArray[np.float64] = subject.usable.predicted - subject.usable.measured
    return error


def draw_residuals(axes: Axes, subject: Subject) -> None:
    """Residuals against predictions, with their means in bins."""
    title = "Residuals along the prediction"
    if subject.nothing:
        draw_nothing(axes, title, subject.nothing)
        return
    p, error = subject.usable, residual(subject)
    bins = calibration(subject.predictions)
    heading(axes, title, f"n = {len(p):,}" + (f" · red: means of {len(bins)} equal bins" if bins else ""))
    low, high = robust_range(error)
    y_range = (low if low < 0 else -0.05 * high, high if high > 0 else -0.05 * low)
    draw_density(axes, p.predicted, error, robust_range(p.predicted), y_range, subject.points)
    axes.axhline(0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=3)
    if bins:
        x, y = [b.predicted for b in bins], [b.predicted - b.measured for b in bins]
        axes.plot(x, y, "o-", color="white", markersize=6, linewidth=3.2, zorder=4)
        axes.plot(x, y, "o-", color=VERMILION, markersize=4, linewidth=1.6, zorder=5)
    axes.set_xlabel(with_unit(f"predicted {shorten(subject.phenotype)}", subject.unit))
    axes.set_ylabel(with_unit("predicted − measured", subject.unit))


def draw_residual_histogram(axes: Axes, subject: Subject) -> None:
    """Residuals counted, with the normal distribution of the same mean and SD."""
    title = "Distribution of residuals"
    if subject.nothing:
        draw_nothing(axes, title, subject.nothing)
        return
    error = residual(subject)
    mean, sd = _moments(error)
    heading(axes, title, f"mean {number(mean)} · SD {number(sd)} · n = {len(error):,}")
    counts, edges = _counts(error)
    axes.stairs(counts, edges, fill=True, color=BLUE, alpha=0.35)
    axes.stairs(counts, edges, color=BLUE, linewidth=1.2)
    axes.axvline(0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    top = 1.12 * float(counts.max())
    if _is_normal_drawn(error):
        x = np.linspace(edges[0], edges[-1], 200)
        axes.plot(x, norm.pdf(x, mean, sd) * len(error) * (edges[1] - edges[0]), color=VERMILION, linewidth=1.2)
    axes.set(xlim=(float(edges[0]), float(edges[-1])), ylim=(0, top))
    count_axis(axes)
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlabel(with_unit("predicted − measured", subject.unit))


def _moments(error: NDArray[np.float64]) -> tuple[float, float]:
    if len(error) == 0:
        return math.nan, math.nan
    return float(error.mean()), float(error.std(ddof=1)) if len(error) >= LEAST_FOR_SD else math.nan


def _is_normal_drawn(error: NDArray[np.float64]) -> bool:
    return len(error) >= LEAST_FOR_NORMAL and float(np.ptp(error)) > 0


def _counts(error: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Counts and edges of equal bins around zero, about √n of them."""
    if len(error) == 0:
        return np.zeros(0, np.int64), np.zeros(1)
    reach = max(map(abs, robust_range(error)))
    counts, edges = np.histogram(error, int(np.clip(math.sqrt(len(error)) * 2, 8, 60)), (-reach, reach))
    return counts, edges
