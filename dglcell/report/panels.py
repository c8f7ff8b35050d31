"""Draw pictures of runs: measured against predicted, the model beside null models, learning curves, doses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dglcell.data.table import CLASSIFICATION, REGRESSION
from dglcell.metrics import ResultRow, best_row
from dglcell.report.drawing import (
    BLUE,
    DPI,
    GREY,
    INK,
    LIGHT,
    ORANGE,
    SERIES,
    STYLE,
    TITLE_PAD,
    draw_nothing,
    encode,
    heading,
    new_figure,
    number,
    robust_range,
    sample,
    shorten,
    with_unit,
)
from dglcell.report.run_files import History, RunFiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Score(NamedTuple):
    """Describe a metric of which more is better."""

    metric: str
    name: str  #: name that axes show
    title: str  #: short name for titles


SCORES = {
    REGRESSION: Score("pearson", "Pearson correlation", "Pearson"),
    CLASSIFICATION: Score("average_precision", "Average precision", "average precision"),
}
"""This maps the kind of labels to the metric by which models are compared."""

MODEL_NAME_LENGTH, EXPERIMENT_LENGTH = 38, 60
FEW_STRAINS, FEW_EPOCHS = 200, 25
LOG_FROM = 20.0  # ratio of the largest to the smallest value
JITTER = 0.06
"""Classes are drawn up to so far above and below their number, so that points do not hide each other."""


def curve_key(phenotype: str, kind: str) -> str:
    """Return the key of a phenotype's validation score in the record."""
    return f"validation/{phenotype}/{SCORES[kind].metric}"


def draw_agreement(axes: Axes, run: RunFiles, phenotype: str) -> None:
    """Draw measured against predicted values of test strains, one point a strain."""
    title, found = f"{shorten(phenotype)}: test part", run.predictions.get("test", {}).get(phenotype)
    if found is None or not len(found.usable):
        draw_nothing(axes, title, "no measured test strains")
        return
    p, shown = found.usable, sample(len(found.usable), run.config["plot_points"])
    metrics, chosen = found.metrics, f"{len(shown):,} of " if len(shown) < len(p) else ""
    said = f"Pearson {number(metrics['pearson'])} · Spearman {number(metrics['spearman'])} · n = {chosen}{len(p):,}"
    heading(axes, title, said)
    measured = p.measured
    if run.kind(phenotype) == CLASSIFICATION:
        measured = measured + np.random.default_rng(0).uniform(-JITTER, JITTER, len(measured))
    few = len(shown) < FEW_STRAINS
    axes.scatter(
        p.predicted[shown], measured[shown], s=22 if few else 8, alpha=0.7 if few else 0.25, color=BLUE, linewidths=0
    )
    axes.axline((0, 0), slope=1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=3)
    axes.set(xlim=robust_range(p.predicted), ylim=robust_range(measured))
    axes.locator_params(axis="x", nbins=6)
    unit = run.results["units"].get(phenotype, "")
    by = run.results.get("predicts", {}).get(phenotype, {}).get("name")
    predicted = f"{shorten(phenotype)} predicted by {shorten(by, MODEL_NAME_LENGTH)}" if by else None
    axes.set_xlabel(with_unit(predicted or f"predicted {shorten(phenotype)}", unit))
    axes.set_ylabel(with_unit(f"measured {shorten(phenotype)}", unit))


def draw_models(axes: Axes, rows: Sequence[ResultRow], phenotype: str) -> None:
    """Draw the score of the model and of the null models, the best on top."""
    title = "Against null models"
    shown = [row for row in rows if row.phenotype == phenotype]
    scores: dict[str, dict[str, float]] = {}
    metric, name_of_metric, _ = SCORES[shown[0].kind if shown else REGRESSION]
    for row in shown:
        scores.setdefault(row.model, {})[row.part] = row.metrics.get(metric, math.nan)
    drawn = [name for name, of in scores.items() if any(map(math.isfinite, of.values()))]
    if not drawn:
        draw_nothing(axes, title, "no score is defined" if scores else "no results")
        return
    heading(axes, title, "bars: test · diamonds: validation")
    nulls = {row.model for row in shown if row.is_null}
    names = sorted(drawn, key=lambda name: _or_lowest(scores[name].get("test", math.nan)))
    test, validation = (
        np.array([scores[name].get(part, math.nan) for name in names]) for part in ("test", "validation")
    )
    axes.barh(range(len(names)), np.nan_to_num(test), height=0.36, color=[LIGHT if n in nulls else BLUE for n in names])
    axes.scatter(
        validation, range(len(names)), marker="D", s=22, facecolor="white", edgecolor=INK, linewidths=0.9, zorder=3
    )
    ends = np.nan_to_num(np.stack([test, validation]))
    low, high = min(0.0, float(ends.min())), max(0.05, float(ends.max()))
    for position, name in enumerate(names):
        weight = "normal" if name in nulls else "bold"
        end = max(0.0, float(ends[:, position].max())) + 0.04 * (high - low)
        axes.text(end, position, number(test[position]), va="center", weight=weight, in_layout=False)
    axes.set_yticks(range(len(names)), [shorten(name, MODEL_NAME_LENGTH) for name in names])
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        label.set_fontweight("normal" if name in nulls else "bold")
    axes.tick_params(axis="y", length=0)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set(xlim=(low * 1.1, high + 0.2 * (high - low)), ylim=(-0.6, len(names) - 0.4), xlabel=name_of_metric)
    axes.spines["left"].set_visible(False)


