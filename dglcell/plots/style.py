"""Define how pictures look, and panels: a drawing, its caption, and the numbers behind it."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.files.atomic import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure


# Okabe and Ito's palette, distinguishable with every common colour blindness.
BLUE, ORANGE, GREEN, PURPLE, VERMILION = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00"
SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)
DASHES = ("-", "--", ":", "-.")
INK, GREY, LIGHT = "#222222", "#707070", "#C9CDD2"
DENSITY, SIGNED = "viridis", "coolwarm"  # the latter is grey, not white, in the middle
NAME_LENGTH = 22
TITLE_PAD = 19  # points between a title and its axes, for the line below it
MANY_STRAINS = 3000
STYLE = {
    "font.size": 7.5,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # fixed, because matplotlib would look for labels above the axes in every pass
    "axes.edgecolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.5,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
    "figure.facecolor": "white",
    "svg.hashsalt": "dglcell",  # the same picture is the same file
}


def new_figure(width: float, height: float, dpi: float) -> Figure:
    """Make an empty figure of so many inches, without any display.

    Draw on it within ``matplotlib.rc_context(STYLE)``.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=dpi)


def _agg(figure: Figure) -> FigureCanvasAgg:
    """Return the figure's canvas of pixels, which remembers how large its texts are."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    return figure.canvas if isinstance(figure.canvas, FigureCanvasAgg) else FigureCanvasAgg(figure)


def fit_margins(figure: Figure, pad: float = 0.06) -> None:
    """Make room for labels around the axes of a figure with a single row and column, with ``pad`` inches to spare.

    It takes two passes, where matplotlib's layout engines take many; the second is needed because narrower axes have
    other ticks.
    """
    renderer = _agg(figure).get_renderer()
    width, height = figure.get_size_inches()
    for _ in range(2):
        now, taken = figure.subplotpars, figure.get_tightbbox(renderer)  # the latter in inches
        # If labels do not fit, the axes must still have a positive size.
        left = min(now.left + (pad - taken.x0) / width, 0.7)
        bottom = min(now.bottom + (pad - taken.y0) / height, 0.7)
        figure.subplots_adjust(
            left=left,
            right=max(now.right + (width - pad - taken.x1) / width, left + 0.2),
            bottom=bottom,
            top=max(now.top + (height - pad - taken.y1) / height, bottom + 0.2),
        )


def encode(figure: Figure, kind: str) -> bytes:
    """Return the figure as a ``png`` or ``svg`` file; the same figure gives the same bytes.

    It draws once; ``savefig`` would draw twice.
    """
    buffer = io.BytesIO()
    if kind == "svg":
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
        return buffer.getvalue()
    from PIL import Image

    canvas = _agg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "png", dpi=(figure.dpi, figure.dpi))
    return buffer.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all, in the format of the name's suffix."""
    with atomic_file(path) as partial:
        partial.write_bytes(encode(figure, path.suffix.removeprefix(".")))


def shorten(name: str, length: int = NAME_LENGTH) -> str:
    """Shorten a name for matplotlib: it is cut in the middle if too long, and dollar signs do not start formulas."""
    if len(name) > length:
        head = (length - 1) // 2
        name = name[:head] + "…" + name[len(name) - (length - 1 - head) :]
    return name.replace("$", r"\$")


def with_unit(label: str, unit: str) -> str:
    """Return ``label [unit]``, or the label alone if dimensionless."""
    return f"{label} [{shorten(unit)}]" if unit else label


def heading(axes: Axes, title: str, note: str = "") -> None:
    """Draw a bold title with a grey line below it."""
    axes.set_title(title, pad=TITLE_PAD)
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
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def diagonal(axes: Axes) -> None:
    """Draw the line on which predictions equal measurements."""
    axes.axline((0, 0), slope=1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=3)


def robust_range(values: NDArray[np.floating]) -> tuple[float, float]:
    """Return a range that holds nearly all values; a few extreme ones do not squeeze the rest."""
    many = len(values) >= MANY_STRAINS
    low, high = np.quantile(values, [0.0005, 0.9995]) if many else (values.min(), values.max())
    pad = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return float(low - pad), float(high + pad)


def number(value: float) -> str:
    """Format a number with three decimals, or return a word for an undefined one."""
    # Adding zero turns a rounded −0.000 into 0.000.
    return f"{round(value, 3) + 0.0:.3f}".replace("-", "−") if math.isfinite(value) else "undefined"


def amount(value: float, measured: NDArray[np.floating]) -> str:
    """Format a number in units of a phenotype, with three decimals, or with three digits for very small or large ones.

    The spread of what was ``measured`` decides.
    """
    spread = float(measured.std())
    return f"{value:.3g}".replace("-", "−") if 0 < spread < 0.01 or spread >= 1e4 else number(value)


def count_axis(axes: Axes) -> None:
    """Show whole numbers on the vertical axis, in thousands with commas."""
    from matplotlib.ticker import MaxNLocator

    if axes.get_yscale() == "linear":
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("strains")


HEXAGONS = (48, 20)  # regular in a panel that is about 1.4 times as wide as high
FEW_STRAINS = 200
FEWEST_COUNTED = 30
"""Fewer strains than these are drawn one by one, and not counted in bins."""
Range = tuple[float, float]
Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Hexagons:
    """Hold counts of strains in a lattice of hexagons.

    Attributes:
        x, y: [C] centres of the hexagons that hold any strain.
        counts: [C] number of strains in each hexagon.
        width, height: distances of neighbouring centres along x, and along y of every second row.
    """

    x: Floats
    y: Floats
    counts: NDArray[np.int64]
    width: float
    height: float


