"""Precision and recall where strains fall into classes: yes or no, or interactions beyond the usual cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import DataError
from dglcell.plots.data import Subject
from dglcell.plots.interaction import CUT, is_binary, is_interaction
from dglcell.plots.panel import Panel, Table
from dglcell.plots.style import BLUE, VERMILION, draw_nothing, heading, number
from dglcell.training.ranking import average_precision, ranked

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 1000


@dataclass(frozen=True)
class PrecisionRecall:
    """How well a ranking finds one class.

    Attributes:
        name: of the class.
        precision, recall: [K] after each distinct score, from the highest down.
        average: average precision.
        positives: strains of the class.
        n: all strains.
    """

    name: str
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    average: float
    positives: int
    n: int


def precision_recall(name: str, is_positive: NDArray[np.bool_], score: NDArray[np.floating]) -> PrecisionRecall:
    """Rank strains by score, highest first; strains with the same score count at once.

    Raises:
        DataError: no strain is positive, so that recall is undefined.
    """
    positives = int(is_positive.sum())
    if positives == 0:
        raise DataError(f"no strain is {name}", do="draw precision and recall only of classes that occur")
    scores = np.asarray(score, np.float64)
    _, found, taken = ranked(scores, is_positive)
    average = average_precision(scores, is_positive)
    return PrecisionRecall(name, found / taken, found / positives, average, positives, len(score))


def class_curves(subject: Subject) -> list[PrecisionRecall]:
    """One curve for each class that occurs; none for phenotypes without classes."""
    p = subject.usable
    if is_binary(p.measured):
        classes = [(f"{subject.phenotype} = 1", p.measured == 1, p.predicted)]
    elif is_interaction(subject.phenotype):
        classes = [
            (f"negative (< −{CUT})", p.measured < -CUT, -p.predicted),
            (f"positive (> {CUT})", p.measured > CUT, p.predicted),
        ]
    else:
        return []
    return [precision_recall(*entry) for entry in classes if entry[1].any()]


def precision_recall_panel(subject: Subject) -> Panel | None:
    """The panel; None for a phenotype without classes."""
    curves = class_curves(subject)
    if not curves:
        return None
    each = "; ".join(
        f"{c.name}: average precision {number(c.average)}, {c.positives:,} of {c.n:,} strains "
        f"({c.positives / c.n:.1%}, dotted: a random ranking)"
        for c in curves
    )
    binary = is_binary(subject.usable.measured)
    how = "" if binary else f" Interactions are scores beyond ±{CUT}, whatever their p-value."
    caption = f"Of the strains ranked first by prediction, how many are of the class, {subject.part} part. {each}.{how}"
    rows = [
        (c.name, r, q)
        for c in curves
        for r, q in zip(c.recall[_few(c)].tolist(), c.precision[_few(c)].tolist(), strict=True)
    ]
    return Panel(
        subject.key("precision-recall"),
        "Precision and recall",
        caption,
        Table(("class", "recall", "precision"), rows),
        lambda axes: draw_precision_recall(axes, subject),
    )


def draw_precision_recall(axes: Axes, subject: Subject) -> None:
    """A curve for each class, and the share of the class among all strains."""
    title = f"Precision and recall ({subject.part})"
    curves = class_curves(subject)
    if not curves:
        draw_nothing(axes, title, subject.nothing or "no strain is of a class")
        return
    heading(axes, title, f"AP: average precision · dotted: random · n = {curves[0].n:,}")
    for curve, color in zip(curves, (BLUE, VERMILION), strict=False):
        label = f"{curve.name.replace('$', chr(92) + '$')}, AP {number(curve.average)}"
        recall, precision = np.append(0.0, curve.recall), np.append(curve.precision[0], curve.precision)
        axes.plot(recall, precision, drawstyle="steps-pre", color=color, label=label)
        axes.axhline(curve.positives / curve.n, color=color, linewidth=1.2, linestyle=":")
    axes.set(xlim=(0, 1.005), ylim=(0, 1.28), xlabel="recall", ylabel="precision")
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.legend(loc="upper right", borderaxespad=0.1)


def _few(curve: PrecisionRecall) -> NDArray[np.int64]:
    """Positions of at most a thousand points along the curve, ends included, for its table."""
    return np.unique(np.linspace(0, len(curve.recall) - 1, min(len(curve.recall), MOST_ROWS)).astype(np.int64))
