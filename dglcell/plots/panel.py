"""A panel: what is drawn, what one sees there, and the numbers behind it; written as picture and table."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dglcell.files import atomic_file
from dglcell.plots.style import STYLE, encode, fit_margins, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 3.7, 2.75
DPI = 230
FORMATS = ("png", "svg")


@dataclass(frozen=True)
class Table:
    """Numbers.

    Attributes:
        columns: names.
        rows: one value per column; NaN where undefined.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]

    def write(self, path: Path) -> None:
        """A CSV file with empty cells where a value is undefined."""
        with atomic_file(path) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows([_cell(value) for value in row] for row in self.rows)


@dataclass(frozen=True)
class Panel:
    """One picture of a report.

    Attributes:
        key: stem of its files.
        title: a few words.
        caption: what one sees.
        table: the numbers behind it.
        draw: draws it.
        width, height: inches.
    """

    key: str
    title: str
    caption: str
    table: Table
    draw: Callable[[Axes], None]
    width: float = WIDTH
    height: float = HEIGHT


def render(panel: Panel, formats: Iterable[str] = ("png",)) -> dict[str, bytes]:
    """Draw a panel: format → file.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    figure = new_figure(panel.width, panel.height, DPI)
    import matplotlib

    with matplotlib.rc_context(STYLE):
        panel.draw(figure.subplots())
        fit_margins(figure)
        return {kind: encode(figure, kind) for kind in formats}


def write_panel(panel: Panel, folder: Path) -> bytes:
    """Write a panel into ``folder`` as PNG and SVG, and the numbers behind it as CSV.

    Returns:
        the PNG file.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    files = render(panel, FORMATS)
    for kind, content in files.items():
        with atomic_file(folder / f"{panel.key}.{kind}") as partial:
            partial.write_bytes(content)
    panel.table.write(folder / f"{panel.key}.csv")
    return files["png"]


def _cell(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.7g}" if math.isfinite(value) else ""
    return value
