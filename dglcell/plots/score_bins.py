"""Measured phenotypes of strains whose predictions lie in the same bin, as boxes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.plots.data import Subject
from dglcell.plots.interaction import EDGES, is_binary, is_interaction
from dglcell.plots.panel import Panel, Table
from dglcell.plots.style import BLUE, GREY, INK, VERMILION, draw_nothing, heading, shorten, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST_BINS = 10
LEAST_STRAINS = 5


@dataclass(frozen=True)
class ScoreBins:
    """Measurements of strains by their prediction.

    Attributes:
        edges: [K + 1] a strain belongs to the bin with edge < prediction ≤ next edge; the outermost are infinite.
        fixed: whether the edges are the usual ones of interaction scores.
        measured: K arrays, of the strains of each bin.
    """

    edges: NDArray[np.float64]
    fixed: bool
    measured: list[NDArray[np.floating]]

    @property
    def n(self) -> list[int]:
        """Strains of each bin."""
        return [len(values) for values in self.measured]


def score_bins(subject: Subject) -> ScoreBins:
    """Divide the strains: interaction scores at the usual edges, all else into bins of equally many strains.

    The latter are at most ten, of five strains or more; strains with the same prediction stay together.
    """
    p, fixed = subject.usable, is_interaction(subject.phenotype)
    if fixed:
        edges = np.array(EDGES)
    else:
        count = int(np.clip(len(p) // LEAST_STRAINS, 1, MOST_BINS))
        shares = np.linspace(0, 1, count + 1)[1:-1]
        # Each edge is a prediction itself, so that no bin is empty.
        inner = np.unique(np.quantile(p.predicted, shares, method="inverted_cdf")) if len(p) else np.zeros(0)
        inner = inner[inner < p.predicted.max(initial=-np.inf)]
        edges = np.concatenate([[-np.inf], inner, [np.inf]])
    bin_of = np.searchsorted(edges[1:-1], p.predicted, side="left")
    return ScoreBins(edges, fixed, [p.measured[bin_of == k] for k in range(len(edges) - 1)])


def score_bins_panel(subject: Subject) -> Panel | None:
    """The panel; None for a phenotype that is 0 or 1, which has no quartiles to speak of."""
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
        (low, high, len(values), *_summary(values))
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
    """A box for each bin."""
    title = "Measured by predicted bin"
    if subject.nothing:
        draw_nothing(axes, title, subject.nothing)
        return
    found = score_bins(subject)
    heading(axes, title, "boxes: middle half, 5–95 % · ◇ mean")
    _draw_boxes(axes, found)
    drawn = np.concatenate([_summary(v)[1:] if len(v) >= LEAST_STRAINS else v for v in found.measured if len(v)])
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
    """Boxes of bins with enough strains, points of the others."""
    boxes, places = [], []
    for k, values in enumerate(found.measured):
        if len(values) < LEAST_STRAINS:
            axes.scatter(np.full(len(values), k), values, s=12, color=BLUE, alpha=0.7, linewidths=0)
            continue
        mean, low, q1, median, q3, high = _summary(values)
        boxes.append({"whislo": low, "q1": q1, "med": median, "q3": q3, "whishi": high, "mean": mean, "fliers": []})
        places.append(k)
    axes.bxp(
        boxes, places, widths=0.62, showmeans=True, showfliers=False, patch_artist=True, manage_ticks=False,
        boxprops={"facecolor": BLUE, "alpha": 0.35, "edgecolor": BLUE}, medianprops={"color": INK, "linewidth": 1.4},
        whiskerprops={"color": BLUE, "linewidth": 1}, capprops={"color": BLUE, "linewidth": 1},
        meanprops={"marker": "D", "markersize": 3.2, "markerfacecolor": "white", "markeredgecolor": VERMILION},
    )  # fmt: skip


def _summary(values: NDArray[np.floating]) -> list[float]:
    """Mean and quantiles; NaN of no strain."""
    if len(values) == 0:
        return [math.nan] * (1 + len(QUANTILES))
    return [float(values.mean()), *np.quantile(values, QUANTILES).tolist()]


def compact(n: int) -> str:
    """A count of at most four characters up to a million: 999, 9.9k, 999k."""
    if n < 1000:
        return str(n)
    return f"{n / 1000:.1f}k" if n < 9950 else f"{n / 1000:,.0f}k"


def _labels(edges: NDArray[np.float64]) -> list[str]:
    """Edges with as many digits as tell them apart."""
    labels: list[str] = []
    for digits in range(2, 7):
        labels = [f"{edge:.2f}" if digits == 2 else f"{edge:.{digits}g}" for edge in edges]
        if len(set(labels)) == len(labels):
            break
    return [label.replace("-", "−") for label in labels]
