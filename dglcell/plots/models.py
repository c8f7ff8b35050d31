"""The model against the null models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from dglcell.data.kinds import REGRESSION
from dglcell.plots.panel import Panel, Table
from dglcell.plots.scores import SCORES
from dglcell.plots.style import BLUE, INK, LIGHT, draw_nothing, heading, number, shorten
from dglcell.training.metrics import ResultRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME_LENGTH = 38


def models_panel(rows: Sequence[ResultRow], phenotype: str) -> Panel:
    """The panel."""
    shown = [row for row in rows if row.phenotype == phenotype]
    n = max((int(row.metrics.get("n", 0)) for row in shown if row.part == "test"), default=0)
    metric, name, _ = SCORES[shown[0].kind if shown else REGRESSION]
    caption = (
        f"{name} of predicted {phenotype} on the test part (bars, n = {n:,}) and the validation part (diamonds). Grey: "
        "null models, which know no network."
    )
    if metric == "pearson":
        caption += " Undefined where a model predicts the same for all strains."
    table = [(r.model, r.part, r.metrics.get(metric, math.nan), int(r.metrics.get("n", 0))) for r in shown]
    return Panel(
        f"{quote(phenotype, safe='')}-models",
        "Model against null models",
        caption,
        Table(("model", "part", metric, "n"), table),
        lambda axes: draw_models(axes, rows, phenotype),
    )


def draw_models(axes: Axes, rows: Sequence[ResultRow], phenotype: str) -> None:
    """Scores of the model and the null models: test as bars, validation as diamonds."""
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
    names = sorted(scores, key=lambda name: _or_lowest(scores[name].get("test", math.nan)))
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
        label = shorten(name, NAME_LENGTH)
        axes.text(left, position + 0.24, label, va="bottom", weight=weight, bbox=backing, in_layout=False)
    axes.set_yticks([])
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set(xlim=(low * 1.1, high + 0.2 * (high - low)), ylim=(-0.4, len(names) - 0.3), xlabel=name_of_metric)
    axes.spines["left"].set_visible(False)


def _or_lowest(value: float) -> float:
    return value if math.isfinite(value) else -2.0
