"""Draw how values of nodes change: measured against predicted, such as fluxes of reactions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from dglcell.plots.data import NodeChanges, ReportData
from dglcell.plots.style import Panel, Table, diagonal, draw_density, heading, number, robust_range, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST = 3
"""Fewer values that change have no correlation worth a picture."""


def node_panels(run: ReportData) -> list[Panel]:
    """Return a panel for each name of values of nodes that change in test strains."""
    return [
        _panel(name, changes, run.points)
        for name, changes in run.node_changes.items()
        if len(changes.measured) >= FEWEST
    ]


def _panel(name: str, changes: NodeChanges, points: int) -> Panel:
    n, nodes = len(changes.measured), len(np.unique(changes.nodes))
    caption = (
        f"By how much {name} differs from the wild type: {n:,} values of {nodes:,} nodes that change in test strains, "
        "of strains and values chosen at random where there are many. The unit is the standard deviation of a node "
        "over the training strains. On the dashed line predictions are exact. Results are the mean over nodes; the "
        "correlation here is over all values together."
    )
    rows = zip(changes.nodes.tolist(), changes.predicted.tolist(), changes.measured.tolist(), strict=True)
    return Panel(
        f"test-{quote(name, safe='')}-changes",
        f"{shorten(name)}: measured against predicted changes",
        caption,
        Table(("node", "predicted", "measured"), list(rows)),
        partial(_draw, name=name, changes=changes, points=points),
    )


def _draw(axes: Axes, *, name: str, changes: NodeChanges, points: int) -> None:
    r = np.corrcoef(changes.predicted, changes.measured)[0, 1] if np.ptp(changes.predicted) else np.nan
    note = f"Pearson {number(r)} · n = {len(changes.measured):,}"
    heading(axes, "Measured against predicted changes", note)
    ranges = robust_range(changes.predicted), robust_range(changes.measured)
    draw_density(axes, changes.predicted, changes.measured, *ranges, points, "values")
    diagonal(axes)
    axes.set_xlabel(f"predicted change of {shorten(name)} [sd]")
    axes.set_ylabel(f"measured change of {shorten(name)} [sd]")
