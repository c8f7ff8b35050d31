"""Write reports of finished runs as single HTML files; here, how they show numbers."""

from __future__ import annotations

import math

from dglcell.metrics import format_metric

UNDEFINED = "–"


def number(value: object, digits: int = 4) -> str:
    """Format a number: few digits, a true minus, ``–`` for an undefined one; anything else stays as it is."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return UNDEFINED
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    text = f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"
    return text.replace("-", "−") if "e" not in text else text


def format_value(metric: str, value: float) -> str:
    """Format a value of a metric as in a terminal, but with a true minus."""
    return format_metric(metric, value).replace("-", "−") if math.isfinite(value) else UNDEFINED
