"""Named, nested stretches of time on one thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from dglcell.profiling.clocks import Clock

STEP = "step"


class Span(NamedTuple):
    """A stretch of time.

    Attributes:
        name: a component, see ``components``, or ``STEP``.
        start, end: nanoseconds from an arbitrary origin.
    """

    name: str
    start: int
    end: int


@dataclass
class OpenSpan:
    """One that has begun.

    Attributes:
        name: see ``Span``.
        leaf: what begins inside is part of it.
        start, end: marks of the clock.
    """

    name: str
    leaf: bool
    start: Any
    end: Any = None


class Recorder:
    """Records the steps of one thread, and what they consist of.

    What other threads do while the recording one waits for them is part of what it waits in: spans that they open are
    ignored, so that no time is counted twice.

    Args:
        clock: where times come from.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._thread = threading.get_ident()
        self._open: list[OpenSpan] = []
        self._closed: list[OpenSpan] = []

    def step(self) -> None:
        """End the step that is open, with all in it, and begin the next at the same moment."""
        moment = self.clock.mark()
        self._close_from(0, moment)
        self._open = [OpenSpan(STEP, leaf=False, start=moment)]

    def stop(self) -> None:
        """End the step that is open; spans outside of steps are not recorded."""
        self._close_from(0, self.clock.mark())

    def forget(self) -> None:
        """Drop what has been recorded, and the step that is open."""
        self._open, self._closed = [], []

    def open(self, name: str, *, leaf: bool = False, anywhere: bool = False) -> OpenSpan | None:
        """Begin a span.

        Args:
            name: component.
            leaf: nothing begins in it.
            anywhere: also begin it inside a leaf, and from another thread, for which the recording one waits.

        Returns:
            what ``close`` takes; None where the span is part of the one that is open, or outside of a step.
        """
        if not self._open or not (anywhere or (threading.get_ident() == self._thread and not self._open[-1].leaf)):
            return None
        span = OpenSpan(name, leaf, self.clock.mark())
        self._open.append(span)
        return span

    def close(self, span: OpenSpan | None) -> None:
        """End a span, and those in it that are still open."""
        for position, known in enumerate(self._open):
            if known is span:
                self._close_from(position, self.clock.mark())
                return

    @contextmanager
    def span(self, name: str, *, leaf: bool = False, anywhere: bool = False) -> Iterator[None]:
        """Record what happens inside; see ``open``."""
        span = self.open(name, leaf=leaf, anywhere=anywhere)
        try:
            yield
        finally:
            self.close(span)

    def spans(self) -> list[Span]:
        """All that have ended."""
        times = self.clock.nanoseconds([mark for span in self._closed for mark in (span.start, span.end)])
        pairs = zip(self._closed, times[::2], times[1::2], strict=True)
        return [Span(span.name, start, end) for span, start, end in pairs]

    def _close_from(self, position: int, moment: Any) -> None:
        for span in self._open[position:]:
            span.end = moment
            self._closed.append(span)
        del self._open[position:]
