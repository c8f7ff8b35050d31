"""Draw maps of strain embeddings in the plane, by principal components."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.plots.data import Embedding, EmbeddingMap, Subject, is_binary, is_interaction
from dglcell.plots.style import (
    BLUE,
    DENSITY,
    LIGHT,
    SIGNED,
    VERMILION,
    Panel,
    Table,
    heading,
    sample,
    shorten,
    with_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST_FOR_MAP = 3
WHICH = "z_p (wild type minus strain)"


def principal_map(embedding: Embedding, points: int, seed: int = 0) -> EmbeddingMap | None:
    """Place at most ``points`` strains in the plane of the first two principal components of their embeddings.

    Args:
        points: strains on the map at most.
        seed: seed of the choice of strains where there are more.

    Returns:
        None where fewer than three strains have a finite embedding.
    """
    finite = np.flatnonzero(np.isfinite(embedding.vectors).all(axis=1))
    shown = finite[sample(len(finite), points, seed)]
    if len(shown) < LEAST_FOR_MAP or embedding.vectors.shape[1] == 0:
        return None
    return EmbeddingMap(embedding.strains[shown], *principal_components(embedding.vectors[shown].astype(np.float64)))


def principal_components(vectors: NDArray[np.floating]) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Return coordinates along the two directions of largest variance, [S, 2], and the shares of variance they hold.

    The sign of a direction is chosen so that its largest weight is positive.
    """
    centred = vectors - vectors.mean(axis=0)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    first = directions[:, ::-1][:, :2]
    first = first * np.where(first[np.abs(first).argmax(axis=0), range(first.shape[1])] < 0, -1.0, 1.0)
    positions = np.zeros((len(vectors), 2))
    positions[:, : first.shape[1]] = centred @ first
    total = float(variances.sum())
    shares = [float(v) / total if total > 0 else 0.0 for v in variances[::-1][:2]] + [0.0]
    return positions, (shares[0], shares[1])


def embedding_panel(found: EmbeddingMap, subject: Subject) -> Panel:
    """Make the panel with the strains of the map, coloured by their measured phenotype."""
    measured = np.asarray(subject.predictions.measured, float)[found.strains]
    n, total = int(np.isfinite(measured).sum()), len(subject.predictions)
    first, second = found.explained
    chosen = f", chosen at random from {total:,}" if len(found.strains) < total else ""
    caption = (
        f"Embeddings {WHICH} of {len(found.strains):,} test strains{chosen}; {n:,} of them are coloured by measured "
        f"{subject.phenotype}. The axes are the first two principal components ({first:.0%} and {second:.0%} of the "
        "variance). Strains with similar embeddings are close together."
    )
    columns = np.column_stack([found.positions, measured]).tolist()
    rows = [(int(s) + 1, *values) for s, values in zip(found.strains, columns, strict=True)]
    return Panel(
        subject.key("embedding"),
        "Map of strain embeddings",
        caption,
        Table(("row of predictions_test.csv", "x", "y", f"measured {subject.phenotype}"), rows),
        lambda axes: draw_embedding(axes, found, subject),
    )


def draw_embedding(axes: Axes, found: EmbeddingMap, subject: Subject) -> None:
    """Draw strains in the plane, coloured by their measured phenotype; grey where it was not measured."""
    heading(axes, "Map of strain embeddings", f"PCA · n = {len(found.strains):,}")
    values = np.asarray(subject.predictions.measured, float)[found.strains]
    known = np.isfinite(values)
    size = 22 if len(values) < 200 else 6 if len(values) < 3000 else 2.5
    points = partial(axes.scatter, s=size, linewidths=0, rasterized=True)
    points(*found.positions[~known].T, color=LIGHT)
    if is_binary(values[known]):
        for value, color in ((0, BLUE), (1, VERMILION)):
            chosen = known & (values == value)
            points(*found.positions[chosen].T, color=color, label=f"{value} (n = {chosen.sum():,})")
        axes.legend(markerscale=max(1.0, 5 / size**0.5))
    elif known.any():
        low, high = _color_range(values[known], subject.phenotype)
        color_map = SIGNED if is_interaction(subject.phenotype) else DENSITY
        order = np.random.default_rng(0).permutation(np.flatnonzero(known))  # no label lies on top of all others
        drawn = points(*found.positions[order].T, c=values[order], cmap=color_map, vmin=low, vmax=high)
        bar = axes.figure.colorbar(drawn, ax=axes, pad=0.015, aspect=32, extend="both")
        bar.set_label(with_unit(f"measured {shorten(subject.phenotype)}", subject.unit))
        bar.outline.set_visible(False)
    axes.set_xticks([])
    axes.set_yticks([])
    first, second = (f"PC {axis} ({share:.0%} of variance)" for axis, share in enumerate(found.explained, start=1))
    axes.set(xlabel=first, ylabel=second)


def _color_range(values: NDArray[np.float64], phenotype: str) -> tuple[float, float]:
    """Return the range from the 2nd to the 98th percentile.

    It is around zero for interaction scores, whose colours are signed.
    """
    low, high = (float(q) for q in np.quantile(values, (0.02, 0.98)))
    if is_interaction(phenotype):
        reach = max(abs(low), abs(high)) or 1.0
        return -reach, reach
    return (low, high) if high > low else (low - 0.5, high + 0.5)
