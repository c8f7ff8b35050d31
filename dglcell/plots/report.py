"""The picture of a run: agreement, calibration, comparison with null models, learning curves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.errors import MissingDependencyError
from dglcell.files import atomic_file
from dglcell.plots import panels
from dglcell.plots.data import EpochRecord, Predictions, ReportData, write_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

__all__ = ["EpochRecord", "Predictions", "ReportData", "report_figure"]

MAX_PHENOTYPES = 3
DPI = 150
WIDTH, ROW_HEIGHT = 1600 / DPI, 440 / DPI
LINE_HEIGHT = 0.16
STYLE = {
    "font.size": 7.5,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": panels.INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelcolor": panels.INK,
    "text.color": panels.INK,
    "xtick.color": panels.INK,
    "ytick.color": panels.INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.5,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
    "figure.facecolor": "white",
}


def report_figure(run: ReportData, path: Path) -> Path:
    """Draw a run and write the numbers behind the drawing to a CSV file beside it.

    One row of panels for each phenotype (the first three): measured against predicted, calibration, model against
    null models. Below them: loss, validation correlation, and correlation by number of deletions.

    Args:
        run: what to draw; history, predictions and metrics may be missing, their panels then say so.
        path: of the PNG file, 1,600 pixels wide; the CSV file has the same name with ``.csv``.

    Returns:
        The path of the PNG file.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            "plots need matplotlib, which is not installed", do="pip install 'dglcell[plot]'"
        ) from error
    path = Path(path)
    shown = run.phenotypes[:MAX_PHENOTYPES]
    rows = max(1, len(shown)) + 1
    header = 0.4 + LINE_HEIGHT * (len(run.subtitle) + (len(run.phenotypes) > MAX_PHENOTYPES))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, rows * ROW_HEIGHT + header), dpi=DPI)
        FigureCanvasAgg(figure)
        _draw(figure, run, shown, rows, header)
        with atomic_file(path) as partial:
            figure.savefig(partial, format="png", dpi=DPI)
    write_numbers(run, path.with_suffix(".csv"))
    return path


def _draw(figure: Figure, run: ReportData, shown: list[str], rows: int, header: float) -> None:
    figure.set_layout_engine("constrained", hspace=0.06, wspace=0.05, w_pad=0.09, h_pad=0.06)
    # Rows of their own, so that the colour bars of the upper ones do not narrow the lowest.
    heights = (header, (rows - 1) * ROW_HEIGHT, ROW_HEIGHT)
    outline = figure.add_gridspec(3, 1, height_ratios=heights)
    head, upper, lower = (figure.add_subfigure(outline[row, 0]) for row in range(3))
    grid = upper.subplots(rows - 1, 3, squeeze=False, width_ratios=(1.15, 1, 1))
    for phenotype, (left, middle, right) in zip(shown, grid, strict=False):
        unit = run.units.get(phenotype, "")
        if phenotype in run.predictions:
            panels.draw_agreement(left, run.predictions[phenotype], phenotype, unit)
            panels.draw_calibration(middle, run.predictions[phenotype], phenotype, unit)
        else:
            panels.draw_nothing(left, panels.shorten(phenotype), "no test predictions")
            panels.draw_nothing(middle, "Calibration", "no test predictions")
        panels.draw_models(right, run.rows, phenotype)
    if not shown:
        for axes in grid[0]:
            panels.draw_nothing(axes, "", "no results")
    losses, correlation, deletions = lower.subplots(1, 3)
    panels.draw_losses(losses, run.history, run.best_epoch)
    panels.draw_validation_pearson(correlation, run, shown)
    panels.draw_deletions(deletions, run, shown)
    _draw_header(head, run, header)


def _draw_header(head: SubFigure, run: ReportData, height: float) -> None:
    """Title and subtitle; ``height`` in inches."""
    lines = list(run.subtitle)
    if len(run.phenotypes) > MAX_PHENOTYPES:
        lines.append(f"{MAX_PHENOTYPES} of {len(run.phenotypes)} phenotypes shown; the table has all of them")
    head.text(0.01, 1 - 0.12 / height, panels.shorten(run.title, 100), size=13, weight="bold", va="top")
    for index, line in enumerate(lines):
        y = 1 - (0.42 + LINE_HEIGHT * index) / height
        head.text(0.01, y, panels.shorten(line, 190), size=8, color=panels.GREY, va="top")
