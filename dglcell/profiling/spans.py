"""Spans of time: clocks of CPU and GPU, what is recorded, and where in the model."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

import torch
import torch.distributed as dist
from torch import nn

from dglcell.losses.loss import Loss
from dglcell.models import hetero_cell, set_operator
from dglcell.models.encoder import CellEncoder
from dglcell.models.model import StrainModel
from dglcell.models.set_operator import DeletionAttention
from dglcell.nn import dango
from dglcell.nn.dango import MetaEmbedding, NetworkEncoder, Reconstruction, ReleasedSAGNN
from dglcell.nn.heads import AttentionPooling, Combination, HyperSAGNN, LocalHead
from dglcell.nn.hetero_layer import Conv, RelationConv

# What time is read from: the host's clock, or the progress of a device's queue.


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


# Named, nested stretches of time on one thread.


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


# Where spans are put: around methods of a task's modules, and functions that models call.
#
# The package's own code knows nothing of it. Each point is replaced by one that opens a span, and put back afterwards.


MODULES: tuple[tuple[type[nn.Module], str], ...] = (
    (StrainModel, "other/model"),
    (CellEncoder, "updates"),
    (NetworkEncoder, "updates"),
    (MetaEmbedding, "updates"),
    (AttentionPooling, "pooling"),
    (DeletionAttention, "heads"),
    (LocalHead, "heads"),
    (HyperSAGNN, "heads"),
    (ReleasedSAGNN, "heads"),
    (Combination, "heads"),
    (Reconstruction, "loss/reconstruction"),
    (Loss, "loss"),
)
"""What the forward pass of a module is, less the modules in it."""

MEMBERS: tuple[tuple[type[nn.Module], str, str], ...] = (
    (StrainModel, "global_head", "heads"),
    (AttentionPooling, "gate", "pooling"),
    (AttentionPooling, "value", "pooling"),
)
"""Modules of general types, by the name that their owners give them."""

FUNCTIONS: tuple[tuple[Any, str, str], ...] = (
    (hetero_cell, "perturb", "perturbation"),
    (set_operator, "perturb", "perturbation"),
    (set_operator, "keep_genes", "perturbation"),
    (set_operator, "pooling_shares", "pooling"),
)
"""Functions, in the modules that call them."""

COLLECTIVES = ("all_reduce", "all_gather")

Name = str | Callable[..., str]


@contextmanager
def spans_in(task: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Open spans while ``task`` runs."""
    with ExitStack() as stack:

        def put(owner: Any, attribute: str, name: Name, *, anywhere: bool = False) -> None:
            stack.enter_context(spanned(recorder, owner, attribute, name, anywhere=anywhere))

        for module in task.modules():
            for kind, name in MODULES:
                if isinstance(module, kind):
                    put(module, "forward", name)
            for kind, member, name in MEMBERS:
                if isinstance(module, kind) and isinstance(getattr(module, member, None), nn.Module):
                    put(getattr(module, member), "forward", name)
            if isinstance(module, RelationConv):
                put(module.conv, "receive", f"aggregation/{_relation_of(cast(Conv, module.conv))}")
        for owner, function, name in FUNCTIONS:
            put(owner, function, name)
        put(dango, "spmm", lambda edges, *_, **__: f"aggregation/{edges.relation[1]}")
        for collective in COLLECTIVES:
            put(dist, collective, "communication", anywhere=True)
        yield


@contextmanager
def spanned(recorder: Recorder, owner: Any, attribute: str, name: Name, *, anywhere: bool = False) -> Iterator[None]:
    """Let a method of one object, or a function of one module, open a span.

    Args:
        recorder: of the span.
        owner: object or module.
        attribute: of the owner.
        name: of the span, or what it is for given arguments.
        anywhere: see ``Recorder.open``.
    """
    function, own = getattr(owner, attribute), vars(owner).get(attribute)

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with recorder.span(name if isinstance(name, str) else name(*args, **kwargs), anywhere=anywhere):
            return function(*args, **kwargs)

    setattr(owner, attribute, inside)
    try:
        yield
    finally:
        # A method was the class's, not the object's own.
        if own is None:
            delattr(owner, attribute)
        else:
            setattr(owner, attribute, own)


def _relation_of(conv: Any) -> str:
    name: str = conv.relation[1]
    return name
