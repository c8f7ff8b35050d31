"""Draw models side by side: with null models, and of several experiments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import numpy as np

from dglcell.data.table import CLASSIFICATION, REGRESSION
from dglcell.metrics import ResultRow
from dglcell.plots.style import (
    BLUE,
    DASHES,
    GREY,
    HEIGHT,
    INK,
    LIGHT,
    SERIES,
    WIDTH,
    Panel,
    Table,
    draw_nothing,
    heading,
    number,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Score(NamedTuple):
    """Describe a metric of which more is better.

    Attributes:
        name: name that axes show.
        title: short name for titles.
    """

    metric: str
    name: str
    title: str


SCORES = {
    REGRESSION: Score("pearson", "Pearson correlation", "Pearson"),
    CLASSIFICATION: Score("average_precision", "Average precision", "average precision"),
}
"""This maps the kind of labels to the metric by which models are compared."""


def curve_key(phenotype: str, kind: str) -> str:
    """Return the key of a phenotype's validation score in the record."""
    return f"validation/{phenotype}/{SCORES[kind].metric}"


MODEL_NAME_LENGTH = 38


def models_panel(rows: Sequence[ResultRow], phenotype: str) -> Panel:
    """Make the panel that compares the model with the null models."""
    shown = [row for row in rows if row.phenotype == phenotype]
    n = max((int(row.metrics.get("n", 0)) for row in shown if row.part == "test"), default=0)
    metric, name, _ = SCORES[shown[0].kind if shown else REGRESSION]
    caption = (
        f"{name} of predicted {phenotype} on the test part (bars, n = {n:,}) and the validation part (diamonds). Null "
        "models are grey. Only kernel ridge uses networks."
    )
    if metric == "pearson":
        caption += " A model that predicts the same for all strains has none, and no bar."
    table = [(r.model, r.part, r.metrics.get(metric, math.nan), int(r.metrics.get("n", 0))) for r in shown]
    return Panel(
        f"{quote(phenotype, safe='')}-models",
        "Model against null models",
        caption,
        Table(("model", "part", metric, "n"), table),
        lambda axes: draw_models(axes, rows, phenotype),
    )


def draw_models(axes: Axes, rows: Sequence[ResultRow], phenotype: str) -> None:
    """Draw scores of the model and the null models: test as bars, validation as diamonds."""
    title = "Model against null models"
    scores: dict[str, dict[str, float]] = {}
    nulls = {row.model for row in rows if row.is_null}
    shown = [row for row in rows if row.phenotype == phenotype]
    metric, name_of_metric, _ = SCORES[shown[0].kind if shown else REGRESSION]
    for row in shown:
        scores.setdefault(row.model, {})[row.part] = row.metrics.get(metric, math.nan)
    if not scores:
        draw_nothing(axes, title, "no results")
        return
    heading(axes, title, "bars: test · diamonds: validation")
    drawn = [name for name in scores if any(map(math.isfinite, scores[name].values()))]
    names = sorted(drawn or scores, key=lambda name: _or_lowest(scores[name].get("test", math.nan)))
    test = np.array([scores[name].get("test", math.nan) for name in names])
    validation = np.array([scores[name].get("validation", math.nan) for name in names])
    colors = [LIGHT if name in nulls else BLUE for name in names]
    axes.barh(range(len(names)), np.nan_to_num(test), height=0.36, color=colors)
    axes.scatter(
        validation, range(len(names)), marker="D", s=22, facecolor="white", edgecolor=INK, linewidths=0.9, zorder=3
    )
    ends = np.nan_to_num(np.stack([test, validation]))
    low, high = min(0.0, float(ends.min())), max(0.05, float(ends.max()))
    left = low + 0.012 * (high - low)
    backing = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    for position, name in enumerate(names):
        weight = "normal" if name in nulls else "bold"
        end = max(0.0, float(ends[:, position].max())) + 0.04 * (high - low)
        axes.text(end, position, number(test[position]), va="center", weight=weight, in_layout=False)
        label = shorten(name, MODEL_NAME_LENGTH)
        axes.text(left, position + 0.24, label, va="bottom", weight=weight, bbox=backing, in_layout=False)
    axes.set_yticks([])
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set(xlim=(low * 1.1, high + 0.2 * (high - low)), ylim=(-0.4, len(names) - 0.3), xlabel=name_of_metric)
    axes.spines["left"].set_visible(False)


def _or_lowest(value: float) -> float:
    return value if math.isfinite(value) else -2.0