def hexagons(x: Floats, y: Floats, x_range: Range, y_range: Range) -> Hexagons:
    """Count the points within both ranges by the nearest centre of a hexagonal lattice.

    The lattice is two rectangular ones, shifted by half a cell against each other (Carr et al. 1987,
    doi:10.1080/01621459.1987.10478445).
    """
    inside = (x >= x_range[0]) & (x <= x_range[1]) & (y >= y_range[0]) & (y <= y_range[1])
    width, height = (x_range[1] - x_range[0]) / HEXAGONS[0], (y_range[1] - y_range[0]) / HEXAGONS[1]
    u, v = (x[inside] - x_range[0]) / width, (y[inside] - y_range[0]) / height
    whole, half = np.stack([np.round(u), np.round(v)]), np.stack([np.floor(u) + 0.5, np.floor(v) + 0.5])
    scale = np.array([[1.0], [3.0]])  # a regular hexagon's rows lie √3 times as far apart as its columns
    to_whole = (scale * (np.stack([u, v]) - whole) ** 2).sum(0)
    to_half = (scale * (np.stack([u, v]) - half) ** 2).sum(0)
    centres, counts = np.unique(np.where(to_whole < to_half, whole, half), axis=1, return_counts=True)
    return Hexagons(x_range[0] + centres[0] * width, y_range[0] + centres[1] * height, counts, width, height)


def sample(count: int, points: int, seed: int = 0) -> NDArray[np.int64]:
    """Return ascending positions of at most ``points`` of ``count`` things, the same for the same seed."""
    if count <= points:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, points, replace=False))


def draw_density(
    axes: Axes, x: Floats, y: Floats, x_range: Range, y_range: Range, points: int, counted: str = "strains"
) -> None:
    """Draw at most ``points`` points; hexagons of all where there are many, which say what is counted."""
    if len(x) < MANY_STRAINS:
        shown = sample(len(x), points)
        few = len(shown) < FEW_STRAINS
        axes.scatter(x[shown], y[shown], s=30 if few else 10, alpha=0.85 if few else 0.4, color=BLUE, linewidths=0)
    else:
        _draw_hexagons(axes, hexagons(x, y, x_range, y_range), counted)
    axes.set(xlim=x_range, ylim=y_range)
    axes.locator_params(axis="x", nbins=6)


def draw_strip(axes: Axes, rows: Mapping[str, tuple[Floats, str]]) -> None:
    """Draw every value as a point, a row for each name.

    This is for strains that are too few to be counted in bins.

    Args:
        rows: name → values and their colour, from the top.
    """
    for height, (values, color) in zip(range(len(rows), 0, -1), rows.values(), strict=True):
        # Points of the same value are stacked on each other.
        order = np.argsort(values, kind="stable")
        same = np.concatenate([[0], np.cumsum(np.diff(values[order]) != 0)])
        place = np.arange(len(values)) - np.searchsorted(same, same)
        heights = height + 0.5 * place / max(1, int(place.max()))
        axes.scatter(values[order], heights, s=30, alpha=0.7, color=color, linewidths=0)
    axes.set_yticks(range(len(rows), 0, -1), list(rows))
    axes.set_ylim(0.4, len(rows) + 0.7)


def _draw_hexagons(axes: Axes, found: Hexagons, counted: str) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import LogNorm
    from matplotlib.transforms import AffineDeltaTransform

    corners = np.array([[0.5, -0.5], [0.5, 0.5], [0.0, 1.0], [-0.5, 0.5], [-0.5, -0.5], [0.0, -1.0]])
    cells = PolyCollection(
        [corners * [found.width, found.height / 3]],
        offsets=np.column_stack([found.x, found.y]),
        offset_transform=AffineDeltaTransform(axes.transData),  # type: ignore[arg-type]
        cmap=DENSITY,
        norm=LogNorm(1, max(2, int(found.counts.max(initial=1)))),
        edgecolors="face",
        linewidths=0.1,
    )
    cells.set_array(found.counts)
    axes.add_collection(cells, autolim=False)
    bar = axes.figure.colorbar(cells, ax=axes, pad=0.015, aspect=32, format="{x:,.0f}")
    bar.set_label(f"{counted} per cell")
    bar.outline.set_visible(False)


WIDTH, HEIGHT = 3.7, 2.75
DPI = 230
FORMATS = ("png", "svg")


@dataclass(frozen=True)
class Table:
    """Hold a table of numbers.

    Attributes:
        rows: rows with one value per column; NaN where undefined.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]

    def write(self, path: Path) -> None:
        """Write a CSV file with empty cells where a value is undefined."""
        with atomic_file(path) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows([_cell(value) for value in row] for row in self.rows)


@dataclass(frozen=True)
class Panel:
    """Describe one picture of a report.

    Attributes:
        key: stem of the picture's files.
        width, height: width and height in inches.
    """

    key: str
    title: str
    caption: str
    table: Table
    draw: Callable[[Axes], None]
    width: float = WIDTH
    height: float = HEIGHT


def render(panel: Panel, formats: Iterable[str] = ("png",)) -> dict[str, bytes]:
    """Draw a panel, and return format → file."""
    figure = new_figure(panel.width, panel.height, DPI)
    import matplotlib

    with matplotlib.rc_context(STYLE):
        panel.draw(figure.subplots())
        fit_margins(figure)
        return {kind: encode(figure, kind) for kind in formats}


def write_panel(panel: Panel, folder: Path) -> bytes:
    """Write a panel into ``folder`` as PNG and SVG, and the numbers behind it as CSV; return the PNG file."""
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
