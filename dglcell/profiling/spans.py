"""Which component of a step the time goes to: clocks, spans that are open, and where in the model they begin."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from dglcell.losses.loss import Loss
from dglcell.models import hetero_cell, set_operator
from dglcell.models.encoder import CellEncoder
from dglcell.models.model import StrainModel
from dglcell.models.set_operator import DeletionAttention
from dglcell.nn import dango
from dglcell.nn.dango import MetaEmbedding, NetworkEncoder, Reconstruction, ReleasedSAGNN
from dglcell.nn.heads import AttentionPooling, Combination, HyperSAGNN, LocalHead
from dglcell.nn.hetero_layer import RelationConv
from dglcell.perturbation.perturb import PerturbedCell

# What time is read from: the host's clock, or the progress of a GPU's queue.


class HostClock:
    """The wall clock of the calling process, which is right where operators return when they are done, as on a CPU.

    Attributes:
        title: what its times mean, for readers.
    """

    title = "host"

    def mark(self) -> Any:
        """Remember this moment, without waiting for anything."""
        return time.perf_counter_ns()

    def nanoseconds(self, marks: Sequence[Any]) -> list[int]:
        """When the marks were, from an arbitrary origin."""
        return list(marks)


class StreamClock(HostClock):
    """When a GPU's current stream comes to a mark.

    The host runs ahead of the device and only enqueues work, so its own clock would show neither. Between two marks
    lies the work that was enqueued between them, and the time in which the device had nothing to do because the host
    was late with it. Nothing is synchronised until the times are read.
    """

    title = "device stream"

    def mark(self) -> Any:
        """An event in the stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def nanoseconds(self, marks: Sequence[Any]) -> list[int]:
        """When the marks were, from the first of them; waits for the device."""
        torch.cuda.synchronize()
        return [round(marks[0].elapsed_time(mark) * 1e6) for mark in marks]


def clock_of(device: torch.device) -> HostClock:
    """The clock that shows where a device's time goes."""
    return StreamClock() if device.type == "cuda" else HostClock()


# Steps, divided among components: at every moment the time goes to the span that began last and has not ended.


COMPONENTS = (
    "data",  # waiting for the next batch, and gathering it on the device
    "perturbation",  # from deleted genes to the strains' graphs
    "aggregation",  # along the edges of each relation, with the projections of attention
    "updates",  # row-wise networks: embeddings, convolutions' MLPs, norms, combination of relations
    "pooling",  # from node states to strains
    "heads",  # from pooled states and deleted genes to predictions
    "loss",  # with the reconstructions that it reads
    "backward",  # gradients, with what is computed once more for them
    "optimiser",  # zeroing and clipping gradients, the optimiser's step, the schedule
    "communication",  # waiting for other processes
    "other",  # the model's and the training loop's own code
)
"""The parts of a step, in its order. Names of spans are these, or `component/part`."""

STEP = "step"
REST = "other/loop"

WAITING = "communication"
"""Also told apart in a leaf, and where another thread begins it, for which the recording one waits."""

LEAVES = ("backward", WAITING)
"""In these nothing but waiting is told apart: what is computed once more for gradients is part of them."""


@dataclass(eq=False)
class Span:
    """A stretch of time that has begun.

    Attributes:
        name: what its own time is counted as: a component or `component/part`.
        range: the same in a trace of PyTorch's profiler; None where none is written.
    """

    name: str
    range: record_function | None


