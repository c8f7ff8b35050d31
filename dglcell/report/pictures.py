"""Draw the picture of a run: measured against predicted, the model beside baselines, learning curves."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.table import CLASSIFICATION, REGRESSION
from dglcell.metrics import HEADLINE, ResultRow, best_row, regression_metrics
from dglcell.report import format_value
from dglcell.report.run_files import RunFiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, distinguishable with every common colour blindness.
BLUE, ORANGE, GREEN, PURPLE, VERMILION = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00"
SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)
INK, GREY, LIGHT = "#222222", "#707070", "#C9CDD2"
DPI = 150
STYLE = {
    "font.size": 8,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # fixed, because matplotlib would look for labels above the axes in every pass
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.edgecolor": "none",
}


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure of a size in inches, without any display; draw on it within ``rc_context(STYLE)``."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI)


def shorten(name: str, length: int = 22) -> str:
    """Shorten a name for matplotlib: it is cut in the middle if too long, and dollar signs do not start formulas."""
    if len(name) > length:
        head = (length - 1) // 2
        name = name[:head] + "…" + name[len(name) - (length - 1 - head) :]
    return name.replace("$", r"\$")


def _with_unit(label: str, unit: str) -> str:
    return f"{label} [{shorten(unit)}]" if unit else label


def heading(axes: Axes, title: str, note: str = "") -> None:
    """Draw a bold title with a grey line below it."""
    axes.set_title(title, pad=19)  # points, for the line below
    # The line is kept out of the layout, which would narrow the panel to make room beside it.
    axes.annotate(
        note, (0, 1), (0, 6), "axes fraction", "offset points", color=GREY, va="bottom", in_layout=False,
        annotation_clip=False,
    )  # fmt: skip
    # A power of ten stands above the numbers of its axis, not in this line.
    axes.yaxis.get_offset_text().set(horizontalalignment="right", x=-0.02)


def draw_nothing(axes: Axes, title: str, reason: str) -> None:
    """Draw an empty panel that says why it is empty."""
    heading(axes, title)
    axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", va="center", color=GREY)
    axes.set_axis_off()


def robust_range(values: NDArray[np.floating]) -> tuple[float, float]:
    """Return a range that holds nearly all values; a few extreme ones do not squeeze the rest."""
    low, high = np.quantile(values, [0.0005, 0.9995]) if len(values) >= 3000 else (values.min(), values.max())
    pad = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return float(low - pad), float(high + pad)


SCORE_NAMES = {REGRESSION: "Pearson correlation", CLASSIFICATION: "Average precision"}
"""This maps the kind of labels to the name of the score that models are compared by (`HEADLINE`)."""

MODEL_NAME_LENGTH = 38


def curve_key(phenotype: str, kind: str) -> str:
    """Return the key of a phenotype's validation score in the record."""
    return f"validation/{phenotype}/{HEADLINE[kind]}"


def draw_agreement(axes: Axes, run: RunFiles, phenotype: str) -> None:
    """Draw measured against predicted values of test strains, one point a strain."""
    title, found = f"{shorten(phenotype)}: test part", run.predictions.get("test", {}).get(phenotype)
    if found is None or not len(found.usable):
        draw_nothing(axes, title, "no measured test strains")
        return
    p, points = found.usable, run.config["plot_points"]
    shown = np.sort(np.random.default_rng(0).permutation(len(p))[:points])
    metrics = regression_metrics(p.predicted, p.measured)
    chosen = f"{len(shown):,} of " if len(shown) < len(p) else ""
    pearson, spearman = (format_value(name, metrics[name]) for name in ("pearson", "spearman"))
    heading(axes, title, f"Pearson {pearson} · Spearman {spearman} · n = {chosen}{len(p):,}")
    measured = p.measured
    if run.kind(phenotype) == CLASSIFICATION:
        # Points do not hide each other.
        measured = measured + np.random.default_rng(0).uniform(-0.06, 0.06, len(measured))
    size, alpha = (22, 0.7) if len(shown) < 200 else (8, 0.25)
    axes.scatter(p.predicted[shown], measured[shown], s=size, alpha=alpha, color=BLUE, linewidths=0)
    axes.axline((0, 0), slope=1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=3)
    axes.set(xlim=robust_range(p.predicted), ylim=robust_range(measured))
    axes.locator_params(axis="x", nbins=6)
    unit = run.results["units"].get(phenotype, "")
    by = run.results.get("predicts", {}).get(phenotype, {}).get("name")
    predicted = f"{shorten(phenotype)} predicted by {shorten(by, MODEL_NAME_LENGTH)}" if by else None
    axes.set_xlabel(_with_unit(predicted or f"predicted {shorten(phenotype)}", unit))
    axes.set_ylabel(_with_unit(f"measured {shorten(phenotype)}", unit))


