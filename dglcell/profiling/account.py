"""From a trace to the time that each component takes alone."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dglcell.errors import DataError
from dglcell.files import DAMAGE, atomic_file, open_text
from dglcell.profiling.spans import STEP, Span

# Traces as chrome://tracing and https://ui.perfetto.dev open them.


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


# The parts that a training step's time is divided into.


COMPONENTS = {
    "data": "waiting for the next batch and gathering it on the device",
    "perturbation": "from deleted genes to the strains' graphs",
    "aggregation": "along the edges of each relation, with the projections of attention",
    "updates": "row-wise networks: embeddings, convolutions' MLPs, norms, combination of relations",
    "pooling": "from node states to strains",
    "heads": "from pooled states and deleted genes to predictions",
    "loss": "with the reconstructions that it reads",
    "backward": "gradients, with what is computed once more for them",
    "optimiser": "zeroing and clipping gradients, the optimiser's step, the schedule",
    "communication": "waiting for other processes",
    "other": "the model's and the training loop's own code",
}
"""Component → what it is. Names of spans are these, or `component/part`."""

REST = "other/loop"

TORCH_PREFIXES = {
    "Optimizer.step#": "optimiser",
    "Optimizer.zero_grad#": "optimiser",
    "enumerate(DataLoader)#": "data",
    "autograd::engine::evaluate_function": "backward",
    "nccl:": "communication",
    "gloo:": "communication",
    "c10d::": "communication",
}
"""What PyTorch's own profiler calls some of them. Its `ProfilerStep#…` is the step, and part of no component."""

TORCH_STEP = "ProfilerStep#"


def is_step(name: str) -> bool:
    """Whether an event of a trace is a whole step."""
    return name == STEP or name.startswith(TORCH_STEP)


def component_of(name: str) -> str | None:
    """The component, with its part, that an event of a trace is; None for whatever surrounds it."""
    if name.partition("/")[0] in COMPONENTS:
        return name
    return next((component for prefix, component in TORCH_PREFIXES.items() if name.startswith(prefix)), None)


def whole(name: str) -> str:
    """The component of `component/part`."""
    return name.partition("/")[0]


# Exclusive times: every moment of a step belongs to one component, the innermost that was open.


@dataclass(frozen=True)
class Accounting:
    """Where the time of some steps went.

    Attributes:
        steps: nanoseconds of each.
        times: component or `component/part` → nanoseconds over all steps; their sum is that of ``steps``.
    """

    steps: tuple[int, ...]
    times: dict[str, int]

    @property
    def wall(self) -> int:
        """Nanoseconds of all steps."""
        return sum(self.steps)


def account(events: Iterable[Event]) -> Accounting:
    """Divide the steps of a trace.

    An event's own time is its duration less that of the events in it. Those that name no component are part of what
    they are in. Only the thread that runs the steps is looked at: what others do meanwhile, it either waits for, which
    is counted where it waits, or it does not, which costs it nothing.

    Args:
        events: of any number of threads.

    Raises:
        DataError: there is no step among them.
    """
    mine = _of_stepping_thread(list(events))
    # An event and the one it is in may begin together: the longer one is around the other.
    mine.sort(key=lambda event: (event.start, -event.end))
    times: Counter[str] = Counter()
    steps: list[int] = []
    around: list[tuple[str, int]] = []
    for event in mine:
        while around and around[-1][1] <= event.start:
            around.pop()
        if not around:
            if not is_step(event.name):
                continue
            steps.append(event.end - event.start)
            times[REST] += event.end - event.start
            around.append((REST, event.end))
            continue
        outer, outer_end = around[-1]
        # Clocks are read one after the other: an event may seem to outlast what it is in.
        end = min(event.end, outer_end)
        name = component_of(event.name) or outer
        times[outer] -= end - event.start
        times[name] += end - event.start
        around.append((name, end))
    return Accounting(tuple(steps), dict(times))


def _of_stepping_thread(events: Sequence[Event]) -> list[Event]:
    """The events of the thread in which steps take the most time."""
    durations: Counter[tuple[str, str]] = Counter()
    for event in events:
        if is_step(event.name):
            durations[event.thread] += event.end - event.start
    if not durations:
        raise DataError("the trace has no steps", expected="events named `step`, or `ProfilerStep#…` of PyTorch")
    thread = max(durations, key=lambda thread: durations[thread])
    return [event for event in events if event.thread == thread]