Scores = Mapping[str, tuple[bool, Sequence[float]]]
"""This maps a name to whether it is a null model, and one value a run."""
Curves = Mapping[str, Sequence[tuple[Sequence[int], Sequence[float]]]]
"""This maps an experiment to epochs and validation Pearson of every run."""

LONG_NAME = 44
ROW_HEIGHT = 0.36


def comparison_panels(scores: Mapping[str, tuple[Score, Scores]], curves: Curves) -> list[Panel]:
    """Make panels of test scores for each phenotype, and of learning curves."""
    panels = []
    for phenotype, (score, by_name) in scores.items():
        rows = [(name, i + 1, value) for name, (_, values) in by_name.items() for i, value in enumerate(values)]
        panels.append(
            Panel(
                f"comparison-{quote(phenotype, safe='')}",
                f"Test {score.title} of {phenotype}",
                f"{score.name} of predicted {phenotype} on the test part. Each point is a run, and the line is "
                "their mean. Null models are grey.",
                Table(("name", "run", score.metric), rows),
                partial(draw_scores, score=score, scores=by_name, phenotype=phenotype),
                WIDTH,
                max(HEIGHT, 0.9 + ROW_HEIGHT * len(by_name)),
            )
        )
    table = [
        (name, i + 1, epoch, r)
        for name, runs in curves.items()
        for i, run in enumerate(runs)
        for epoch, r in zip(*run, strict=True)
    ]
    learning = Panel(
        "comparison-learning",
        "Validation Pearson while learning",
        "Pearson correlation on the validation part after each epoch, mean over phenotypes. Each line is a run, and "
        "each colour is an experiment.",
        Table(("experiment", "run", "epoch", "pearson"), table),
        lambda axes: draw_learning(axes, curves),
    )
    return [*panels, learning]


def draw_scores(axes: Axes, score: Score, scores: Scores, phenotype: str) -> None:
    """Draw a row for each experiment and null model, the best mean on top."""
    finite = {name: [v for v in values if math.isfinite(v)] for name, (_, values) in scores.items()}
    names = sorted(scores, key=lambda name: float(np.mean(finite[name])) if finite[name] else -2.0)
    title = f"Test {score.title} of {shorten(phenotype)}"
    if not any(finite.values()):
        draw_nothing(axes, title, "no score is defined")
        return
    heading(axes, title, "points: runs · lines: means")
    colors = _colors([name for name, (is_null, _) in scores.items() if not is_null])
    for row, name in enumerate(names):
        color = colors.get(name, GREY)
        axes.axhline(row, color=LIGHT, linewidth=0.5, zorder=0)
        axes.scatter(finite[name], [row] * len(finite[name]), s=22, color=color, alpha=0.75, linewidths=0)
        if finite[name]:
            axes.plot([np.mean(finite[name])] * 2, [row - 0.28, row + 0.28], color=color, linewidth=2)
        weight = "normal" if scores[name][0] else "bold"
        axes.text(
            0, row + 0.3, shorten(name, LONG_NAME), transform=axes.get_yaxis_transform(), va="bottom", weight=weight,
            size="small", in_layout=False,
        )  # fmt: skip
    axes.set(ylim=(-0.6, len(names) - 0.2), xlabel=score.name)
    axes.margins(x=0.08)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def draw_learning(axes: Axes, curves: Curves) -> None:
    """Draw the validation correlation of every run by epoch."""
    from matplotlib.ticker import MaxNLocator

    title = "Validation Pearson while learning"
    colors = _colors(list(curves))
    for i, (name, runs) in enumerate(curves.items()):
        for j, (epochs, values) in enumerate(run for run in runs if len(run[0])):
            axes.plot(
                epochs, values, color=colors[name], linewidth=1.2, alpha=0.85, linestyle=DASHES[i // len(SERIES) % 4],
                marker="o" if len(epochs) < 3 else None, label=shorten(name, LONG_NAME) if j == 0 else None,
            )  # fmt: skip
    if not axes.lines:
        draw_nothing(axes, title, "no training history")
        return
    heading(axes, title, "line: run · colour: experiment")
    axes.set(xlabel="epoch", ylabel="Pearson correlation")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize="small", loc="lower right")


def _colors(names: Sequence[str]) -> dict[str, str]:
    """Give each experiment the same colour in every panel."""
    return {name: SERIES[i % len(SERIES)] for i, name in enumerate(names)}
