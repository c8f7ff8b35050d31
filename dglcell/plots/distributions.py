"""Draw distributions of phenotypes, correlation by number of deletions, precision and recall of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import DataError
from dglcell.metrics import average_precision, ranked, regression_metrics
from dglcell.plots.data import CUT, Predictions, Subject, is_binary, is_interaction
from dglcell.plots.style import (
    BLUE,
    FEWEST_COUNTED,
    GREY,
    INK,
    MANY_STRAINS,
    SERIES,
    VERMILION,
    Panel,
    Table,
    amount,
    count_axis,
    draw_nothing,
    draw_strip,
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
    """Hold counts of the measured and predicted values of the same strains, in the same bins.

    Attributes:
        edges: [K + 1] edges of the bins; all but the most extreme values lie within.
        measured, predicted: [K] number of strains in each bin.
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
    """Count and compare measured and predicted values; at least one strain is measured."""
    # The import is here, because scipy.stats takes a second to import, and lists of runs draw nothing.
    from scipy.spatial.distance import jensenshannon
    from scipy.stats import wasserstein_distance

    p = predictions.usable
    everything = np.concatenate([p.measured, p.predicted])
    low, high = robust_range(everything)
    edges = np.linspace(low, high, int(np.clip(2 * math.sqrt(len(p)), FEWEST_BINS, MOST_BINS)) + 1)
    # There is one more bin at either end for values outside.
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
    """Make the panel of both distributions."""
    found = distributions(subject.predictions)
    rows = zip(
        found.edges[:-1].tolist(), found.edges[1:].tolist(), found.measured.tolist(), found.predicted.tolist(),
        strict=True,
    )  # fmt: skip
    unit, usable = f" {subject.unit}" if subject.unit else "", subject.usable
    how = "How often values of {} are measured and predicted" if _counted(subject) else "Each value of {} as a point"
    caption = (
        f"{how.format(subject.phenotype)}, n = {len(usable):,} "
        f"{subject.part} strains{', counts on a logarithmic scale' if _many(subject) else ''}. Wasserstein distance "
        f"{found.wasserstein:.3g}{unit}; Jensen–Shannon divergence {found.jensen_shannon:.3g} bit (0: the same, "
        f"1: disjoint; over {len(found.measured)} bins and one beyond either end)."
    )
    table = Table(("from", "to", "measured", "predicted"), list(rows))
    if not _counted(subject):
        table = Table(("measured", "predicted"), np.column_stack([usable.measured, usable.predicted]).tolist())
    return Panel(
        subject.key("distributions"),
        "Distributions",
        caption,
        table,
        lambda axes: draw_distributions(axes, subject),
    )


def draw_distributions(axes: Axes, subject: Subject) -> None:
    """Draw both histograms over each other; strains are drawn as points where they are few."""
    title = f"Distributions ({subject.part})"
    if subject.nothing:
        draw_nothing(axes, title, subject.nothing)
        return
    found = distributions(subject.predictions)
    distance = amount(found.wasserstein, subject.usable.measured)
    heading(axes, title, f"Wasserstein {distance} · n = {len(subject.usable):,}")
    axes.set_xlabel(with_unit(shorten(subject.phenotype), subject.unit))
    if not _counted(subject):
        draw_strip(axes, {"measured": (subject.usable.measured, GREY), "predicted": (subject.usable.predicted, BLUE)})
        return
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
    axes.legend(ncols=2, loc="upper left", borderaxespad=0.1)


def _counted(subject: Subject) -> bool:
    return len(subject.usable) >= FEWEST_COUNTED


def _many(subject: Subject) -> bool:
    return len(subject.usable) >= MANY_STRAINS


MIN_GROUP_SIZE = 3


def pearson_by_deletions(predictions: Predictions) -> list[tuple[int, float, int]]:
    """Return number of deletions, Pearson correlation and n of each group of strains that has a correlation."""
    p = predictions.usable
    groups = []
    for deletions in np.unique(p.num_deletions):
        inside = p.num_deletions == deletions
        r = regression_metrics(p.predicted[inside], p.measured[inside])["pearson"]
        if inside.sum() >= MIN_GROUP_SIZE and math.isfinite(r):
            groups.append((int(deletions), r, int(inside.sum())))
    return groups


def deletions_panel(subject: Subject) -> Panel | None:
    """Make the panel; return None where fewer than two numbers of deletions have a correlation."""
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
    """Draw one line a phenotype; the numbers of strains are those of the first."""
    title = f"{subjects[0].part.capitalize()} Pearson by number of deletions"
    groups = [(subject, pearson_by_deletions(subject.predictions)) for subject in subjects]
    numbers = sorted({group[0] for _, entries in groups for group in entries})
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


MOST_ROWS = 1000


@dataclass(frozen=True)
class PrecisionRecall:
    """Hold precision and recall of a ranking of strains for one class.

    Attributes:
        precision, recall: [K] after each distinct score, from the highest down.
        positives: number of strains of the class.
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
    """Return one curve for each class that occurs; none for phenotypes without classes."""
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
    """Make the panel; return None for a phenotype without classes."""
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
    caption = f"Precision and recall of a class when {subject.part} strains are ranked by prediction. {each}.{how}"
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
    """Draw a curve for each class, and the share of the class among all strains."""
    curves = class_curves(subject)
    heading(
        axes, f"Precision and recall ({subject.part})", f"AP: average precision · dotted: random · n = {curves[0].n:,}"
    )
    for curve, color in zip(curves, (BLUE, VERMILION), strict=False):
        label = f"{curve.name.replace('$', chr(92) + '$')}, AP {number(curve.average)}"
        recall, precision = np.append(0.0, curve.recall), np.append(curve.precision[0], curve.precision)
        axes.plot(recall, precision, drawstyle="steps-pre", color=color, label=label)
        axes.axhline(curve.positives / curve.n, color=color, linewidth=1.2, linestyle=":")
    axes.set(xlim=(0, 1.005), ylim=(0, 1.28), xlabel="recall", ylabel="precision")
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.legend(loc="upper right", borderaxespad=0.1)


def _few(curve: PrecisionRecall) -> NDArray[np.int64]:
    """Return positions of at most a thousand points along the curve, ends included, for its table."""
    return np.unique(np.linspace(0, len(curve.recall) - 1, min(len(curve.recall), MOST_ROWS)).astype(np.int64))