class Recorder:
    """Records the steps of one thread, and what they consist of.

    What other threads do while the recording one waits for them is part of what it waits in: spans that they open are
    ignored, so that no time is counted twice.

    Args:
        clock: where times come from.

    Attributes:
        tracing: whether spans are shown to PyTorch's profiler, too, which costs some microseconds for each.
    """

    def __init__(self, clock: HostClock) -> None:
        self.clock, self.tracing = clock, False
        self._thread = threading.get_ident()
        self._open: list[Span] = []
        # What time goes to from a moment on, None outside of steps; the moment; and whether a step begins then.
        self._turns: list[tuple[str | None, Any, bool]] = []

    def step(self) -> None:
        """End the step that is open, with all in it, and begin the next at the same moment."""
        self._end(0)
        self._open.append(Span(REST, self._range(STEP)))
        self._turn(begins=True)

    def stop(self) -> None:
        """End the step that is open; spans outside of steps are not recorded."""
        self._end(0)
        self._turn()

    def open(self, name: str) -> Span | None:
        """Begin a span.

        Args:
            name: a component or `component/part`.

        Returns:
            what ``close`` takes; None where the span is part of the one that is open, or outside of a step.
        """
        mine = threading.get_ident() == self._thread
        if not self._open or (name != WAITING and (not mine or self._open[-1].name in LEAVES)):
            return None
        # A range of PyTorch's ends in the thread in which it began.
        span = Span(name, self._range(name) if mine else None)
        self._open.append(span)
        self._turn()
        return span

    def close(self, span: Span | None) -> None:
        """End a span, and those in it that are still open; None and what has ended are left alone."""
        if span in self._open:
            self._end(self._open.index(span))
            self._turn()

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record what happens inside; see ``open``."""
        span = self.open(name)
        try:
            yield
        finally:
            self.close(span)

    def divide(self) -> tuple[list[int], dict[str, int]]:
        """Where the time of the steps that have ended went; on a GPU this waits until they are done.

        Returns:
            the nanoseconds of each step; and those of every component or `component/part` in all steps, whose sum is
            that of the steps.
        """
        steps: list[int] = []
        times: Counter[str] = Counter()
        moments = pairwise(self.clock.nanoseconds([moment for _, moment, _ in self._turns]))
        for (name, _, begins), (start, end) in zip(self._turns, moments, strict=False):
            if name is not None:
                steps += [0] if begins else []
                steps[-1] += end - start
                times[name] += end - start
        return steps, dict(times)

    def _range(self, name: str) -> record_function | None:
        return record_function(name).__enter__() if self.tracing else None

    def _turn(self, *, begins: bool = False) -> None:
        self._turns.append((self._open[-1].name if self._open else None, self.clock.mark(), begins))

    def _end(self, position: int) -> None:
        for span in reversed(self._open[position:]):
            if span.range is not None:
                span.range.__exit__(None, None, None)
        del self._open[position:]


# Where spans begin: around methods of a task's modules, and functions that models call.
#
# The package's own code knows nothing of it. Each is replaced by one that opens a span, and put back afterwards.


MODULES: dict[str, tuple[type[nn.Module], ...]] = {
    "other/model": (StrainModel,),
    "updates": (CellEncoder, NetworkEncoder, MetaEmbedding),
    "pooling": (AttentionPooling,),
    "heads": (DeletionAttention, LocalHead, HyperSAGNN, ReleasedSAGNN, Combination),
    "loss/reconstruction": (Reconstruction,),
    "loss": (Loss,),
}
"""What the forward passes of modules are, less the modules in them."""

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
    (dist, "all_reduce", WAITING),
    (dist, "all_gather", WAITING),
)
"""Functions, in the modules that call them."""

Name = str | Callable[..., str]


@contextmanager
def spans_in(task: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Let the parts of a task open spans while they run.

    Args:
        task: its modules are changed while this lasts, as are functions that models call.
        recorder: records the spans.
    """
    replaced: list[tuple[Any, str, Any]] = []
    try:
        for owner, attribute, name in points(task):
            replaced.append((owner, attribute, vars(owner).get(attribute)))
            setattr(owner, attribute, spanned(getattr(owner, attribute), name, recorder))
        yield
    finally:
        for owner, attribute, own in reversed(replaced):
            # A method was the class's, not the object's own.
            if own is None:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, own)


def points(task: nn.Module) -> Iterator[tuple[Any, str, Name]]:
    """Where spans begin: an object or a module, the name of what it has there, and that of the span."""
    for module in task.modules():
        yield from ((module, "forward", name) for name, kinds in MODULES.items() if isinstance(module, kinds))
        for kind, member, name in MEMBERS:
            if isinstance(module, kind) and isinstance(getattr(module, member, None), nn.Module):
                yield getattr(module, member), "forward", name
        if isinstance(module, RelationConv):
            conv: Any = module.conv
            yield conv, "receive", f"aggregation/{conv.relation[1]}"
    yield from FUNCTIONS
    yield (
        PerturbedCell,
        "aggregate_along",
        lambda _, relations, *__: f"aggregation/{' + '.join(r[1] for r in relations)}",
    )
    yield dango, "spmm", lambda edges, *_, **__: f"aggregation/{edges.relation[1]}"


def spanned(function: Callable[..., Any], name: Name, recorder: Recorder) -> Callable[..., Any]:
    """A function that opens a span while it runs; what ``torch.compile`` compiles belongs to the span around it.

    Args:
        function: what is to be run.
        name: the span's name, or a function that gives it for the call's arguments.
        recorder: records the span.
    """

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        with recorder.span(name if isinstance(name, str) else name(*args, **kwargs)):
            return function(*args, **kwargs)

    return inside
