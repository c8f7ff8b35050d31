"""Draw whole pictures: of a run, and of several runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dglcell.data.table import REGRESSION
from dglcell.report.drawing import DPI, GREY, STYLE, draw_nothing, encode, new_figure, shorten, with_unit
from dglcell.report.panels import (
    SCORES,
    Score,
    draw_agreement,
    draw_doses,
    draw_losses,
    draw_models,
    draw_scores,
    draw_validation_score,
    responses,
)
from dglcell.report.run_files import RunFiles

MOST_PHENOTYPES = 3
WIDTH, ROW_HEIGHT, DOSES_HEIGHT, LINE_HEIGHT = 1600 / DPI, 480 / DPI, 700 / DPI, 0.17


def overview(run: RunFiles) -> bytes:
    """Draw a run as a PNG file, 1,600 pixels wide.

    There is a row of panels for each of the first three phenotypes: measured against predicted, and the model against
    null models. Below are loss and validation score by epoch, and dose–response curves where strains weaken genes.

    Args:
        run: what to draw; history, predictions and metrics may be empty, and their panels then say so.
    """
    shown = run.phenotypes[:MOST_PHENOTYPES]
    doses = {name: found for name in shown if (found := responses(run, name))}
    lines = [run.size_line, run.training_line]
    if len(run.phenotypes) > MOST_PHENOTYPES:
        lines.append(f"{MOST_PHENOTYPES} of {len(run.phenotypes)} phenotypes are drawn; the table has all of them")
    header = 0.5 + LINE_HEIGHT * len(lines)
    heights = [header, *[ROW_HEIGHT] * (max(1, len(shown)) + 1), *[DOSES_HEIGHT] * len(doses)]
    figure = new_figure(WIDTH, sum(heights))
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure.set_layout_engine("constrained", hspace=0.06, wspace=0.05, w_pad=0.09, h_pad=0.06)
        outline = figure.add_gridspec(len(heights), 1, height_ratios=heights)
        head, *rows = (figure.add_subfigure(outline[row, 0]) for row in range(len(heights)))
        head.text(0.01, 1 - 0.12 / header, shorten(run.name, 100), size=13, weight="bold", va="top")
        for index, line in enumerate(lines):
            y = 1 - (0.44 + LINE_HEIGHT * index) / header
            head.text(0.01, y, shorten(line, 190), size=8.5, color=GREY, va="top")
        for row, phenotype in zip(rows, shown or [""], strict=False):
            left, right = row.subplots(1, 2)
            if phenotype:
                draw_agreement(left, run, phenotype)
                draw_models(right, run.rows, phenotype)
            else:
                draw_nothing(left, "", "no test part")
                draw_nothing(right, "", "")
        losses, scores = rows[max(1, len(shown))].subplots(1, 2)
        draw_losses(losses, run.history, run.best_marked)
        draw_validation_score(scores, run, shown, run.kind(shown[0]) if shown else REGRESSION)
        for row, (phenotype, of_gene) in zip(rows[max(1, len(shown)) + 1 :], doses.items(), strict=True):
            draw_doses(row.subplots(), of_gene, with_unit(shorten(phenotype), run.results["units"].get(phenotype, "")))
        return encode(figure)


def described(run: RunFiles) -> str:
    """Say what ``overview`` shows, for those who cannot see it and as a caption."""
    parts = ["measured against predicted values of the test part", "the model beside null models"]
    parts += ["loss and validation score after each epoch"]
    doses = [name for name in run.phenotypes[:MOST_PHENOTYPES] if responses(run, name)]
    if doses:
        learned = ", as the model has learned it" if any(found.learned for found in run.doses.values()) else ""
        parts.append(f"{', '.join(doses)} along what is left of a gene{learned}: 0 is a deletion, 1 the wild type")
    return f"{'; '.join(parts).capitalize()}. On the dashed line predictions are exact."


OF_NAME = 0.3
"""So many inches are for each experiment or null model of a comparison."""


def comparison(scores: Mapping[str, tuple[str, Mapping[str, tuple[bool, Sequence[float]]]]]) -> bytes:
    """Draw the test scores of several runs as a PNG file.

    Args:
        scores: phenotype → the kind of its labels, and name → whether it is a null model, and one value a run.
    """
    heights = [1.1 + OF_NAME * len(by_name) for _, by_name in scores.values()] or [1.5]
    figure = new_figure(WIDTH, sum(heights))
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure.set_layout_engine("constrained", h_pad=0.1, w_pad=0.1)
        grid = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        if not scores:
            draw_nothing(grid[0], "", "no test part")
        for axes, (phenotype, (kind, by_name)) in zip(grid, scores.items(), strict=False):
            score: Score = SCORES[kind]
            draw_scores(axes, score, by_name, phenotype)
        return encode(figure)
