"""Draw what all pictures have: colours, headings, names and numbers; and write a picture as a file."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.files.atomic import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Okabe and Ito's palette, distinguishable with every common colour blindness.
BLUE, ORANGE, GREEN, PURPLE, VERMILION = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00"
SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)
INK, GREY, LIGHT = "#222222", "#707070", "#C9CDD2"
NAME_LENGTH = 22
TITLE_PAD = 19  # points between a title and its axes, for the line below it
MANY_STRAINS = 3000
DPI = 150
STYLE = {
    "font.size": 8,
    "axes.titlesize": 9.5,
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
}


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure of a size in inches, without any display.

    Draw on it within ``matplotlib.rc_context(STYLE)``.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI)


def encode(figure: Figure) -> bytes:
    """Return the figure as a PNG file; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", pil_kwargs={"compress_level": 9})
    return buffer.getvalue()


def save(content: bytes, path: Path) -> None:
    """Write a picture, whole or not at all."""
    with atomic_file(path) as partial:
        partial.write_bytes(content)


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


def sample(count: int, points: int, seed: int = 0) -> NDArray[np.int64]:
    """Return ascending positions of at most ``points`` of ``count`` things, the same for the same seed."""
    if count <= points:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, points, replace=False))
