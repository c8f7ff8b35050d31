"""Draw learning curves: losses, their terms, the correlation, and the spread of embeddings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.metrics import best_row
from dglcell.plots.comparison import SCORES, curve_key
from dglcell.plots.data import History, ReportData
from dglcell.plots.style import (
    BLUE,
    DASHES,
    GREEN,
    GREY,
    ORANGE,
    SERIES,
    VERMILION,
    Panel,
    Table,
    draw_nothing,
    heading,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


TERMS = ("train/loss/", "validation/loss/")
FEW_EPOCHS = 25
LOG_FROM = 20.0  # ratio of the largest to the smallest value
LEGEND_NAME_LENGTH = 30


def learning_panels(run: ReportData) -> list[Panel]:
    """Make panels of losses, their terms where there are any, and scores; none without a record."""
    history = run.history
    if not len(history):
        return []
    best = "" if run.best_epoch is None else f" Orange: epoch {run.best_epoch}, whose weights are reported."
    parts = "training and validation" if history.keys("validation/loss") else "training"
    losses = Panel(
        "learning-loss",
        "Loss",
        f"Loss on the {parts} part after each of {len(history):,} epochs, in normalised units. That of "
        f"the training part is the mean over the steps of the epoch, while the model still changes.{best}",
        curves_table(history, ["train/loss", "validation/loss"]),
        lambda axes: draw_losses(axes, history, run.best_epoch),
    )
    return [losses, *_term_panels(run, best), *_score_panels(run, best)]


def _term_panels(run: ReportData, best: str) -> list[Panel]:
    history, terms = run.history, term_keys(run.history)
    if not terms:
        return []
    return [
        Panel(
            "learning-terms",
            "Terms of the loss",
            f"What the loss is made of, after each of {len(history):,} epochs: "
            f"{', '.join(terms.values())}. Each as it enters the sum or as the loss reports it.{best}",
            curves_table(history, list(terms)),
            lambda axes: draw_terms(axes, history, run.best_epoch),
        )
    ]


def _score_panels(run: ReportData, best: str) -> list[Panel]:
    """Make one panel for each kind of labels."""
    panels = []
    for kind in dict.fromkeys(map(run.kind, run.phenotypes)):
        score = SCORES[kind]
        panels.append(
            Panel(
                f"learning-{score.metric.replace('_', '-')}",
                f"Validation {score.title}",
                f"{score.name} of the predictions on the validation part after each epoch. Dotted: the best null "
                f"model.{best}",
                curves_table(run.history, [curve_key(p, kind) for p in run.phenotypes if run.kind(p) == kind]),
                partial(draw_validation_score, run=run, phenotypes=run.phenotypes, kind=kind),
            )
        )
    return panels


def term_keys(history: History) -> dict[str, str]:
    """Return key → name of every term of the loss; names say which terms are of the validation part."""
    return {key: key.removeprefix(TERMS[0]).replace("/loss/", " ") for prefix in TERMS for key in history.keys(prefix)}


def curves_table(history: History, keys: Sequence[str]) -> Table:
    """Return a table with an epoch a row and a key a column."""
    curves = [history.curve(key).tolist() for key in keys]
    return Table(("epoch", *keys), list(zip(history.epochs.tolist(), *curves, strict=True)))


def draw_losses(axes: Axes, history: History, best_epoch: int | None) -> None:
    """Draw the loss on the training and validation parts by epoch."""
    curves = {name: history.curve(f"{name}/loss") for name in ("train", "validation")}
    styles = {"train": (GREY, "-"), "validation": (BLUE, "-")}
    if draw_curves(axes, "Loss", history, curves, best_epoch, styles=styles):
        axes.set_ylabel("loss [normalised units]")


def draw_terms(axes: Axes, history: History, best_epoch: int | None) -> None:
    """Draw every term of the loss by epoch."""
    names = term_keys(history)
    terms = list(dict.fromkeys(key.partition("/loss/")[2] for key in names))
    styles = {
        name: (SERIES[terms.index(key.partition("/loss/")[2]) % len(SERIES)], "--" if key.startswith("val") else "-")
        for key, name in names.items()
    }
    curves = {name: history.curve(key) for key, name in names.items()}
    if draw_curves(axes, "Terms of the loss", history, curves, best_epoch, styles=styles):
        axes.set_ylabel("term of the loss")


def draw_validation_score(axes: Axes, run: ReportData, phenotypes: Sequence[str], kind: str) -> None:
    """Draw scores on the validation part by epoch, one curve a phenotype of this kind.

    The dotted line is the best null model.
    """
    score = SCORES[kind]
    curves = {p: run.history.curve(curve_key(p, kind)) for p in phenotypes if run.kind(p) == kind}
    curves = {p: curve for p, curve in curves.items() if np.isfinite(curve).any()}
    nulls = [_best_null(run, p, score.metric) for p in curves]
    note = "dotted: best null model" if any(map(math.isfinite, nulls)) else ""
    if not draw_curves(axes, f"Validation {score.title}", run.history, curves, run.best_epoch, note=note):
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
    styles: Mapping[str, tuple[str, str]] | None = None,
) -> bool:
    """Draw lines through the epochs that have a value.

    Epochs have markers while they are few. The axis is logarithmic where values span much.

    Args:
        curves: name → one value an epoch.
        best_epoch: epoch that is marked.
        note: text below the title.
        styles: name → colour and dash; in the order of the palette where None.

    Returns:
        Whether there was anything to draw; else the panel says so.
    """
    curves = {name: values for name, values in curves.items() if np.isfinite(values).any()}
    if not curves:
        draw_nothing(axes, title, "no value in any epoch" if len(history) else "no training history")
        return False
    best = "" if best_epoch is None else f"orange: best epoch, {best_epoch}"
    heading(axes, title, " · ".join(filter(None, [note, best])))
    for i, (name, values) in enumerate(curves.items()):
        known = np.isfinite(values)
        axes.plot(
            history.epochs[known],
            values[known],
            marker="o" if known.sum() <= FEW_EPOCHS else None,
            markersize=3.5,
            color=styles[name][0] if styles else SERIES[i % len(SERIES)],
            linestyle=styles[name][1] if styles else DASHES[i // len(SERIES) % len(DASHES)],
            label=shorten(name, LEGEND_NAME_LENGTH),
        )
    finite = np.concatenate([values[np.isfinite(values)] for values in curves.values()])
    if finite.min() > 0 and finite.max() / finite.min() > LOG_FROM:
        axes.set_yscale("log")
    _epoch_axis(axes, best_epoch)
    if len(curves) > 1:
        _legend(axes, len(curves))
    return True


def _epoch_axis(axes: Axes, best_epoch: int | None) -> None:
    """Show whole epochs along the axis, with the best one marked."""
    from matplotlib.ticker import MaxNLocator

    if best_epoch is not None:
        axes.axvline(best_epoch, color=ORANGE, linewidth=1.4, zorder=0)
    axes.margins(x=0.02)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _legend(axes: Axes, count: int) -> None:
    """Draw names of the curves: where there is room, or above them if they are many."""
    if count <= 2:
        axes.legend()
        return
    rows = -(-count // 2)
    low, high = axes.get_ylim()
    share = min(0.6, 0.02 + 0.085 * rows)  # of the height, for the legend
    if axes.get_yscale() == "log":
        axes.set_ylim(low, low * (high / low) ** (1 / (1 - share)))
    else:
        axes.set_ylim(low, low + (high - low) / (1 - share))
    axes.legend(ncols=2, loc="upper left", borderaxespad=0.1, fontsize="small")


def _best_null(run: ReportData, phenotype: str, metric: str) -> float:
    """Return the highest validation score of a null model; NaN where none is defined."""
    nulls = (row for row in run.rows if row.is_null and row.part == "validation" and row.phenotype == phenotype)
    best = best_row(nulls, metric)
    return math.nan if best is None else best.metrics[metric]


NORM, SPREAD, COSINE = "validation/embedding_norm", "validation/embedding_spread", "validation/embedding_cosine"


def spread_panels(run: ReportData) -> list[Panel]:
    """Make panels of norm and spread; none for a model without embedding."""
    history = run.history
    if not history.keys(NORM):
        return []

    return [
        Panel(
            "embedding-norm",
            "Size of embeddings",
            "Mean Euclidean norm of the embeddings of all validation strains after each epoch. Zero would mean "
            "that deletions no longer reach the embedding.",
            curves_table(history, [NORM]),
            lambda axes: draw_norm(axes, history, run.best_epoch),
        ),
        Panel(
            "embedding-spread",
            "Over-smoothing",
            "How different the embeddings of validation strains are from each other. Spread: the share "
            "Σ‖z − z̄‖² / Σ‖z‖² of their squared length that is not common to all, a Dirichlet energy over all pairs of "
            "strains (Cai and Wang 2020); cosine: mean cosine of all pairs (after the distance of Chen et al. 2020). "
            "Where strains collapse onto each other, spread goes to 0 and cosine to 1.",
            curves_table(history, [SPREAD, COSINE]),
            lambda axes: draw_spread(axes, history, run.best_epoch),
        ),
    ]


def draw_norm(axes: Axes, history: History, best_epoch: int | None) -> None:
    """Draw the mean norm by epoch."""
    if draw_curves(axes, "Size of embeddings", history, {"norm": history.curve(NORM)}, best_epoch):
        axes.set_ylabel("mean norm of embeddings")
        if axes.get_yscale() == "linear":
            axes.set_ylim(0, 1.08 * float(np.nanmax(history.curve(NORM))) or 1.0)


def draw_spread(axes: Axes, history: History, best_epoch: int | None) -> None:
    """Draw spread and mean cosine by epoch."""
    curves = {"spread (collapse: 0)": history.curve(SPREAD), "cosine (collapse: 1)": history.curve(COSINE)}
    styles = {name: (color, "-") for name, color in zip(curves, (GREEN, VERMILION), strict=True)}
    if draw_curves(axes, "Over-smoothing", history, curves, best_epoch, styles=styles):
        opposed = bool((history.curve(COSINE) < -0.1).any())
        axes.set(yscale="linear", ylim=(-1.02 if opposed else -0.1, 1.3), ylabel="share, cosine")
        axes.set_yticks([tick / 5 for tick in range(-5 if opposed else 0, 6)])
        axes.legend(ncols=2, loc="upper left", borderaxespad=0.1)
