"""Exclusive times: every moment of a step belongs to one component, the innermost that was open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dglcell.errors import DataError
from dglcell.profiling.components import REST, component_of, is_step
from dglcell.profiling.trace import Event


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
