"""Many strains in one pair of axes: points, or hexagons coloured by how many strains lie in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.plots.style import BLUE, DENSITY, MANY_STRAINS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEXAGONS = (48, 20)  # regular in a panel that is about 1.4 times as wide as high
FEW_STRAINS = 200
Range = tuple[float, float]
Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Hexagons:
    """Strains counted in a lattice of hexagons.

    Attributes:
        x, y: [C] centres of the hexagons that hold any strain.
        counts: [C] strains in each.
        width, height: distances of neighbouring centres along x, and along y of every second row.
    """

    x: Floats
    y: Floats
    counts: NDArray[np.int64]
    width: float
    height: float


def hexagons(x: Floats, y: Floats, x_range: Range, y_range: Range) -> Hexagons:
    """Count the points within both ranges by the nearest centre of a hexagonal lattice.

    The lattice is two rectangular ones, shifted by half a cell against each other (Carr et al. 1987,
    doi:10.1080/01621459.1987.10478445).
    """
    inside = (x >= x_range[0]) & (x <= x_range[1]) & (y >= y_range[0]) & (y <= y_range[1])
    width, height = (x_range[1] - x_range[0]) / HEXAGONS[0], (y_range[1] - y_range[0]) / HEXAGONS[1]
    u, v = (x[inside] - x_range[0]) / width, (y[inside] - y_range[0]) / height
    whole, half = np.stack([np.round(u), np.round(v)]), np.stack([np.floor(u) + 0.5, np.floor(v) + 0.5])
    scale = np.array([[1.0], [3.0]])  # a regular hexagon's rows lie √3 times as far apart as its columns
    to_whole = (scale * (np.stack([u, v]) - whole) ** 2).sum(0)
    to_half = (scale * (np.stack([u, v]) - half) ** 2).sum(0)
    centres, counts = np.unique(np.where(to_whole < to_half, whole, half), axis=1, return_counts=True)
    return Hexagons(x_range[0] + centres[0] * width, y_range[0] + centres[1] * height, counts, width, height)


def sample(count: int, points: int, seed: int = 0) -> NDArray[np.int64]:
    """Ascending positions of at most ``points`` of ``count`` things, the same for the same seed."""
    if count <= points:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, points, replace=False))


def draw_density(axes: Axes, x: Floats, y: Floats, x_range: Range, y_range: Range, points: int) -> None:
    """Points, at most ``points`` of them; hexagons of all strains where there are many."""
    if len(x) < MANY_STRAINS:
        shown = sample(len(x), points)
        few = len(shown) < FEW_STRAINS
        axes.scatter(x[shown], y[shown], s=30 if few else 10, alpha=0.85 if few else 0.4, color=BLUE, linewidths=0)
    else:
        _draw_hexagons(axes, hexagons(x, y, x_range, y_range))
    axes.set(xlim=x_range, ylim=y_range)
    axes.locator_params(axis="x", nbins=6)


def _draw_hexagons(axes: Axes, found: Hexagons) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import LogNorm
    from matplotlib.transforms import AffineDeltaTransform

    corners = np.array([[0.5, -0.5], [0.5, 0.5], [0.0, 1.0], [-0.5, 0.5], [-0.5, -0.5], [0.0, -1.0]])
    cells = PolyCollection(
        [corners * [found.width, found.height / 3]],
        offsets=np.column_stack([found.x, found.y]),
        offset_transform=AffineDeltaTransform(axes.transData),  # type: ignore[arg-type]
        cmap=DENSITY,
        norm=LogNorm(1, max(2, int(found.counts.max(initial=1)))),
        edgecolors="face",
        linewidths=0.1,
    )
    cells.set_array(found.counts)
    axes.add_collection(cells, autolim=False)
    bar = axes.figure.colorbar(cells, ax=axes, pad=0.015, aspect=32, format="{x:,.0f}")
    bar.set_label("strains per cell")
    bar.outline.set_visible(False)