def _or_lowest(value: float) -> float:
    return value if math.isfinite(value) else -2.0


def draw_losses(axes: Axes, history: History, best_epoch: int | None) -> None:
    """Draw the loss on the training and validation parts by epoch."""
    curves = {name: history.curve(f"{name}/loss") for name in ("train", "validation")}
    if draw_curves(axes, "Loss", history, curves, best_epoch, colors={"train": GREY, "validation": BLUE}):
        axes.set_ylabel("loss [normalised units]")


def draw_validation_score(axes: Axes, run: RunFiles, phenotypes: Sequence[str], kind: str) -> None:
    """Draw scores on the validation part by epoch, one curve a phenotype of this kind.

    The dotted line is the best null model.
    """
    score = SCORES[kind]
    curves = {p: run.history.curve(curve_key(p, kind)) for p in phenotypes if run.kind(p) == kind}
    curves = {p: curve for p, curve in curves.items() if np.isfinite(curve).any()}
    nulls = []
    for p in curves:
        rows = (row for row in run.rows if row.is_null and row.part == "validation" and row.phenotype == p)
        best = best_row(rows, score.metric)
        nulls.append(math.nan if best is None else best.metrics[score.metric])
    note = "dotted: best null model" if any(map(math.isfinite, nulls)) else ""
    if not draw_curves(axes, f"Validation {score.title}", run.history, curves, run.best_marked, note=note):
        return
    for i, null in enumerate(nulls):
        if math.isfinite(null):
            axes.axhline(null, color=SERIES[i % len(SERIES)], linewidth=1.2, linestyle=":")
    axes.set_yscale("linear")
    axes.set_ylabel(score.name)


def draw_curves(
    axes: Axes,
    title: str,
    history: History,
    curves: Mapping[str, NDArray[np.float64]],
    best_epoch: int | None,
    *,
    note: str = "",
    colors: Mapping[str, str] | None = None,
) -> bool:
    """Draw lines through the epochs that have a value.

    Epochs have markers while they are few. The axis is logarithmic where values span much.

    Args:
        axes: where to draw.
        title: title of the panel.
        history: the record of the training.
        curves: name → one value an epoch.
        best_epoch: epoch that is marked.
        note: text below the title.
        colors: name → colour; in the order of the palette where None.

    Returns:
        Whether there was anything to draw; else the panel says so.
    """
    from matplotlib.ticker import MaxNLocator

    curves = {name: values for name, values in curves.items() if np.isfinite(values).any()}
    if not curves:
        draw_nothing(axes, title, "no value in any epoch" if len(history) else "no training history")
        return False
    best = "" if best_epoch is None else f"orange: best epoch, {best_epoch}"
    heading(axes, title, " · ".join(filter(None, [note, best])))
    for i, (name, values) in enumerate(curves.items()):
        known = np.isfinite(values)
        axes.plot(
            history.epochs[known], values[known], marker="o" if known.sum() <= FEW_EPOCHS else None, markersize=3.5,
            color=colors[name] if colors else SERIES[i % len(SERIES)], label=shorten(name, 30),
        )  # fmt: skip
    finite = np.concatenate([values[np.isfinite(values)] for values in curves.values()])
    if finite.min() > 0 and finite.max() / finite.min() > LOG_FROM:
        axes.set_yscale("log")
    if best_epoch is not None:
        axes.axvline(best_epoch, color=ORANGE, linewidth=1.4, zorder=0)
    axes.margins(x=0.02)
    if len(history) == 1:
        axes.set_xlim(0.5, 1.5)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if len(curves) > 1:
        axes.legend()
    return True


