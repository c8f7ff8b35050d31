"""A trace of ``torch.profiler``, read: which part of a step its time goes to."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from dglcell.machine.parts import PARTS

WAITING = "communication"
LEAVES = ("backward", WAITING)
"""In these nothing but waiting is told apart: what is computed once more for gradients is part of them."""

STEP = "step"
"""The name of ranges around steps."""

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of a GPU's work."""

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Traced:
    """What a trace says of its steps.

    Attributes:
        shares: part or `part/name` → its share of the steps' time, without what is told apart in it.
        bytes_to_device: copied from the host in a step.
        synchronisations: times that the host waited for a GPU in a step; None without a GPU.
    """

    shares: dict[str, float]
    bytes_to_device: int
    synchronisations: int | None


def read_trace(path: Path, seconds: float) -> Traced:
    """Divide the steps of a trace among their parts.

    The times are the host's. On a GPU they are those of its kernels and copies, which belong to the part that launched
    them; when it had nothing to do is part of ``other``.

    Args:
        path: of the trace, compressed by gzip.
        seconds: that a step takes where nobody looks.
    """
    with gzip.open(path) as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
    steps = [event for event in events if event["name"] == STEP and event["cat"] == "user_annotation"]
    turns = _turns(events, steps)
    work = [event for event in events if event["cat"] in ON_DEVICE]
    calls = [event for event in events if event["cat"] in ("cuda_runtime", "cuda_driver") and _part_at(turns, event)]
    times: dict[str, float] = defaultdict(float)
    if work:
        launched = {event["args"].get("correlation"): _part_at(turns, event) for event in calls}
        work = [event for event in work if event["args"].get("correlation") in launched]
        for event in work:
            times[str(launched[event["args"]["correlation"]])] += event["dur"]
        times["other"] += max(0.0, 1e6 * seconds * len(steps) - sum(times.values()))
    else:
        for (start, name), (end, _) in pairwise(turns):
            if name is not None:
                times[name] += end - start
    copied = sum(event["args"].get("bytes", 0) for event in work if event["name"].startswith("Memcpy HtoD"))
    waits = sum(event["name"].endswith("Synchronize") for event in calls)
    shares = {name: time / sum(times.values()) for name, time in times.items()}
    return Traced(shares, round(copied / len(steps)), round(waits / len(steps)) if work else None)


def _turns(events: Iterable[Event], steps: list[Event]) -> list[tuple[float, str | None]]:
    """Moments in µs, in their order, and the innermost part from each of them on; None outside of steps."""
    thread = steps[0]["tid"]
    ranges = [(event["ts"], event["dur"], "other") for event in steps]
    ranges += [
        (event["ts"], event["dur"], event["name"])
        for event in events
        if event["cat"] == "user_annotation"
        and event["name"].partition("/")[0] in PARTS
        # What other threads do is part of what this one waits in.
        and (event["tid"] == thread or event["name"] == WAITING)
    ]
    turns: list[tuple[float, str | None]] = []
    around: list[tuple[float, str]] = []  # ends and names of what has begun

    def close(until: float) -> None:
        while around and around[-1][0] <= until:
            end, _ = around.pop()
            turns.append((end, around[-1][1] if around else None))

    for start, duration, name in sorted(ranges, key=lambda each: (each[0], -each[1])):
        close(start)
        end = start + duration
        if around and around[-1][1] in LEAVES:
            if name != WAITING:
                continue
            end = around[-1][0]  # the last gradients are there: what is left of the backward pass is waiting
        if around or name == "other":
            around.append((end, name))
            turns.append((start, name))
    close(float("inf"))
    return turns


def _part_at(turns: list[tuple[float, str | None]], event: Event) -> str | None:
    """The innermost part when an event begins; None outside of steps."""
    number = bisect_right(turns, event["ts"], key=lambda turn: turn[0])
    return turns[number - 1][1] if number else None