def draw_models(axes: Axes, rows: Sequence[ResultRow], phenotype: str) -> None:
    """Draw the score of the model and of the baselines, the best on top."""
    import pandas as pd

    shown = [row for row in rows if row.phenotype == phenotype]
    kind = shown[0].kind if shown else REGRESSION
    title, metric, found = "Against baselines", HEADLINE[kind], dict[str, dict[str, float]]()
    for row in shown:
        found.setdefault(row.model, {})[row.part] = row.metrics.get(metric, math.nan)
    scores = pd.DataFrame.from_dict(found, orient="index", dtype=float).reindex(columns=["test", "validation"])
    scores = scores.dropna(how="all").sort_values("test", na_position="first", kind="stable")
    if scores.empty:
        draw_nothing(axes, title, "no score is defined" if shown else "no results")
        return
    heading(axes, title, "bars: test · diamonds: validation")
    baselines, places = {row.model for row in shown if row.is_baseline}, range(len(scores))
    colors = [LIGHT if name in baselines else BLUE for name in scores.index]
    axes.barh(places, scores.test.fillna(0), height=0.36, color=colors)
    diamonds: dict[str, Any] = {"marker": "D", "facecolor": "white", "edgecolor": INK}
    axes.scatter(scores.validation, places, 22, linewidths=0.9, zorder=3, **diamonds)
    numbers = scores.to_numpy(float)
    low, high = min(0.0, float(np.nanmin(numbers))), max(0.05, float(np.nanmax(numbers)))
    for place, end, value in zip(places, scores.max(axis=1).clip(lower=0), scores.test, strict=True):
        axes.text(end + 0.04 * (high - low), place, format_value(metric, value), va="center", in_layout=False)
    axes.set_yticks(places, [shorten(name, MODEL_NAME_LENGTH) for name in scores.index])
    axes.tick_params(axis="y", length=0)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set(xlim=(low * 1.1, high + 0.2 * (high - low)), ylim=(-0.6, len(scores) - 0.4), xlabel=SCORE_NAMES[kind])
    axes.spines["left"].set_visible(False)


def draw_validation_score(axes: Axes, run: RunFiles, phenotypes: Sequence[str], kind: str) -> None:
    """Draw scores on the validation part by epoch, one curve a phenotype; baselines and ablations are dotted."""
    metric = HEADLINE[kind]
    curves = {p: run.curve(curve_key(p, kind)) for p in phenotypes if run.kind(p) == kind}
    curves = {p: curve for p, curve in curves.items() if np.isfinite(curve).any()}
    rows = [row for row in run.rows if row.is_baseline and row.part == "validation"]
    best = [best_row((row for row in rows if row.phenotype == p), metric) for p in curves]
    note = "dotted: best baseline or ablation" if any(best) else ""
    draw_curves(axes, "Validation score", SCORE_NAMES[kind], run, curves, note=note)
    for i, baseline in enumerate(best):
        if baseline is not None:
            axes.axhline(baseline.metrics[metric], color=SERIES[i % len(SERIES)], linewidth=1.2, linestyle=":")


