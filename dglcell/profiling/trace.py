"""Traces as chrome://tracing and https://ui.perfetto.dev open them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dglcell.errors import DataError
from dglcell.files import DAMAGE, atomic_file, open_text
from dglcell.profiling.spans import Span

DEVICE_CATEGORIES = ("gpu_user_annotation", "kernel", "gpu_memcpy", "gpu_memset")
"""Of PyTorch's profiler: what a GPU did, beside what the host did."""


class Event(NamedTuple):
    """A complete event of a trace.

    Attributes:
        thread: process and thread.
        start, end: nanoseconds from an arbitrary origin.
    """

    name: str
    thread: tuple[str, str]
    start: int
    end: int


def write_trace(path: Path, spans: Sequence[Span], about: dict[str, Any]) -> None:
    """Write spans as a gzipped trace, atomically.

    Args:
        path: ends in ``.json.gz``.
        spans: of one thread.
        about: shown as the trace's metadata.
    """
    origin = min((span.start for span in spans), default=0)
    events = [
        {
            "name": span.name,
            "cat": "dglcell",
            "ph": "X",
            # Microseconds, by the format.
            "ts": (span.start - origin) / 1000,
            "dur": (span.end - span.start) / 1000,
            "pid": 0,
            "tid": 0,
        }
        for span in sorted(spans, key=lambda span: (span.start, -span.end))
    ]
    content = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}
    with atomic_file(path) as partial, gzip.open(partial, "wt", encoding="utf-8") as file:
        json.dump(content, file)


def read_trace(path: Path) -> list[Event]:
    """The complete events (`"ph": "X"`) of the host in a trace, plain or gzipped, from this package or from PyTorch.

    Raises:
        DataError: the file is no trace.
    """
    try:
        with open_text(path) as file:
            content = json.load(file)
        events = content["traceEvents"] if isinstance(content, dict) else content
        return [_event(event) for event in events if event["ph"] == "X" and event.get("cat") not in DEVICE_CATEGORIES]
    except (ValueError, KeyError, TypeError, AttributeError, *DAMAGE) as error:
        raise DataError(
            f"'{path}' is no trace",
            got=f"{type(error).__name__}: {error}",
            expected='JSON with "traceEvents", plain or .gz',
        ) from error


def _event(event: dict[str, Any]) -> Event:
    start = round(float(event["ts"]) * 1000)
    end = start + round(float(event.get("dur", 0)) * 1000)
    return Event(str(event["name"]), (str(event.get("pid")), str(event.get("tid"))), start, end)
