"""Size and spread of the strains' embeddings over the epochs: whether they collapse onto each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dglcell.plots.data import ReportData
from dglcell.plots.history import History
from dglcell.plots.learning import curves_table, draw_curves
from dglcell.plots.panel import Panel, Table
from dglcell.plots.style import GREEN, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NORM, SPREAD, COSINE = "validation/embedding_norm", "validation/embedding_spread", "validation/embedding_cosine"


def spread_panels(run: ReportData) -> list[Panel]:
    """Norm and spread; none for a model without embedding."""
    history = run.history
    if not history.keys(NORM):
        return []

    def table(*keys: str) -> Table:
        return curves_table(history, keys)

    return [
        Panel(
            "embedding-norm",
            "Size of embeddings",
            "Mean Euclidean norm of the embeddings of all validation strains after each epoch. Zero would mean "
            "that deletions no longer reach the embedding.",
            table(NORM),
            lambda axes: draw_norm(axes, history, run.best_epoch),
        ),
        Panel(
            "embedding-spread",
            "Over-smoothing",
            "How different the embeddings of validation strains are from each other. Spread: the share "
            "Σ‖z − z̄‖² / Σ‖z‖² of their squared length that is not common to all, a Dirichlet energy over all pairs of "
            "strains (Cai and Wang 2020); cosine: mean cosine of all pairs (after the distance of Chen et al. 2020). "
            "Where strains collapse onto each other, spread goes to 0 and cosine to 1.",
            table(SPREAD, COSINE),
            lambda axes: draw_spread(axes, history, run.best_epoch),
        ),
    ]


def draw_norm(axes: Axes, history: History, best_epoch: int | None) -> None:
    """Mean norm by epoch."""
    if draw_curves(axes, "Size of embeddings", history, {"norm": history.curve(NORM)}, best_epoch):
        axes.set_ylabel("mean norm of embeddings")
        if axes.get_yscale() == "linear":
            axes.set_ylim(0, None)


def draw_spread(axes: Axes, history: History, best_epoch: int | None) -> None:
    """Spread and mean cosine by epoch."""
    curves = {"spread (collapse: 0)": history.curve(SPREAD), "cosine (collapse: 1)": history.curve(COSINE)}
    styles = {name: (color, "-") for name, color in zip(curves, (GREEN, VERMILION), strict=True)}
    if draw_curves(axes, "Over-smoothing", history, curves, best_epoch, styles=styles):
        opposed = bool((history.curve(COSINE) < -0.1).any())
        axes.set(yscale="linear", ylim=(-1.02 if opposed else -0.1, 1.3), ylabel="share, cosine")
        axes.set_yticks([tick / 5 for tick in range(-5 if opposed else 0, 6)])
        axes.legend(ncols=2, loc="upper left", borderaxespad=0.1)
