"""The picture of one epoch: the validation part as the model sees it while it learns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.plots.agreement import draw_agreement
from dglcell.plots.data import Embedding, EmbeddingMap, Subject
from dglcell.plots.distributions import draw_distributions
from dglcell.plots.embedding import draw_embedding, principal_map
from dglcell.plots.score_bins import draw_score_bins
from dglcell.plots.style import STYLE, new_figure, save, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_PHENOTYPES = 3
PANEL_WIDTH, PANEL_HEIGHT, HEADER = 3.4, 2.7, 0.36
DPI = 130


def epoch_picture(
    path: Path, title: str, subjects: Sequence[Subject], embedding: Embedding | None = None, seed: int = 0
) -> Path:
    """Draw one row for each of the first three phenotypes: agreement, distributions, boxes, and a map of z_p.

    The map shows principal components, which take no time.

    Args:
        path: of the PNG file.
        title: says which run and epoch.
        subjects: of the validation part.
        embedding: of that part; no map where None.
        seed: of the strains that are chosen where there are too many.

    Returns:
        ``path``.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    shown = subjects[:MAX_PHENOTYPES]
    found = None if embedding is None or not shown else principal_map(embedding, shown[0].points, seed)
    columns = 3 if found is None else 4
    figure = new_figure(columns * PANEL_WIDTH, max(1, len(shown)) * PANEL_HEIGHT + HEADER, DPI)
    import matplotlib

    with matplotlib.rc_context(STYLE):
        _draw(figure, title, shown, columns, found)
        save(figure, path)
    return path


def _draw(figure: Figure, title: str, shown: Sequence[Subject], columns: int, found: EmbeddingMap | None) -> None:
    figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.06)
    figure.suptitle(shorten(title, 100), x=0.01, ha="left", weight="bold", size=10)
    grid = figure.subplots(max(1, len(shown)), columns, squeeze=False)
    for subject, row in zip(shown, grid, strict=False):
        draw_agreement(row[0], subject, named=True)
        draw_distributions(row[1], subject)
        draw_score_bins(row[2], subject)
        if found is not None:
            draw_embedding(row[3], found, subject)
