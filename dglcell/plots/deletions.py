"""Correlation by number of deleted genes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dglcell.plots.data import Predictions, Subject
from dglcell.plots.panel import Panel, Table
from dglcell.plots.style import INK, SERIES, draw_nothing, heading, shorten
from dglcell.training.metrics import regression_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MIN_GROUP_SIZE = 3


def pearson_by_deletions(predictions: Predictions) -> list[tuple[int, float, int]]:
    """Number of deletions, Pearson correlation and n of each group of strains that has one."""
    p = predictions.usable
    groups = []
    for number in np.unique(p.num_deletions):
        inside = p.num_deletions == number
        r = regression_metrics(p.predicted[inside], p.measured[inside])["pearson"]
        if inside.sum() >= MIN_GROUP_SIZE and math.isfinite(r):
            groups.append((int(number), r, int(inside.sum())))
    return groups


def deletions_panel(subject: Subject) -> Panel | None:
    """The panel; None where fewer than two numbers of deletions have a correlation."""
    groups = pearson_by_deletions(subject.predictions)
    if len(groups) < 2:
        return None
    caption = (
        f"Pearson correlation of measured and predicted {subject.phenotype} among {subject.part} strains with the same "
        "number of deleted genes: " + ", ".join(f"n = {n:,} with {count}" for count, _, n in groups) + "."
    )
    return Panel(
        subject.key("deletions"),
        "Correlation by number of deletions",
        caption,
        Table(("deleted genes", "pearson", "n"), groups),
        lambda axes: draw_deletions(axes, [subject]),
    )


def draw_deletions(axes: Axes, subjects: Sequence[Subject]) -> None:
    """One line a phenotype; the numbers of strains are those of the first."""
    part = subjects[0].part if subjects else "test"
    title = f"{part.capitalize()} Pearson by number of deletions"
    groups = [(subject, pearson_by_deletions(subject.predictions)) for subject in subjects]
    numbers = sorted({group[0] for _, entries in groups for group in entries})
    if not numbers:
        draw_nothing(axes, title, "no group of strains has a correlation")
        return
    heading(axes, title, f"n of {shorten(subjects[0].phenotype)}" if len(groups) > 1 else "")
    for (subject, entries), color in zip(groups, SERIES, strict=False):
        axes.plot([e[0] for e in entries], [e[1] for e in entries], "o-", color=color, label=shorten(subject.phenotype))
    count = dict.fromkeys(numbers, 0) | {number: n for number, _, n in groups[0][1]}
    axes.set_xticks(numbers, [f"{number}\nn = {count[number]:,}" for number in numbers])
    axes.set_xlim(numbers[0] - 0.4, numbers[-1] + 0.4)
    axes.set(xlabel="deleted genes", ylabel="Pearson correlation")
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.margins(y=0.12)
    if len(groups) > 1:
        axes.legend()