def draw_scores(axes: Axes, score: Score, scores: Mapping[str, tuple[bool, Sequence[float]]], phenotype: str) -> None:
    """Draw a row for each experiment and null model, the best mean on top.

    Args:
        axes: where to draw.
        score: the metric.
        scores: name → whether it is a null model, and one value a run.
        phenotype: what is predicted.
    """
    finite = {name: [v for v in values if math.isfinite(v)] for name, (_, values) in scores.items()}
    names = sorted(scores, key=lambda name: float(np.mean(finite[name])) if finite[name] else -2.0)
    title = f"Test {score.title} of {shorten(phenotype)}"
    if not any(finite.values()):
        draw_nothing(axes, title, "no score is defined")
        return
    heading(axes, title, "points: runs · lines: means · grey: null models")
    for row, name in enumerate(names):
        color = GREY if scores[name][0] else BLUE
        axes.axhline(row, color=LIGHT, linewidth=0.5, zorder=0)
        axes.scatter(finite[name], [row] * len(finite[name]), s=22, color=color, alpha=0.75, linewidths=0)
        if finite[name]:
            axes.plot([np.mean(finite[name])] * 2, [row - 0.28, row + 0.28], color=color, linewidth=2)
    axes.set_yticks(range(len(names)), [shorten(name, EXPERIMENT_LENGTH) for name in names])
    axes.set(ylim=(-0.6, len(names) - 0.4), xlabel=score.name)
    axes.margins(x=0.08)
    axes.spines["left"].set_visible(False)


TITLE = "Dose and response"
MOST_GENES, MOST_MEDIA = 6, 3
COLUMNS = 3
GAP_X, GAP_Y, TOP = 0.035, 0.12, 0.12
"""These shares of a drawing's width and height lie between the curves of two genes; the last one, of a row's height, is
for their names."""

MEDIUM_LENGTH = 14
"""Letters to which names of media are shortened, so that all stand beside the title."""


class Response(NamedTuple):
    """Hold measured and predicted phenotypes of strains that weaken the same gene."""

    part: NDArray[Any]  #: [S] part of the split of each strain
    medium: NDArray[Any]  #: [S] its medium; empty texts where strains have none
    left: NDArray[np.floating]  #: [S] what is left of the gene, ascending
    measured: NDArray[np.floating]  #: [S] phenotypes
    predicted: NDArray[np.floating]


def responses(run: RunFiles, phenotype: str) -> dict[str, Response]:
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


def draw_doses(axes: Axes, of_gene: dict[str, Response], label: str) -> None:
    """Draw small axes for each gene, all with the same ranges.

    Args:
        axes: axes whose place the small ones take.
        of_gene: gene → its strains, at least one gene.
        label: name of the phenotype, with its unit.
    """
    heading(axes, TITLE, "points: measured (filled: test, open: validation) · lines: predicted")
    axes.set_axis_off()
    media = np.unique(np.concatenate([response.medium for response in of_gene.values()])).tolist()
    colors = dict(zip(media, SERIES, strict=False)) if len(media) <= MOST_MEDIA else {"": BLUE}
    left = np.concatenate([response.left for response in of_gene.values()])
    y = np.concatenate([np.concatenate([r.measured, r.predicted]) for r in of_gene.values()])
    x_range, y_range = (-0.05, max(1.0, float(left.max())) + 0.05), robust_range(y)
    for place, (small, (gene, response)) in enumerate(zip(_grid(axes, len(of_gene)), of_gene.items(), strict=True)):
        _draw_gene(small, response, colors)
        small.set(xlim=x_range, ylim=y_range)
        small.set_title(shorten(gene), pad=3, fontsize="medium", fontweight="normal", loc="center")
        is_lowest = place + COLUMNS >= len(of_gene)
        small.tick_params(labelbottom=is_lowest, labelleft=place % COLUMNS == 0)
        small.locator_params(axis="y", nbins=5)
        small.set_xlabel("what is left of the gene" if is_lowest else "")
        small.set_ylabel(label if place % COLUMNS == 0 else "")
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
    for place in range(count):
        row, column = divmod(place, columns)
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


# Whole pictures: of a run, and of several runs side by side.


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
"""Inches for each experiment or null model of a comparison."""


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
