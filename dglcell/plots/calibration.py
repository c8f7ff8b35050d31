"""Calibration: mean measurement of strains with similar predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dglcell.plots.data import Predictions, Subject
from dglcell.plots.panel import Panel, Table
from dglcell.plots.style import BLUE, LIGHT, diagonal, draw_nothing, heading, shorten, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_BINS = 12
MIN_BIN_SIZE = 5


@dataclass(frozen=True)
class CalibrationBin:
    """Strains with similar predictions.

    Attributes:
        predicted: mean prediction.
        measured: mean measurement.
        standard_error: of the mean measurement.
        n: strains in the bin.
    """

    predicted: float
    measured: float
    standard_error: float
    n: int


def calibration(predictions: Predictions) -> list[CalibrationBin]:
    """Mean measurement in bins of equally many strains, ordered by prediction.

    Strains with the same prediction stay in one bin, so that a constant prediction makes a single bin.
    """
    p = predictions.usable
    if len(p) < 2 * MIN_BIN_SIZE:
        return []
    count = min(MAX_BINS, len(p) // MIN_BIN_SIZE)
    edges = np.unique(np.quantile(p.predicted, np.linspace(0, 1, count + 1)[1:-1]))
    bin_of = np.searchsorted(edges, p.predicted, side="left")
    bins = []
    for index in np.unique(bin_of):
        inside = bin_of == index
        y, n = p.measured[inside], int(inside.sum())
        error = float(y.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan
        bins.append(CalibrationBin(float(p.predicted[inside].mean()), float(y.mean()), error, n))
    return bins


def calibration_panel(subject: Subject) -> Panel:
    """The panel."""
    bins, n = calibration(subject.predictions), len(subject.usable)
    caption = (
        f"Mean measured {subject.phenotype} of {subject.part} strains with similar predictions, in {len(bins)} bins of "
        f"equally many strains, n = {n:,}; bars are standard errors of the mean. On the dashed line predictions are "
        "right on average; the grey line is the mean of all measurements."
    )
    if len(bins) < 2:
        caption = f"Fewer than two bins of at least {MIN_BIN_SIZE} {subject.part} strains, n = {n:,}."
    return Panel(
        subject.key("calibration"),
        "Calibration",
        caption,
        Table(
            ("mean predicted", "mean measured", "standard_error", "n"),
            [(b.predicted, b.measured, b.standard_error, b.n) for b in bins],
        ),
        lambda axes: draw_calibration(axes, subject),
    )


def draw_calibration(axes: Axes, subject: Subject) -> None:
    """Mean measurement of strains with similar predictions, with standard errors."""
    title = f"Calibration ({subject.part})"
    bins = calibration(subject.predictions)
    if len(bins) < 2:
        enough = len(subject.usable) >= 2 * MIN_BIN_SIZE
        draw_nothing(axes, title, "the prediction is constant" if enough else f"too few {subject.part} strains")
        return
    heading(axes, title, f"means of {len(bins)} equal bins ± SE · grey: mean of all")
    x, y = np.array([b.predicted for b in bins]), np.array([b.measured for b in bins])
    error = np.array([b.standard_error for b in bins])
    axes.axhline(float(subject.usable.measured.mean()), color=LIGHT, linewidth=1.2, zorder=1)
    diagonal(axes)
    axes.errorbar(x, y, yerr=error, fmt="o-", color=BLUE, markersize=5, linewidth=1.3, elinewidth=1.3, zorder=4)
    error = np.nan_to_num(error)
    low, high = float(min(x.min(), (y - error).min())), float(max(x.max(), (y + error).max()))
    pad = 0.06 * (high - low) or 0.5
    axes.set(xlim=(low - pad, high + pad), ylim=(low - pad, high + pad))
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlabel(with_unit(f"mean predicted {shorten(subject.phenotype)}", subject.unit))
    axes.set_ylabel(with_unit(f"mean measured {shorten(subject.phenotype)}", subject.unit))
