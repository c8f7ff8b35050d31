"""What time is read from: the host's clock, or the progress of a device's queue."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """Marks moments while a program runs, and says afterwards when they were.

    Attributes:
        title: what its times mean, for readers.
    """

    title: str

    def mark(self) -> Any:
        """Remember this moment, without waiting for anything."""

    def nanoseconds(self, marks: Sequence[Any]) -> list[int]:
        """When the marks were, from an arbitrary origin."""


class HostClock:
    """The wall clock of the calling process: right where operators return when they are done, as on a CPU."""

    title = "host"

    def mark(self) -> int:
        """Nanoseconds, monotonic."""
        return time.perf_counter_ns()

    def nanoseconds(self, marks: Sequence[int]) -> list[int]:
        """As they are."""
        return list(marks)


class StreamClock:
    """When a GPU's current stream comes to a mark.

    The host runs ahead of the device and only enqueues work, so its own clock would show neither. Between two marks
    lies the work that was enqueued between them, and the time in which the device had nothing to do because the host
    was late with it. Nothing is synchronised until the end.
    """

    title = "device stream"

    def __init__(self) -> None:
        self._first: torch.cuda.Event | None = None

    def mark(self) -> torch.cuda.Event:
        """An event in the stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._first = self._first or event
        return event

    def nanoseconds(self, marks: Sequence[torch.cuda.Event]) -> list[int]:
        """Since the first mark; waits for the device."""
        if self._first is None:
            return []
        torch.cuda.synchronize()
        return [round(self._first.elapsed_time(mark) * 1e6) for mark in marks]


def clock_of(device: torch.device) -> Clock:
    """The one that shows where a device's time goes."""
    return StreamClock() if device.type == "cuda" else HostClock()
