"""Runs of several experiments side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from dglcell.plots.panel import HEIGHT, WIDTH, Panel, Table
from dglcell.plots.scores import Score
from dglcell.plots.style import DASHES, GREY, LIGHT, SERIES, draw_nothing, heading, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Scores = Mapping[str, tuple[bool, Sequence[float]]]
"""Name → whether it is a null model, and one value a run."""
Curves = Mapping[str, Sequence[tuple[Sequence[int], Sequence[float]]]]
"""Experiment → epochs and validation Pearson of every run."""

NAME_LENGTH = 44
ROW_HEIGHT = 0.36


def comparison_panels(scores: Mapping[str, tuple[Score, Scores]], curves: Curves) -> list[Panel]:
    """Test scores for each phenotype, and learning curves."""
    panels = []
    for phenotype, (score, by_name) in scores.items():
        rows = [(name, i + 1, value) for name, (_, values) in by_name.items() for i, value in enumerate(values)]
        panels.append(
            Panel(
                f"comparison-{quote(phenotype, safe='')}",
                f"Test {score.title} of {phenotype}",
                f"{score.name} of predicted {phenotype} on the test part: a point a run, the line at their mean. Grey: "
                "null models.",
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
        "Pearson correlation on the validation part after each epoch, mean over phenotypes; a line a run, a colour an "
        "experiment.",
        Table(("experiment", "run", "epoch", "pearson"), table),
        lambda axes: draw_learning(axes, curves),
    )
    return [*panels, learning]


def draw_scores(axes: Axes, score: Score, scores: Scores, phenotype: str) -> None:
    """A row for each experiment and null model, the best mean on top."""
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
            0, row + 0.3, shorten(name, NAME_LENGTH), transform=axes.get_yaxis_transform(), va="bottom", weight=weight,
            size="small", in_layout=False,
        )  # fmt: skip
    axes.set(ylim=(-0.6, len(names) - 0.2), xlabel=score.name)
    axes.margins(x=0.08)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def draw_learning(axes: Axes, curves: Curves) -> None:
    """Validation correlation of every run by epoch."""
    from matplotlib.ticker import MaxNLocator

    title = "Validation Pearson while learning"
    colors = _colors(list(curves))
    for i, (name, runs) in enumerate(curves.items()):
        for j, (epochs, values) in enumerate(run for run in runs if len(run[0])):
            axes.plot(
                epochs, values, color=colors[name], linewidth=1.2, alpha=0.85, linestyle=DASHES[i // len(SERIES) % 4],
                marker="o" if len(epochs) < 3 else None, label=shorten(name, NAME_LENGTH) if j == 0 else None,
            )  # fmt: skip
    if not axes.lines:
        draw_nothing(axes, title, "no training history")
        return
    heading(axes, title, "a line a run · a colour an experiment")
    axes.set(xlabel="epoch", ylabel="Pearson correlation")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize="small", loc="lower right")


def _colors(names: Sequence[str]) -> dict[str, str]:
    """The same experiment has the same colour in every panel."""
    return {name: SERIES[i % len(SERIES)] for i, name in enumerate(names)}
