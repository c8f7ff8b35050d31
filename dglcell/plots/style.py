"""How pictures look: palette, type, headings, and what an empty panel says."""

from __future__ import annotations

import importlib.util
import io
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import MissingDependencyError
from dglcell.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, distinguishable with every common colour blindness.
BLUE, ORANGE, GREEN, PURPLE, VERMILION = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00"
SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)
DASHES = ("-", "--", ":", "-.")
INK, GREY, LIGHT = "#222222", "#707070", "#C9CDD2"
DENSITY, SIGNED = "viridis", "coolwarm"  # the latter is grey, not white, in the middle
NAME_LENGTH = 22
MANY_STRAINS = 3000
STYLE = {
    "font.size": 7.5,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
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


def check_plotting() -> None:
    """Refuse early what would fail after hours of training.

    Raises:
        MissingDependencyError: matplotlib or jinja2 is not installed.
    """
    missing = [name for name in ("matplotlib", "jinja2") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f"plots and reports need {' and '.join(missing)}, which is not installed",
            do="pip install 'dglcell[plot]', or set `plot: false` and `plot_every: 0`",
        )


def new_figure(width: float, height: float, dpi: float) -> Figure:
    """An empty figure of so many inches, without any display; draw on it within ``matplotlib.rc_context(STYLE)``.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    check_plotting()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi)
    FigureCanvasAgg(figure)
    return figure


def fit_margins(figure: Figure, pad: float = 0.06) -> None:
    """Make room for labels around the axes of a figure with a single row and column, with ``pad`` inches to spare.

    Does twice what matplotlib's layout engines do many times: the second time because narrower axes have other ticks.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()
    width, height = figure.get_size_inches()
    for _ in range(2):
        now, taken = figure.subplotpars, figure.get_tightbbox(renderer)  # the latter in inches
        # Whatever does not fit must not turn the axes inside out.
        left = min(now.left + (pad - taken.x0) / width, 0.7)
        bottom = min(now.bottom + (pad - taken.y0) / height, 0.7)
        figure.subplots_adjust(
            left=left,
            right=max(now.right + (width - pad - taken.x1) / width, left + 0.2),
            bottom=bottom,
            top=max(now.top + (height - pad - taken.y1) / height, bottom + 0.2),
        )


def encode(figure: Figure, kind: str) -> bytes:
    """The figure as a ``png`` or ``svg`` file; the same figure gives the same bytes.

    Draws once; ``savefig`` would draw twice.
    """
    buffer = io.BytesIO()
    if kind == "svg":
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
        return buffer.getvalue()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "png", dpi=(figure.dpi, figure.dpi))
    return buffer.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all, in the format of the name's suffix."""
    with atomic_file(path) as partial:
        partial.write_bytes(encode(figure, path.suffix.removeprefix(".")))


def shorten(name: str, length: int = NAME_LENGTH) -> str:
    """The name as text for matplotlib: cut in the middle if too long, dollar signs not taken for formulas."""
    if len(name) > length:
        head = (length - 1) // 2
        name = name[:head] + "…" + name[len(name) - (length - 1 - head) :]
    return name.replace("$", r"\$")


def with_unit(label: str, unit: str) -> str:
    """``label [unit]``, or the label alone if dimensionless."""
    return f"{label} [{shorten(unit)}]" if unit else label


def heading(axes: Axes, title: str, note: str = "") -> None:
    """A bold title with a grey line below it."""
    axes.set_title(title, pad=19)
    # Kept out of the layout, which would narrow the panel to make room for the line beside it.
    axes.annotate(
        note, (0, 1), (0, 6), "axes fraction", "offset points", color=GREY, va="bottom", in_layout=False,
        annotation_clip=False,
    )  # fmt: skip


def draw_nothing(axes: Axes, title: str, reason: str) -> None:
    """An empty panel that says why it is empty."""
    heading(axes, title)
    axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", va="center", color=GREY)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def diagonal(axes: Axes) -> None:
    """The line on which predictions equal measurements."""
    axes.axline((0, 0), slope=1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=3)


def robust_range(values: NDArray[np.floating]) -> tuple[float, float]:
    """A range that holds nearly all values; a few extreme ones do not squeeze the rest."""
    many = len(values) >= MANY_STRAINS
    low, high = np.quantile(values, [0.0005, 0.9995]) if many else (values.min(), values.max())
    pad = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return float(low - pad), float(high + pad)


def number(value: float) -> str:
    """Three decimals, or a word for what is undefined."""
    # Adding zero turns a rounded −0.000 into 0.000.
    return f"{round(value, 3) + 0.0:.3f}".replace("-", "−") if math.isfinite(value) else "undefined"


def count_axis(axes: Axes) -> None:
    """Whole numbers up the side, in thousands with commas."""
    from matplotlib.ticker import MaxNLocator

    if axes.get_yscale() == "linear":
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("strains")
