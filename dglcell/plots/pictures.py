"""Draw whole pictures: of a run, of one epoch, and all panels of a report in their order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.data.table import REGRESSION
from dglcell.plots.comparison import SCORES, curve_key, draw_models, models_panel
from dglcell.plots.data import Embedding, EmbeddingMap, ReportData, Subject
from dglcell.plots.distributions import (
    deletions_panel,
    distributions_panel,
    draw_deletions,
    draw_distributions,
    pearson_by_deletions,
    precision_recall_panel,
)
from dglcell.plots.doses import dose_panels
from dglcell.plots.embedding import draw_embedding, embedding_panel, principal_map
from dglcell.plots.learning import draw_losses, draw_validation_score, learning_panels, spread_panels
from dglcell.plots.nodes import node_panels
from dglcell.plots.regression import (
    agreement,
    calibration,
    calibration_panel,
    draw_agreement,
    draw_calibration,
    draw_score_bins,
    residuals,
    score_bins_panel,
)
from dglcell.plots.relations import relation_panels
from dglcell.plots.style import GREY, STYLE, Panel, Table, draw_nothing, new_figure, save, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


MAX_PHENOTYPES = 3
DPI = 150
WIDTH, ROW_HEIGHT = 1600 / DPI, 440 / DPI
LINE_HEIGHT = 0.16
CSV_COLUMNS = ("panel", "phenotype", "series", "x", "value", "standard_error", "n")


def overview(run: ReportData, path: Path) -> Path:
    """Draw a run and write the numbers behind the drawing to a CSV file beside it.

    There is one row of panels for each of the first three phenotypes: measured against predicted, calibration, model
    against null models. Below them are loss, validation correlation, and correlation by number of deletions.

    Args:
        run: data to draw; history, predictions and metrics may be missing, and their panels then say so.
        path: path of the PNG file, 1,600 pixels wide; the CSV file has the same name with ``.csv``.

    Returns:
        The path of the PNG file.
    """
    path = Path(path)
    shown = run.phenotypes[:MAX_PHENOTYPES]
    rows = max(1, len(shown)) + 1
    header = 0.4 + LINE_HEIGHT * (len(run.subtitle) + (len(run.phenotypes) > MAX_PHENOTYPES))
    figure = new_figure(WIDTH, rows * ROW_HEIGHT + header, DPI)
    import matplotlib

    with matplotlib.rc_context(STYLE):
        _draw(figure, run, shown, rows, header)
        save(figure, path)
    Table(CSV_COLUMNS, list(_numbers(run))).write(path.with_suffix(".csv"))
    return path


def _draw(figure: Figure, run: ReportData, shown: list[str], rows: int, header: float) -> None:
    figure.set_layout_engine("constrained", hspace=0.06, wspace=0.05, w_pad=0.09, h_pad=0.06)
    # The lowest panels have a grid of their own, so that colour bars of the upper ones do not narrow them.
    heights = (header, (rows - 1) * ROW_HEIGHT, ROW_HEIGHT)
    outline = figure.add_gridspec(3, 1, height_ratios=heights)
    head, upper, lower = (figure.add_subfigure(outline[row, 0]) for row in range(3))
    grid = upper.subplots(rows - 1, 3, squeeze=False, width_ratios=(1.15, 1, 1))
    for phenotype, (left, middle, right) in zip(shown, grid, strict=False):
        subject = run.subject(phenotype)
        if subject is not None:
            draw_agreement(left, subject, named=True)
            draw_calibration(middle, subject)
        else:
            draw_nothing(left, shorten(phenotype), "no test predictions")
            draw_nothing(middle, "Calibration", "no test predictions")
        draw_models(right, run.rows, phenotype)
    if not shown:
        for axes in grid[0]:
            draw_nothing(axes, "", "no test part")
    losses, correlation, last = lower.subplots(1, 3)
    draw_losses(losses, run.history, run.best_epoch)
    draw_validation_score(correlation, run, shown, run.kind(shown[0]) if shown else REGRESSION)
    _draw_last(last, run, shown)
    _draw_header(head, run, header)


def _draw_last(axes: Axes, run: ReportData, shown: list[str]) -> None:
    """Draw correlation by number of deletions; where all strains have the same number, draw distributions."""
    subjects = [subject for name in shown if (subject := run.subject(name)) is not None]
    numbers = {group[0] for subject in subjects for group in pearson_by_deletions(subject.predictions)}
    if len(numbers) > 1:
        draw_deletions(axes, subjects)
    elif subjects:
        draw_distributions(axes, subjects[0])
    else:
        draw_nothing(axes, "Distributions", "no test predictions")


def _draw_header(head: SubFigure, run: ReportData, height: float) -> None:
    """Draw title and subtitle; ``height`` is in inches."""
    lines = list(run.subtitle)
    if len(run.phenotypes) > MAX_PHENOTYPES:
        lines.append(f"{MAX_PHENOTYPES} of {len(run.phenotypes)} phenotypes shown; the table has all of them")
    head.text(0.01, 1 - 0.12 / height, shorten(run.title, 100), size=13, weight="bold", va="top")
    for index, line in enumerate(lines):
        y = 1 - (0.42 + LINE_HEIGHT * index) / height
        head.text(0.01, y, shorten(line, 190), size=8, color=GREY, va="top")


def _numbers(run: ReportData) -> Iterator[tuple[object, ...]]:
    for row in run.rows:
        n = row.metrics.get("n", math.nan)
        for metric, value in row.metrics.items():
            if metric != "n":
                yield (metric, row.phenotype, row.model, row.part, value, "", n)
    for phenotype, predictions in run.predictions.get("test", {}).items():
        for group in calibration(predictions):
            yield (
                "calibration", phenotype, "mean measured", group.predicted, group.measured,
                group.standard_error, group.n,
            )  # fmt: skip
        for count, r, n in pearson_by_deletions(predictions):
            yield ("pearson by number of deletions", phenotype, "model", count, r, "", n)
    curves = [("", f"{part} loss", f"{part}/loss") for part in ("train", "validation")]
    for name in run.phenotypes:
        score = SCORES[run.kind(name)]
        curves.append((name, f"validation {score.title.lower()}", curve_key(name, run.kind(name))))
    for phenotype, series, key in curves:
        for epoch, value in zip(run.history.epochs.tolist(), run.history.curve(key).tolist(), strict=True):
            yield ("learning", phenotype, series, epoch, value, "", "")


PARTS = ("test", "validation")


def run_panels(run: ReportData) -> dict[str, list[Panel]]:
    """Return section → panels: each part and phenotype, doses, values of nodes, training, embeddings, relations.

    Sections without panels are left out.
    """
    sections: dict[str, list[Panel]] = {}
    for part in PARTS:
        for phenotype in run.phenotypes:
            subject = run.subject(phenotype, part)
            if subject is not None:
                sections[f"{phenotype}: {part} part"] = subject_panels(subject)
                if part == "test":
                    sections[f"{phenotype}: {part} part"].append(models_panel(run.rows, phenotype))
    sections["Dose and response"] = dose_panels(run)
    sections["Values of nodes"] = node_panels(run)
    sections["Training"] = learning_panels(run)
    sections["Embeddings"] = embedding_panels(run) + spread_panels(run)
    sections["Relations"] = relation_panels(run.relation_weights)
    return {name: panels for name, panels in sections.items() if panels}


def subject_panels(subject: Subject) -> list[Panel]:
    """Return all panels of the predictions of one phenotype on one part.

    Where none is measured, it is a single empty panel.
    """
    if subject.nothing:
        return [agreement(subject)]
    panels = [
        agreement(subject),
        calibration_panel(subject),
        *residuals(subject),
        distributions_panel(subject),
        score_bins_panel(subject),
        precision_recall_panel(subject),
        deletions_panel(subject),
    ]
    return [panel for panel in panels if panel is not None]


def embedding_panels(run: ReportData) -> list[Panel]:
    """Return the map, once for each phenotype that colours it."""
    found = run.embedding_map
    subjects = [run.subject(phenotype) for phenotype in run.phenotypes]
    return [] if found is None else [embedding_panel(found, subject) for subject in subjects if subject is not None]


PANEL_WIDTH, PANEL_HEIGHT, HEADER = 3.4, 2.7, 0.36
EPOCH_DPI = 130


def epoch_picture(
    path: Path, title: str, subjects: Sequence[Subject], embedding: Embedding | None = None, seed: int = 0
) -> Path:
    """Draw one row for each of the first three phenotypes: agreement, distributions, boxes, and a map of z_p.

    The map shows principal components, which take no time.

    Args:
        path: path of the PNG file.
        title: title that names run and epoch.
        embedding: embeddings of that part; where None, there is no map.
        seed: seed of the choice of strains where there are too many.

    Returns:
        ``path``.
    """
    shown = subjects[:MAX_PHENOTYPES]
    found = None if embedding is None or not shown else principal_map(embedding, shown[0].points, seed)
    columns = 3 if found is None else 4
    figure = new_figure(columns * PANEL_WIDTH, max(1, len(shown)) * PANEL_HEIGHT + HEADER, EPOCH_DPI)
    import matplotlib

    with matplotlib.rc_context(STYLE):
        _draw_epoch(figure, title, shown, columns, found)
        save(figure, path)
    return path


def _draw_epoch(figure: Figure, title: str, shown: Sequence[Subject], columns: int, found: EmbeddingMap | None) -> None:
    figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.06)
    figure.suptitle(shorten(title, 100), x=0.01, ha="left", weight="bold", size=10)
    grid = figure.subplots(max(1, len(shown)), columns, squeeze=False)
    for subject, row in zip(shown, grid, strict=False):
        draw_agreement(row[0], subject, named=True)
        draw_distributions(row[1], subject)
        draw_score_bins(row[2], subject)
        if found is not None:
            draw_embedding(row[3], found, subject)
