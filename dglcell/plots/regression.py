"""Draw measured against predicted phenotypes: agreement, calibration, residuals, bins of scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.plots.data import EDGES, Predictions, Subject, is_binary, is_interaction
from dglcell.plots.style import (
    BLUE,
    FEWEST_COUNTED,
    GREY,
    INK,
    LIGHT,
    MANY_STRAINS,
    VERMILION,
    Panel,
    Range,
    Table,
    amount,
    count_axis,
    diagonal,
    draw_density,
    draw_nothing,
    draw_strip,
    heading,
    hexagons,
    number,
    robust_range,
    sample,
    shorten,
    with_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def agreement(subject: Subject) -> Panel:
    """Make the panel of measured against predicted values."""
    n, metrics = len(subject.usable), subject.predictions.metrics
    many = n >= MANY_STRAINS
    seen = "colour counts strains, on a logarithmic scale" if many else "one point a strain"
    if not many and n > subject.points:
        seen += f"; {subject.points:,} of them chosen at random"
    caption = (
        f"Measured against predicted {subject.phenotype} of n = {n:,} {subject.part} strains; {seen}. On the dashed "
        f"line predictions are exact. Pearson {number(metrics['pearson'])}, Spearman {number(metrics['spearman'])}, "
        f"R² {number(metrics['r2'])}."
    )
    return Panel(
        subject.key("agreement"),
        "Measured against predicted",
        caption,
        _table(subject),
        lambda axes: draw_agreement(axes, subject),
    )


def draw_agreement(axes: Axes, subject: Subject, *, named: bool = False) -> None:
    """Draw points, or log density of points where there are many.

    Args:
        named: whether the title names phenotype and part.
    """
    title = "Measured against predicted"
    if named:
        title = f"{shorten(subject.phenotype)} ({subject.part})"
    if subject.nothing:
        draw_nothing(axes, title, subject.nothing)
        return
    x_range, y_range = _ranges(subject)
    heading(axes, title, _summary(subject, x_range, y_range))
    p = subject.usable
    draw_density(axes, p.predicted, p.measured, x_range, y_range, subject.points)
    diagonal(axes)
    axes.set_xlabel(with_unit(f"predicted {shorten(subject.phenotype)}", subject.unit))
    axes.set_ylabel(with_unit(f"measured {shorten(subject.phenotype)}", subject.unit))


def _ranges(subject: Subject) -> tuple[Range, Range]:
    return robust_range(subject.usable.predicted), robust_range(subject.usable.measured)


def _summary(subject: Subject, x_range: Range, y_range: Range) -> str:
    p, metrics = subject.usable, subject.predictions.metrics
    parts = [f"Pearson {number(metrics['pearson'])}", f"Spearman {number(metrics['spearman'])}", f"n = {len(p):,}"]
    outside = (p.predicted < x_range[0]) | (p.predicted > x_range[1])
    outside |= (p.measured < y_range[0]) | (p.measured > y_range[1])
    if outside.any():
        parts[-1] += f", {int(outside.sum()):,} outside"
    return " · ".join(parts)


def _table(subject: Subject) -> Table:
    """Return the strains that are drawn as points, or else the hexagons."""
    p = subject.usable
    if len(p) < MANY_STRAINS:
        shown = sample(len(p), subject.points)
        rows = np.column_stack([p.predicted[shown], p.measured[shown]]).tolist()
        return Table(("predicted", "measured"), rows)
    found = hexagons(p.predicted, p.measured, *_ranges(subject))
    rows = list(zip(found.x.tolist(), found.y.tolist(), found.counts.tolist(), strict=True))
    return Table(("predicted", "measured", "strains"), rows)


MAX_BINS = 12
MIN_BIN_SIZE = 5


@dataclass(frozen=True)
class CalibrationBin:
    """Hold strains with similar predictions.

    Attributes:
        n: number of strains in the bin.
    """

    predicted: float
    measured: float
    standard_error: float
    n: int


def calibration(predictions: Predictions) -> list[CalibrationBin]:
    """Return the mean measurement in bins of equally many strains, ordered by prediction.

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
    """Make the panel of the calibration."""
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
    """Draw the mean measurement of strains with similar predictions, with standard errors."""
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


LEAST_FOR_SD, LEAST_FOR_NORMAL = 2, FEWEST_COUNTED


def residuals(subject: Subject) -> list[Panel]:
    """Make both panels of residuals."""
    n, error, measured = len(subject.usable), residual(subject), subject.usable.measured
    mean, sd = _moments(error)
    along = (
        f"Predicted minus measured {subject.phenotype} along the prediction, n = {n:,} {subject.part} strains. "
        "Red: mean residual of bins with equally many strains; away from zero, predictions of that size are biased."
    )
    each = "counted" if n >= FEWEST_COUNTED else "as points"
    spread = f"The same residuals {each}: mean {amount(mean, measured)}, SD {amount(sd, measured)}, n = {n:,}." + (
        " The line is the normal distribution with this mean and SD." if _is_normal_drawn(error) else ""
    )
    bins = [(b.predicted, b.predicted - b.measured, b.standard_error, b.n) for b in calibration(subject.predictions)]
    counts, edges = _counts(error)
    counted = Table(
        ("from", "to", "strains"),
        list(zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)),
    )
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
            counted if n >= FEWEST_COUNTED else Table(("residual",), error[:, None].tolist()),
            lambda axes: draw_residual_histogram(axes, subject),
        ),
    ]


