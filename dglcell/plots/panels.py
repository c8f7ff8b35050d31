"""The panels of a report, each drawn into one pair of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.plots.data import EpochRecord, Predictions, ReportData, calibration, pearson_by_deletions
from dglcell.training.metrics import ResultRow, regression_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, distinguishable with every common colour blindness.
BLUE, ORANGE, GREEN, PURPLE, VERMILION = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00"
SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)
INK, GREY, LIGHT = "#222222", "#8A8A8A", "#C9CDD2"
HEXBIN_FROM = 3000
HEXAGONS = (56, 21)  # regular in a panel of the report's shape
NAME_LENGTH = 18
BAR_NAME_LENGTH = 38


def shorten(name: str, length: int = NAME_LENGTH) -> str:
    """The name as text for matplotlib: cut in the middle if too long, dollar signs not taken for formulas."""
    if len(name) > length:
        head = (length - 1) // 2
        name = name[:head] + "…" + name[len(name) - (length - 1 - head) :]
    return name.replace("$", r"\$")


def with_unit(label: str, unit: str) -> str:
    """``label [unit]``, or the label alone if dimensionless."""
    return f"{label} [{shorten(unit)}]" if unit else label


def _heading(axes: Axes, title: str, note: str = "") -> None:
    axes.set_title(title, pad=19)
    # Kept out of the layout, which would narrow the panel to make room for the line beside it.
    axes.text(0, 1.035, note, transform=axes.transAxes, color=GREY, va="bottom", in_layout=False)


def draw_nothing(axes: Axes, title: str, reason: str) -> None:
    """An empty panel that says why it is empty."""
    _heading(axes, title)
    axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", va="center", color=GREY)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def draw_agreement(axes: Axes, predictions: Predictions, phenotype: str, unit: str) -> None:
    """Measured against predicted: points, or log density of points where there are many."""
    title = f"{shorten(phenotype)}: measured against predicted (test)"
    p = predictions.usable()
    if len(p.measured) == 0:
        draw_nothing(axes, title, "no measured test strains")
        return
    x_range, y_range = _robust_range(p.predicted), _robust_range(p.measured)
    _heading(axes, title, _summary(p, x_range, y_range))
    if len(p.measured) >= HEXBIN_FROM:
        inside = (p.predicted >= x_range[0]) & (p.predicted <= x_range[1])
        inside &= (p.measured >= y_range[0]) & (p.measured <= y_range[1])
        density = axes.hexbin(
            p.predicted[inside], p.measured[inside], gridsize=HEXAGONS, extent=(*x_range, *y_range),
            bins="log", mincnt=1, cmap="viridis", linewidths=0.1,
        )  # fmt: skip
        bar = axes.figure.colorbar(density, ax=axes, pad=0.015, aspect=32, format="{x:,.0f}")
        bar.set_label("strains per cell")
        bar.outline.set_visible(False)
    else:
        size = 34 if len(p.measured) < 200 else 12
        alpha = 0.85 if len(p.measured) < 200 else 0.45
        axes.scatter(p.predicted, p.measured, s=size, alpha=alpha, color=BLUE, linewidths=0)
    axes.axline((0, 0), slope=1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=3)
    axes.set(xlim=x_range, ylim=y_range)
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlabel(with_unit(f"predicted {shorten(phenotype)}", unit))
    axes.set_ylabel(with_unit(f"measured {shorten(phenotype)}", unit))


def _summary(p: Predictions, x_range: tuple[float, float], y_range: tuple[float, float]) -> str:
    metrics = regression_metrics(p.predicted, p.measured)
    parts = [f"Pearson {_number(metrics['pearson'])}", f"Spearman {_number(metrics['spearman'])}"]
    parts.append(f"n = {metrics['n']:,}")
    outside = (p.predicted < x_range[0]) | (p.predicted > x_range[1])
    outside |= (p.measured < y_range[0]) | (p.measured > y_range[1])
    if outside.any():
        parts.append(f"{int(outside.sum()):,} beyond the axes")
    return " · ".join(parts)


def draw_calibration(axes: Axes, predictions: Predictions, phenotype: str, unit: str) -> None:
    """Mean measurement of strains with similar predictions, with standard errors."""
    title = "Calibration (test)"
    bins = calibration(predictions)
    if len(bins) < 2:
        many = len(predictions.usable().measured)
        draw_nothing(axes, title, "the prediction is constant" if many >= 10 else "too few test strains")
        return
    _heading(axes, title, f"means of {len(bins)} equal bins ± SE · grey: mean of all")
    x, y = np.array([b.predicted for b in bins]), np.array([b.measured for b in bins])
    error = np.array([b.standard_error for b in bins])
    axes.axhline(float(predictions.usable().measured.mean()), color=LIGHT, linewidth=1.2, zorder=1)
    axes.axline((0, 0), slope=1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=2)
    axes.errorbar(x, y, yerr=error, fmt="o-", color=BLUE, markersize=5, linewidth=1.3, elinewidth=1.3, zorder=3)
    error = np.nan_to_num(error)
    low, high = float(min(x.min(), (y - error).min())), float(max(x.max(), (y + error).max()))
    pad = 0.06 * (high - low)
    axes.set(xlim=(low - pad, high + pad), ylim=(low - pad, high + pad))
    axes.set_xlabel(with_unit(f"mean predicted {shorten(phenotype)}", unit))
    axes.set_ylabel(with_unit(f"mean measured {shorten(phenotype)}", unit))


def draw_models(axes: Axes, rows: Sequence[ResultRow], phenotype: str) -> None:
    """Test Pearson of the model and the null models as bars, validation Pearson as diamonds."""
    title = "Model against null models"
    scores: dict[str, dict[str, float]] = {}
    nulls = {row.model for row in rows if row.is_null}
    for row in rows:
        if row.phenotype == phenotype:
            scores.setdefault(row.model, {})[row.part] = row.metrics.get("pearson", math.nan)
    if not scores:
        draw_nothing(axes, title, "no results")
        return
    _heading(axes, title, "bars: test · diamonds: validation")
    names = sorted(scores, key=lambda name: _or_lowest(scores[name].get("test", math.nan)))
    test = np.array([scores[name].get("test", math.nan) for name in names])
    validation = np.array([scores[name].get("validation", math.nan) for name in names])
    colors = [LIGHT if name in nulls else BLUE for name in names]
    axes.barh(range(len(names)), np.nan_to_num(test), height=0.36, color=colors)
    axes.scatter(
        validation, range(len(names)), marker="D", s=22, facecolor="white", edgecolor=INK, linewidths=0.9, zorder=3
    )
    ends = np.nan_to_num(np.stack([test, validation]))
    low, high = min(0.0, float(ends.min())), max(0.05, float(ends.max()))
    left = low + 0.012 * (high - low)
    backing = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    for position, name in enumerate(names):
        weight = "normal" if name in nulls else "bold"
        end = max(0.0, float(ends[:, position].max())) + 0.04 * (high - low)
        axes.text(end, position, _number(test[position]), va="center", weight=weight, in_layout=False)
        label = shorten(name, BAR_NAME_LENGTH)
        axes.text(left, position + 0.24, label, va="bottom", weight=weight, bbox=backing, in_layout=False)
    axes.set_yticks([])
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set(xlim=(low * 1.1, high + 0.2 * (high - low)), ylim=(-0.4, len(names) - 0.3), xlabel="Pearson correlation")
    axes.spines["left"].set_visible(False)


def draw_losses(axes: Axes, history: Sequence[EpochRecord], best_epoch: int | None) -> None:
    """Loss on the training and validation parts by epoch."""
    epochs = np.array([record.epoch for record in history])
    curves = {
        "train": np.array([record.train_loss for record in history], dtype=float),
        "validation": np.array([record.validation_loss for record in history], dtype=float),
    }
    if not any(np.isfinite(values).any() for values in curves.values()):
        draw_nothing(axes, "Loss", "no training history")
        return
    _heading(axes, "Loss", _best_epoch_note(best_epoch))
    for (name, values), color in zip(curves.items(), (GREY, BLUE), strict=True):
        _curve(axes, epochs, values, name, color)
    finite = np.concatenate([values[np.isfinite(values)] for values in curves.values()])
    if finite.min() > 0 and finite.max() / finite.min() > 20:
        axes.set_yscale("log")
    axes.set_ylabel("loss [normalised units]")
    _finish_curves(axes, best_epoch)


def draw_validation_pearson(axes: Axes, run: ReportData, phenotypes: Sequence[str]) -> None:
    """Pearson correlation on the validation part by epoch, one curve a phenotype; dotted: the best null model."""
    title = "Validation Pearson"
    epochs = np.array([record.epoch for record in run.history])
    curves = {
        name: np.array([record.validation_pearson.get(name, math.nan) for record in run.history], dtype=float)
        for name in phenotypes
    }
    if not any(np.isfinite(values).any() for values in curves.values()):
        draw_nothing(axes, title, "no training history")
        return
    null_note = "dotted: best null model"
    _heading(axes, title, " · ".join(filter(None, [null_note, _best_epoch_note(run.best_epoch)])))
    for (name, values), color in zip(curves.items(), SERIES, strict=False):
        _curve(axes, epochs, values, shorten(name), color)
        null = [
            row.metrics.get("pearson", math.nan)
            for row in run.rows
            if row.is_null and row.part == "validation" and row.phenotype == name
        ]
        if np.isfinite(null).any():
            axes.axhline(float(np.nanmax(null)), color=color, linewidth=1.2, linestyle=":")
    axes.set_ylabel("Pearson correlation")
    _finish_curves(axes, run.best_epoch)


def draw_deletions(axes: Axes, run: ReportData, phenotypes: Sequence[str]) -> None:
    """Test Pearson by number of deletions; with one number only, the distributions of both sides."""
    groups = {name: pearson_by_deletions(run.predictions[name]) for name in phenotypes if name in run.predictions}
    numbers = sorted({group[0] for entries in groups.values() for group in entries})
    if len(numbers) < 2:
        _draw_distributions(axes, run, phenotypes)
        return
    _heading(
        axes, "Test Pearson by number of deletions", f"n of {shorten(next(iter(groups)))}" if len(groups) > 1 else ""
    )
    for (name, entries), color in zip(groups.items(), SERIES, strict=False):
        axes.plot([e[0] for e in entries], [e[1] for e in entries], "o-", color=color, label=shorten(name))
    first = {number: 0 for number in numbers}
    for number, _, n in next(iter(groups.values())):
        first[number] = n
    axes.set_xticks(numbers, [f"{number}\nn = {first[number]:,}" for number in numbers])
    axes.set_xlim(numbers[0] - 0.4, numbers[-1] + 0.4)
    axes.set(xlabel="deleted genes", ylabel="Pearson correlation")
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.margins(y=0.12)
    if len(groups) > 1:
        axes.legend()


def _draw_distributions(axes: Axes, run: ReportData, phenotypes: Sequence[str]) -> None:
    name = next((n for n in phenotypes if n in run.predictions), None)
    p = run.predictions[name].usable() if name is not None else None
    if name is None or p is None or len(p.measured) == 0:
        draw_nothing(axes, "Distribution", "no measured test strains")
        return
    _heading(axes, f"Distribution of {shorten(name)} (test)")
    low, high = _robust_range(np.concatenate([p.measured, p.predicted]))
    edges = np.linspace(low, high, int(np.clip(2 * math.sqrt(len(p.measured)), 8, 60))).tolist()
    for values, label, color in ((p.measured, "measured", GREY), (p.predicted, "predicted", BLUE)):
        axes.hist(values, edges, histtype="stepfilled", color=color, alpha=0.28, linewidth=0)
        axes.hist(values, edges, histtype="step", color=color, linewidth=1.5, label=label)
    if len(p.measured) >= HEXBIN_FROM:
        axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=6)
    axes.set(xlabel=with_unit(shorten(name), run.units.get(name, "")), ylabel="strains", xlim=(low, high))
    axes.legend()


def _curve(axes: Axes, epochs: NDArray[np.int64], values: NDArray[np.float64], name: str, color: str) -> None:
    """A line through the epochs that have a value, with markers while they are few."""
    known = np.isfinite(values)
    marker = "o" if known.sum() <= 25 else None
    axes.plot(epochs[known], values[known], marker=marker, markersize=3.5, color=color, label=name)


def _best_epoch_note(best_epoch: int | None) -> str:
    return "" if best_epoch is None else f"orange: best epoch, {best_epoch}"


def _finish_curves(axes: Axes, best_epoch: int | None) -> None:
    from matplotlib.ticker import MaxNLocator

    if best_epoch is not None:
        axes.axvline(best_epoch, color=ORANGE, linewidth=1.4, zorder=0)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend()


def _robust_range(values: NDArray[np.floating]) -> tuple[float, float]:
    """A range that holds nearly all values; a few extreme ones do not squeeze the rest."""
    low, high = np.quantile(values, [0.0005, 0.9995]) if len(values) >= HEXBIN_FROM else (values.min(), values.max())
    pad = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return float(low - pad), float(high + pad)


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "undefined"


def _or_lowest(value: float) -> float:
    return value if math.isfinite(value) else -2.0
