"""Write pages that need no other file: templates, pictures as data, and formatted numbers."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dglcell.files.atomic import atomic_file
from dglcell.metrics import ResultRow, format_metric
from dglcell.report.results_table import ResultsTable, results_tables

if TYPE_CHECKING:
    import jinja2


UNDEFINED = "–"


@dataclass(frozen=True)
class Grid:
    """Hold a table of texts.

    Attributes:
        rows: rows with one text per column.
        texts: number of columns from the left that are text; the others are numbers, set flush right.
    """

    columns: list[str]
    rows: list[list[str]]
    texts: int = 1


def data_uri(png: bytes) -> str:
    """Return a picture as text that a page holds."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def number(value: object, digits: int = 4) -> str:
    """Format a number: few digits, a true minus, ``–`` for an undefined one; anything else stays as it is."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return UNDEFINED
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    text = f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"
    return text.replace("-", "−") if "e" not in text else text


def write_page(template: str, path: Path, **content: Any) -> Path:
    """Fill a template and write the page, whole or not at all.

    Returns:
        ``path``.
    """
    page = _templates().get_template(template).render(**content)
    with atomic_file(path) as partial:
        partial.write_text(page, encoding="utf-8")
    return path


def _templates() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("dglcell.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


NOTE = (
    "* marks the best value of a column in its block. Null models are grey. They are fitted on the same split, and "
    "only kernel ridge uses networks."
)


def page_tables(rows: Sequence[ResultRow]) -> list[ResultsTable]:
    """Make one table for each kind of labels, with the blocks of the test part first."""
    return results_tables(sorted(rows, key=lambda row: row.part != "test"), format_value)  # the sort is stable


def format_value(metric: str, value: float) -> str:
    """Format a value as in a terminal, but with a true minus."""
    return format_metric(metric, value).replace("-", "−") if math.isfinite(value) else UNDEFINED
