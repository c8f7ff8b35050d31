"""Draw how much the model takes from each relation, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from dglcell.plots.data import RelationWeights
from dglcell.plots.style import HEIGHT, INK, WIDTH, Panel, Table, heading, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = "cividis"
NAME_LENGTH = 52  # of a pair of relations
MOST_NUMBERS = 12
MOST_PAIRS = 100


def relation_panels(weights: RelationWeights) -> list[Panel]:
    """Make one panel of all layers, and one for each layer whose relations weigh each other."""
    if not weights:
        return []
    table = [(layer, name, value) for layer, row in relation_means(weights).items() for name, value in row.items()]
    panels = [
        Panel(
            "relations",
            "Weights of relations",
            "Mean weight of every relation, or pair of relations, in the learned combination of each layer and node "
            "type, over the nodes of the wild type; each column sums to one. Equal weights would mean that the model "
            "does not choose.",
            Table(("layer", "relation", "weight"), table),
            lambda axes: draw_relation_weights(axes, weights),
            *_size(weights),
        )
    ]
    for layer, (names, matrix) in weights.items():
        if np.ndim(matrix) == 2:
            panels.append(_pairs_panel(layer, list(names), np.asarray(matrix, float)))
    return panels


def relation_means(weights: RelationWeights) -> dict[str, dict[str, float]]:
    """Return layer → relation → weight, summing to one; of a matrix it is the mean of its rows."""
    means = {}
    for layer, (names, matrix) in weights.items():
        values = np.atleast_2d(np.asarray(matrix, float)).mean(axis=0)
        total = float(values.sum())
        means[layer] = dict(zip(names, (values / total if total else values).tolist(), strict=True))
    return means


def draw_relation_weights(axes: Axes, weights: RelationWeights) -> None:
    """Draw a heat map, a layer a column, a relation a row; grey where a layer does not have a relation."""
    means = relation_means(weights)
    names = list(dict.fromkeys(name for row in means.values() for name in row))
    heading(axes, "Weights of relations", "each column sums to 1")
    grid = np.array([[row.get(name, np.nan) for row in means.values()] for name in names])
    _heat_map(axes, grid, list(means), names)
    axes.set_xlabel("layer, node type")


def draw_relation_pairs(axes: Axes, layer: str, names: list[str], matrix: NDArray[np.float64]) -> None:
    """Draw a heat map of how much each relation (row) takes from each other (column)."""
    heading(axes, f"Relations by relations, layer {shorten(layer)}", "row: listens · column: is heard")
    _heat_map(axes, matrix, names, names)


def _pairs_panel(layer: str, names: list[str], matrix: NDArray[np.float64]) -> Panel:
    rows = [(a, b, float(matrix[i, j])) for i, a in enumerate(names) for j, b in enumerate(names)]
    side = max(HEIGHT, 0.9 + 0.04 * max(map(len, names)) + 0.27 * len(names))
    return Panel(
        f"relations-layer-{quote(layer.replace(', ', '-'), safe='')}",
        f"Relations by relations, layer {layer}",
        "How much each relation (row) takes from each other (column), mean over the nodes of the wild type.",
        Table(("relation", "heard", "weight"), rows),
        lambda axes: draw_relation_pairs(axes, layer, names, matrix),
        max(WIDTH, side + 0.8),
        side,
    )


def _heat_map(axes: Axes, grid: NDArray[np.float64], columns: list[str], rows: list[str]) -> None:
    from matplotlib import colormaps

    colors = colormaps[COLORS].with_extremes(bad="#E4E4E4")
    top = float(np.nanmax(grid)) if np.isfinite(grid).any() else 1.0
    image = axes.imshow(np.ma.masked_invalid(grid), cmap=colors, vmin=0, vmax=top or 1.0, aspect="auto")
    names = [shorten(name, NAME_LENGTH) for name in columns]
    turned = sum(map(len, names)) > 40
    axes.set_xticks(range(len(columns)), names, rotation=40 if turned else 0, ha="right" if turned else "center")
    axes.set_yticks(range(len(rows)), [shorten(name, NAME_LENGTH) for name in rows])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if len(columns) <= MOST_NUMBERS and grid.size <= MOST_PAIRS:
        for (i, j), value in np.ndenumerate(grid):
            if np.isfinite(value):
                ink = "white" if value < 0.55 * top else INK
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=ink, size="small")
    bar = axes.figure.colorbar(image, ax=axes, pad=0.02, aspect=32)
    bar.set_label("weight")
    bar.outline.set_visible(False)


def _size(weights: RelationWeights) -> tuple[float, float]:
    """Return a size in inches that leaves room for names and numbers."""
    names = {shorten(name, NAME_LENGTH) for row in relation_means(weights).values() for name in row}
    width = 1.2 + 0.065 * max(map(len, names)) + 0.55 * len(weights)
    return max(WIDTH, width), max(HEIGHT, 1.0 + 0.2 * len(names))