def residual(subject: Subject) -> NDArray[np.float64]:
    """Return predicted − measured, [S]."""
    error: NDArray[np.float64] = subject.usable.predicted - subject.usable.measured
    return error


def draw_residuals(axes: Axes, subject: Subject) -> None:
    """Draw residuals against predictions, with their means in bins."""
    p, error = subject.usable, residual(subject)
    bins = calibration(subject.predictions)
    heading(
        axes,
        "Residuals along the prediction",
        f"n = {len(p):,}" + (f" · red: means of {len(bins)} equal bins" if bins else ""),
    )
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
    """Draw a histogram of residuals, with the normal distribution of the same mean and SD.

    Strains are drawn as points where they are few.
    """
    error, measured = residual(subject), subject.usable.measured
    mean, sd = _moments(error)
    note = f"mean {amount(mean, measured)} · SD {amount(sd, measured)} · n = {len(error):,}"
    heading(axes, "Distribution of residuals", note)
    axes.set_xlabel(with_unit("predicted − measured", subject.unit))
    axes.axvline(0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    if len(error) < FEWEST_COUNTED:
        draw_strip(axes, {"strains": (error, BLUE)})
        return
    counts, edges = _counts(error)
    axes.stairs(counts, edges, fill=True, color=BLUE, alpha=0.35)
    axes.stairs(counts, edges, color=BLUE, linewidth=1.2)
    top = 1.12 * float(counts.max())
    if _is_normal_drawn(error):
        x = np.linspace(edges[0], edges[-1], 200)
        density = np.exp(-(((x - mean) / sd) ** 2) / 2) / (sd * math.sqrt(2 * math.pi))
        axes.plot(x, density * len(error) * (edges[1] - edges[0]), color=VERMILION, linewidth=1.2)
    axes.set(xlim=(float(edges[0]), float(edges[-1])), ylim=(0, top))
    count_axis(axes)
    axes.locator_params(axis="x", nbins=6)


def _moments(error: NDArray[np.float64]) -> tuple[float, float]:
    return float(error.mean()), float(error.std(ddof=1)) if len(error) >= LEAST_FOR_SD else math.nan


def _is_normal_drawn(error: NDArray[np.float64]) -> bool:
    return len(error) >= LEAST_FOR_NORMAL and float(np.ptp(error)) > 0


def _counts(error: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return counts and edges of equal bins around zero, about √n of them."""
    reach = max(map(abs, robust_range(error)))
    counts, edges = np.histogram(error, int(np.clip(math.sqrt(len(error)) * 2, 8, 60)), (-reach, reach))
    return counts, edges


QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST_BINS = 10
LEAST_STRAINS = 5


@dataclass(frozen=True)
class ScoreBins:
    """Hold measurements of strains, grouped by their prediction.

    Attributes:
        edges: [K + 1] edges; a strain belongs to the bin with edge < prediction ≤ next edge; the outermost are
            infinite.
        fixed: whether the edges are the usual ones of interaction scores.
        measured: K arrays with the measurements of the strains of each bin.
    """

    edges: NDArray[np.float64]
    fixed: bool
    measured: list[NDArray[np.floating]]

    @property
    def n(self) -> list[int]:
        """Return the number of strains of each bin."""
        return [len(values) for values in self.measured]


def score_bins(subject: Subject) -> ScoreBins:
    """Divide the strains: interaction scores at the usual edges, all others into bins of equally many strains.

    There are at most ten of the latter, of five strains or more; strains with the same prediction stay together.
    """
    p, fixed = subject.usable, is_interaction(subject.phenotype)
    if fixed:
        edges = np.array(EDGES)
    else:
        count = int(np.clip(len(p) // LEAST_STRAINS, 1, MOST_BINS))
        shares = np.linspace(0, 1, count + 1)[1:-1]
        # Each edge is a prediction, so that no bin is empty.
        inner = np.unique(np.quantile(p.predicted, shares, method="inverted_cdf")) if len(p) else np.zeros(0)
        inner = inner[inner < p.predicted.max(initial=-np.inf)]
        edges = np.concatenate([[-np.inf], inner, [np.inf]])
    bin_of = np.searchsorted(edges[1:-1], p.predicted, side="left")
    return ScoreBins(edges, fixed, [p.measured[bin_of == k] for k in range(len(edges) - 1)])


def score_bins_panel(subject: Subject) -> Panel | None:
    """Make the panel; return None for a phenotype that is 0 or 1, whose quartiles say little."""
    if is_binary(subject.usable.measured):
        return None
    found = score_bins(subject)
    how = f"into {len(found.n)} bins of equally many strains" if len(found.n) > 1 else "into a single bin"
    if found.fixed:
        how = "at the usual edges of interaction scores"
    caption = (
        f"Measured {subject.phenotype} of {subject.part} strains, n = {len(subject.usable):,}, divided by their "
        f"predictions {how}. The edges stand between the boxes, the number of strains above them. Boxes span the "
        "middle half, whiskers 5 to 95 %; line: median, diamond: mean. "
        f"Bins of fewer than {LEAST_STRAINS} strains show each of them."
    )
    rows = [
        (low, high, len(values), *_bins_summary(values))
        for low, high, values in zip(
            found.edges[:-1].tolist(), found.edges[1:].tolist(), found.measured, strict=True
        )
    ]  # fmt: skip
    columns = ("predicted above", "predicted to", "n", "mean", "q05", "q25", "median", "q75", "q95")
    return Panel(
        subject.key("score-bins"),
        "Measured by predicted bin",
        caption,
        Table(columns, rows),
        lambda axes: draw_score_bins(axes, subject),
    )


def draw_score_bins(axes: Axes, subject: Subject) -> None:
    """Draw a box for each bin."""
    title = "Measured by predicted bin"
    if subject.nothing:
        draw_nothing(axes, title, subject.nothing)
        return
    found = score_bins(subject)
    heading(axes, title, "boxes: middle half, 5–95 % · ◇ mean")
    _draw_boxes(axes, found)
    drawn = np.concatenate([_bins_summary(v)[1:] if len(v) >= LEAST_STRAINS else v for v in found.measured if len(v)])
    low, high = float(drawn.min()), float(drawn.max())
    pad = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
    axes.set_ylim(low - pad, high + 3 * pad)
    for k, n in enumerate(found.n):
        axes.text(
            k, 1.0, compact(n), transform=axes.get_xaxis_transform(), ha="center", va="top", color=GREY, size="small"
        )
    if found.fixed:
        axes.axhline(0, color=GREY, linewidth=0.8, zorder=0)
    inner = found.edges[1:-1]
    axes.set_xticks(np.arange(len(inner)) + 0.5, _labels(inner), rotation=0 if len(inner) < 6 else 40)
    axes.set_xlim(-0.6, len(found.n) - 0.4)
    edges = "edges of " if len(inner) else "any "
    axes.set_xlabel(with_unit(f"{edges}predicted {shorten(subject.phenotype)}", subject.unit))
    axes.set_ylabel(with_unit(f"measured {shorten(subject.phenotype)}", subject.unit))


def _draw_boxes(axes: Axes, found: ScoreBins) -> None:
    """Draw boxes of bins with enough strains, and points of the others."""
    boxes, places = [], []
    for k, values in enumerate(found.measured):
        if len(values) < LEAST_STRAINS:
            axes.scatter(np.full(len(values), k), values, s=12, color=BLUE, alpha=0.7, linewidths=0)
            continue
        mean, low, q1, median, q3, high = _bins_summary(values)
        boxes.append({"whislo": low, "q1": q1, "med": median, "q3": q3, "whishi": high, "mean": mean, "fliers": []})
        places.append(k)
    axes.bxp(
        boxes, places, widths=0.62, showmeans=True, showfliers=False, patch_artist=True, manage_ticks=False,
        boxprops={"facecolor": BLUE, "alpha": 0.35, "edgecolor": BLUE}, medianprops={"color": INK, "linewidth": 1.4},
        whiskerprops={"color": BLUE, "linewidth": 1}, capprops={"color": BLUE, "linewidth": 1},
        meanprops={"marker": "D", "markersize": 3.2, "markerfacecolor": "white", "markeredgecolor": VERMILION},
    )  # fmt: skip


def _bins_summary(values: NDArray[np.floating]) -> list[float]:
    """Return mean and quantiles; they are NaN if there is no strain."""
    if len(values) == 0:
        return [math.nan] * (1 + len(QUANTILES))
    return [float(values.mean()), *np.quantile(values, QUANTILES).tolist()]


def compact(n: int) -> str:
    """Format a count in at most four characters up to a million: 999, 9.9k, 999k."""
    if n < 1000:
        return str(n)
    return f"{n / 1000:.1f}k" if n < 9950 else f"{n / 1000:,.0f}k"


def _labels(edges: NDArray[np.float64]) -> list[str]:
    """Format edges with as many digits as tell them apart."""
    labels: list[str] = []
    for digits in range(2, 7):
        labels = [f"{edge:.2f}" if digits == 2 else f"{edge:.{digits}g}" for edge in edges]
        if len(set(labels)) == len(labels):
            break
    return [label.replace("-", "−") for label in labels]
