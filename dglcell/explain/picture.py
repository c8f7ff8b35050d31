"""Draw what predicted changes come from as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dglcell.errors import count
from dglcell.explain.tables import KINDS
from dglcell.plots.data import BLUE, DPI, GREY, STYLE, VERMILION, encode, heading, new_figure, shorten

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_DRAWN = 4
"""So many strains and phenotypes are drawn, those with the largest changes."""

DRAWN = ("term", "gene", "relation", "node")
WIDTH, BAR, MARGIN = 1800 / DPI, 0.17, 0.9


def draw(table: pd.DataFrame) -> bytes:
    """Draw the strains with the largest changes as a PNG file, with a row of panels for each.

    Args:
        table: what ``tables.split`` gives.
    """
    import matplotlib

    groups = [rows for _, rows in table.groupby(["strain", "phenotype"], sort=False)]
    drawn = sorted(groups, key=lambda rows: -abs(_change(rows)))[:MOST_DRAWN]
    heights = [MARGIN + BAR * rows["kind"].value_counts().max() for rows in drawn]
    figure = new_figure(WIDTH, sum(heights) + 0.4)
    with matplotlib.rc_context(STYLE):
        figure.set_layout_engine("constrained", hspace=0.04, wspace=0.03)
        panels = figure.subplots(len(drawn), len(DRAWN), squeeze=False, height_ratios=heights)
        for row, rows in zip(panels, drawn, strict=True):
            title = f"{shorten(rows['genes'].iloc[0], 40)}: {rows['phenotype'].iloc[0]} {_change(rows):+.3g}"
            for place, (axes, kind) in enumerate(zip(row, DRAWN, strict=True)):
                _draw(axes, rows[rows["kind"] == kind], title if place == 0 else "", KINDS[kind])
                axes.set_ylim(rows["kind"].value_counts().max() - 0.4, -0.6)
        said = "" if len(drawn) == len(groups) else f"; {len(drawn)} of {count(len(groups), 'strain')}"
        figure.supxlabel(f"what each gives to the predicted change{said}", color=GREY, fontsize=8)
        return encode(figure)


def _change(rows: pd.DataFrame) -> float:
    return float(rows.loc[rows["kind"] == "term", "change"].sum())


def _draw(axes: Axes, rows: pd.DataFrame, title: str, note: str) -> None:
    """Draw bars with their names, the strongest on top."""
    heading(axes, title, note)
    names = [shorten(name, 26) for name in rows["name"]]
    axes.barh(range(len(rows)), rows["change"], color=[VERMILION if x < 0 else BLUE for x in rows["change"]])
    axes.set_yticks(range(len(rows)), names)
    axes.axvline(0, color=GREY, linewidth=0.7)
    axes.locator_params(axis="x", nbins=4)