def draw_curves(
    axes: Axes,
    title: str,
    label: str,
    run: RunFiles,
    curves: Mapping[str, NDArray[np.float64]],
    *,
    note: str = "",
    colors: Sequence[str] = SERIES,
    log_scale: bool = False,
) -> None:
    """Draw lines through the epochs that have a value, and one at the best epoch.

    Epochs have markers while they are few. With ``log_scale`` the axis is logarithmic where values span much.
    """
    from matplotlib.ticker import MaxNLocator

    curves = {name: values for name, values in curves.items() if np.isfinite(values).any()}
    if not curves:
        draw_nothing(axes, title, "no value in any epoch" if run.history else "no training history")
        return
    best = f"orange: best epoch, {run.best_epoch}" if run.rows else ""  # which nothing says without results
    heading(axes, title, " · ".join(filter(None, [note, best])))
    for i, (name, values) in enumerate(curves.items()):
        known = np.isfinite(values)
        axes.plot(
            run.epochs[known], values[known], marker="o" if known.sum() <= 25 else None, markersize=3.5,
            color=colors[i % len(colors)], label=shorten(name, 30),
        )  # fmt: skip
    finite = np.concatenate([values[np.isfinite(values)] for values in curves.values()])
    if log_scale and finite.min() > 0 and finite.max() / finite.min() > 20:
        axes.set_yscale("log")
    if run.rows:
        axes.axvline(run.best_epoch, color=ORANGE, linewidth=1.4, zorder=0)
    axes.margins(x=0.02)
    if len(run.history) == 1:
        axes.set_xlim(0.5, 1.5)
    axes.set(xlabel="epoch", ylabel=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if len(curves) > 1:
        axes.legend()


MOST_PHENOTYPES = 3
WIDTH, ROW_HEIGHT, LINE_HEIGHT = 1600 / DPI, 480 / DPI, 0.17


def overview(run: RunFiles) -> bytes:
    """Draw a run as a PNG file, 1,600 pixels wide; the same run gives the same bytes.

    There is a row of panels for each of the first three phenotypes: measured against predicted, and the model against
    baselines. Below are loss and validation score by epoch.
    """
    import matplotlib

    shown, lines = run.phenotypes[:MOST_PHENOTYPES], run.lines
    if len(run.phenotypes) > MOST_PHENOTYPES:
        lines.append(f"{MOST_PHENOTYPES} of {len(run.phenotypes)} phenotypes are drawn; the table has all of them")
    header = 0.5 + LINE_HEIGHT * len(lines)
    heights = [header, *[ROW_HEIGHT] * (max(1, len(shown)) + 1)]
    figure = new_figure(WIDTH, sum(heights))
    with matplotlib.rc_context(STYLE):
        figure.set_layout_engine("constrained", hspace=0.06, wspace=0.05, w_pad=0.09, h_pad=0.06)
        outline = figure.add_gridspec(len(heights), 1, height_ratios=heights)
        head, *rows, last = (figure.add_subfigure(outline[row, 0]) for row in range(len(heights)))
        head.text(0.01, 1 - 0.12 / header, shorten(run.name, 100), size=13, weight="bold", va="top")
        for index, line in enumerate(lines):
            y = 1 - (0.44 + LINE_HEIGHT * index) / header
            head.text(0.01, y, shorten(line, 190), size=8.5, color=GREY, va="top")
        for row, phenotype in zip(rows, shown or [""], strict=True):
            left, right = row.subplots(1, 2)
            if phenotype:
                draw_agreement(left, run, phenotype)
                draw_models(right, run.rows, phenotype)
            else:
                draw_nothing(left, "", "no test part")
                draw_nothing(right, "", "")
        losses, scores = last.subplots(1, 2)
        of_parts = {name: run.curve(f"{name}/loss") for name in ("train", "validation")}
        draw_curves(losses, "Loss", "loss [normalised units]", run, of_parts, colors=(GREY, BLUE), log_scale=True)
        draw_validation_score(scores, run, shown, run.kind(shown[0]) if shown else REGRESSION)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", pil_kwargs={"compress_level": 9})
        return buffer.getvalue()


CAPTION = (
    "Measured against predicted values of the test part; the model beside baselines; loss and validation score after "
    "each epoch. On the dashed line predictions are exact."
)
"""This says what ``overview`` shows, for those who cannot see it."""
