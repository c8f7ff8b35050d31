"""Measured against predicted phenotypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dglcell.plots.data import Subject
from dglcell.plots.density import Range, draw_density, hexagons, sample
from dglcell.plots.panel import Panel, Table
from dglcell.plots.style import MANY_STRAINS, diagonal, draw_nothing, heading, number, robust_range, shorten, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def agreement(subject: Subject) -> Panel:
    """The panel."""
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
    """Points, or log density of points where there are many.

    Args:
        axes: to draw in.
        subject: which strains.
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
    """Strains that are drawn as points, else the hexagons."""
    p = subject.usable
    if len(p) < MANY_STRAINS:
        shown = sample(len(p), subject.points)
        rows = np.column_stack([p.predicted[shown], p.measured[shown]]).tolist()
        return Table(("predicted", "measured"), rows)
    found = hexagons(p.predicted, p.measured, *_ranges(subject))
    rows = list(zip(found.x.tolist(), found.y.tolist(), found.counts.tolist(), strict=True))
    return Table(("predicted", "measured", "strains"), rows)
