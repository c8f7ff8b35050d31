"""Distributions of measured and predicted phenotypes, and how far apart they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import jensenshannon
from scipy.stats import wasserstein_distance

from dglcell.plots.data import Predictions, Subject
from dglcell.plots.panel import Panel, Table
from dglcell.plots.style import (
    BLUE,
    GREY,
    MANY_STRAINS,
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

FEWEST_BINS, MOST_BINS = 8, 60


@dataclass(frozen=True)
class Distributions:
    """Measured and predicted values of the same strains, counted in the same bins.

    Attributes:
        edges: [K + 1]; all but the most extreme values lie within.
        measured, predicted: [K] strains.
        wasserstein: first Wasserstein distance of all values, in units of the phenotype.
        jensen_shannon: Jensen–Shannon divergence in bits of the two histograms over all values, with bins as wide as
            these; from 0, the same, to 1, disjoint.
    """

    edges: NDArray[np.float64]
    measured: NDArray[np.int64]
    predicted: NDArray[np.int64]
    wasserstein: float
    jensen_shannon: float


def distributions(predictions: Predictions) -> Distributions:
    """Count and compare; NaN distances where no strain is measured."""
    p = predictions.usable
    if len(p) == 0:
        return Distributions(np.zeros(1), np.zeros(0, np.int64), np.zeros(0, np.int64), math.nan, math.nan)
    everything = np.concatenate([p.measured, p.predicted])
    low, high = robust_range(everything)
    edges = np.linspace(low, high, int(np.clip(2 * math.sqrt(len(p)), FEWEST_BINS, MOST_BINS)) + 1)
    # One bin more at either end for what lies beyond.
    full = np.concatenate([[-np.inf], edges, [np.inf]])
    measured, predicted = (np.histogram(values, full)[0] for values in (p.measured, p.predicted))
    return Distributions(
        edges,
        measured[1:-1],
        predicted[1:-1],
        float(wasserstein_distance(p.measured, p.predicted)),
        float(jensenshannon(measured, predicted, base=2) ** 2),
    )


def distributions_panel(subject: Subject) -> Panel:
    """The panel."""
    found = distributions(subject.predictions)
    rows = zip(
        found.edges[:-1].tolist(), found.edges[1:].tolist(), found.measured.tolist(), found.predicted.tolist(),
        strict=True,
    )  # fmt: skip
    unit = f" {subject.unit}" if subject.unit else ""
    caption = (
        f"How often values of {subject.phenotype} are measured and predicted, n = {len(subject.usable):,} "
        f"{subject.part} strains{', counts on a logarithmic scale' if _many(subject) else ''}. Wasserstein distance "
        f"{found.wasserstein:.3g}{unit}; Jensen–Shannon divergence {found.jensen_shannon:.3g} bit (0: the same, "
        f"1: disjoint; over the {len(found.measured)} bins shown and one beyond either end)."
    )
    return Panel(
        subject.key("distributions"),
        "Distributions",
        caption,
        Table(("from", "to", "measured", "predicted"), list(rows)),
        lambda axes: draw_distributions(axes, subject),
    )


def draw_distributions(axes: Axes, subject: Subject) -> None:
    """Both histograms over each other."""
    title = f"Distributions ({subject.part})"
    if subject.nothing:
        draw_nothing(axes, title, subject.nothing)
        return
    found = distributions(subject.predictions)
    heading(axes, title, f"Wasserstein {number(found.wasserstein)} · n = {len(subject.usable):,}")
    for counts, label, color in ((found.measured, "measured", GREY), (found.predicted, "predicted", BLUE)):
        axes.stairs(counts, found.edges, fill=True, color=color, alpha=0.28)
        axes.stairs(counts, found.edges, color=color, linewidth=1.4, label=label)
    top = max(int(found.measured.max()), int(found.predicted.max()))
    if _many(subject):
        axes.set(yscale="log", ylim=(0.7, top**1.25))
    else:
        axes.set_ylim(0, 1.3 * top)
    count_axis(axes)
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlim(float(found.edges[0]), float(found.edges[-1]))
    axes.set_xlabel(with_unit(shorten(subject.phenotype), subject.unit))
    axes.legend(ncols=2, loc="upper left", borderaxespad=0.1)


def _many(subject: Subject) -> bool:
    return len(subject.usable) >= MANY_STRAINS
