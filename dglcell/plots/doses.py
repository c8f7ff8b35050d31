"""Draw the phenotype along what is left of single genes: dose–response curves of weakened strains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dglcell.plots.data import ReportData
from dglcell.plots.style import (
    BLUE,
    GREY,
    SERIES,
    TITLE_PAD,
    heading,
    robust_range,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Dose and response"
MOST_GENES, MOST_MEDIA = 6, 3
COLUMNS = 3
GAP_X, GAP_Y, TOP = 0.035, 0.12, 0.12
"""These shares of a drawing's width and height lie between the curves of two genes; the last one, of a row's height, is
for their names."""

MEDIUM_LENGTH = 14
"""Names of media are shortened to so many letters, so that all stand beside the title."""


class Response(NamedTuple):
    """Hold measured and predicted phenotypes of strains that weaken the same gene.

    Attributes:
        part: [S] part of the split of each strain.
        medium: [S] its medium; empty texts where strains have none.
        left: [S] what is left of the gene, ascending.
        measured, predicted: [S] phenotypes.
    """

    part: NDArray[Any]
    medium: NDArray[Any]
    left: NDArray[np.floating]
    measured: NDArray[np.floating]
    predicted: NDArray[np.floating]


def responses(run: ReportData, phenotype: str) -> dict[str, Response]:
    """Return gene → its strains, for the genes with the most measured strains that change no other gene.

    There is none where all of these strains delete their gene.

    Args:
        run: the run; strains of its test and validation parts are joined.
    """
    parts = [part for part in run.doses if phenotype in run.predictions.get(part, {})]
    if not parts:
        return {}
    doses, predictions = [run.doses[part] for part in parts], [run.predictions[part][phenotype] for part in parts]
    genes, left = (np.concatenate([getattr(each, name) for each in doses]) for name in ("genes", "strengths"))
    measured, predicted = (
        np.concatenate([getattr(each, name) for each in predictions]) for name in ("measured", "predicted")
    )
    medium = np.concatenate([each.media for each in doses])
    part = np.repeat(parts, [len(each) for each in predictions])
    usable = (genes != "") & np.isfinite(measured) & np.isfinite(predicted)
    if not (left[usable] > 0).any():
        return {}
    names, counts = np.unique(genes[usable], return_counts=True)
    order = np.argsort(left, kind="stable")
    found = {}
    for name in names[np.argsort(-counts, kind="stable")[:MOST_GENES]].tolist():
        own = order[(usable & (genes == name))[order]]
        found[name] = Response(part[own], medium[own], left[own], measured[own], predicted[own])
    return found


def media_colors(of_gene: dict[str, Response]) -> dict[str, str]:
    """Return medium → colour; a single colour, of the empty text, where media are too many or there is none."""
    media = np.unique(np.concatenate([response.medium for response in of_gene.values()])).tolist()
    return dict(zip(media, SERIES, strict=False)) if len(media) <= MOST_MEDIA else {"": BLUE}


def draw_doses(axes: Axes, of_gene: dict[str, Response], label: str) -> None:
    """Draw small axes for each gene, all with the same ranges.

    Args:
        axes: axes whose place the small ones take.
        of_gene: gene → its strains, at least one gene.
        label: name of the phenotype, with its unit.
    """
    heading(axes, TITLE, "points: measured (filled: test, open: validation) · lines: predicted")
    axes.set_axis_off()
    colors = media_colors(of_gene)
    left = np.concatenate([response.left for response in of_gene.values()])
    y = np.concatenate([np.concatenate([r.measured, r.predicted]) for r in of_gene.values()])
    x_range, y_range = (-0.05, max(1.0, float(left.max())) + 0.05), robust_range(y)
    for number, (small, (gene, response)) in enumerate(zip(_grid(axes, len(of_gene)), of_gene.items(), strict=True)):
        _draw_gene(small, response, colors)
        small.set(xlim=x_range, ylim=y_range)
        small.set_title(shorten(gene), pad=3, fontsize="medium", fontweight="normal", loc="center")
        is_lowest = number + COLUMNS >= len(of_gene)
        small.tick_params(labelbottom=is_lowest, labelleft=number % COLUMNS == 0)
        small.locator_params(axis="y", nbins=5)
        small.set_xlabel("what is left of the gene" if is_lowest else "")
        small.set_ylabel(label if number % COLUMNS == 0 else "")
    if len(colors) > 1:
        _draw_legend(axes, colors)


def _draw_legend(axes: Axes, colors: dict[str, str]) -> None:
    """Draw the media to the right of the title."""
    from matplotlib.transforms import ScaledTranslation

    for medium, color in colors.items():
        axes.plot([], [], "o-", color=color, markersize=4, label=shorten(medium, MEDIUM_LENGTH))
    beside = axes.transAxes + ScaledTranslation(0, TITLE_PAD / 72, axes.figure.dpi_scale_trans)
    axes.legend(
        loc="lower right", bbox_to_anchor=(1, 1), bbox_transform=beside, ncols=len(colors), borderpad=0,
        borderaxespad=0,
    )  # fmt: skip


def _grid(axes: Axes, count: int) -> Iterator[Axes]:
    """Yield small axes row by row, inside of axes."""
    columns, rows = min(count, COLUMNS), -(-count // COLUMNS)
    width, height = (1 - GAP_X * (columns - 1)) / columns, (1 - TOP / rows - GAP_Y * (rows - 1)) / rows
    for number in range(count):
        row, column = divmod(number, columns)
        yield axes.inset_axes((column * (width + GAP_X), (rows - 1 - row) * (height + GAP_Y), width, height))


def _draw_gene(axes: Axes, response: Response, colors: dict[str, str]) -> None:
    """Draw the strains of one gene, each medium in its colour."""
    axes.axvline(1, color=GREY, linewidth=0.6, linestyle=":", zorder=0)
    for medium, color in colors.items():
        own = response.medium == medium if len(colors) > 1 else np.ones(len(response.left), dtype=bool)
        left, first = np.unique(response.left[own], return_inverse=True)
        predicted = np.bincount(first, response.predicted[own]) / np.bincount(first)
        axes.plot(left, predicted, ".-", color=color, linewidth=1.2, markersize=3, alpha=0.8)
        for part, face in (("test", color), ("validation", "white")):
            shown = own & (response.part == part)
            axes.scatter(
                response.left[shown], response.measured[shown], s=20, facecolor=face, edgecolor=color, linewidths=0.9,
                zorder=3,
            )  # fmt: skip
