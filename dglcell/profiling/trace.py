"""Read a trace of ``torch.profiler`` and divide the time of steps among their parts."""

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
"""Only waiting is told apart inside these parts: values computed again for gradients belong to the part itself."""

STEP = "step"
"""Ranges around steps have this name."""

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
"""Events of these categories are work of a GPU."""

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Traced:
    """This holds the figures that a trace gives for its steps.

    Attributes:
        shares: part or `part/name` → its share of the steps' time, without the parts inside it.
        bytes_to_device: number of bytes copied from the host to the device in a step.
        synchronisations: number of times that the host waited for a GPU in a step; None without a GPU.
    """

    shares: dict[str, float]
    bytes_to_device: int
    synchronisations: int | None


def read_trace(path: Path, seconds: float) -> Traced:
    """Divide the steps of a trace among their parts.

    The times are the host's. On a GPU they are those of its kernels and copies, which belong to the part that launched
    them; the time in which the GPU was idle belongs to ``other``.

    Args:
        path: path of the trace, compressed by gzip.
        seconds: time of a step without the profiler.
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
    """Return moments in µs, ascending, with the innermost part from each of them on; it is None outside of steps."""
    thread = steps[0]["tid"]
    ranges = [(event["ts"], event["dur"], "other") for event in steps]
    ranges += [
        (event["ts"], event["dur"], event["name"])
        for event in events
        if event["cat"] == "user_annotation"
        and event["name"].partition("/")[0] in PARTS
        # The work of other threads counts for the part in which this thread waits for them.
        and (event["tid"] == thread or event["name"] == WAITING)
    ]
    turns: list[tuple[float, str | None]] = []
    around: list[tuple[float, str]] = []  # ends and names of the parts that have begun

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
            end = around[-1][0]  # the last gradients are there, so the rest of the backward pass is waiting
        if around or name == "other":
            around.append((end, name))
            turns.append((start, name))
    close(float("inf"))
    return turns


def _part_at(turns: list[tuple[float, str | None]], event: Event) -> str | None:
    """Return the innermost part when an event begins; None outside of steps."""
    number = bisect_right(turns, event["ts"], key=lambda turn: turn[0])
    return turns[number - 1][1] if number else None
