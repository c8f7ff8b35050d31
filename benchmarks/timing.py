"""Time steps, with clocks, ceilings, processes and memory of their own, and describe the machine."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import os
import pickle
import resource
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from benchmarks.workload import BenchOptions
from dglcell.errors import DglcellError
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import GENE, Relation
from dglcell.machine.devices import available_memory
from dglcell.machine.memory import status
from dglcell.machine.processor import processor_name
from dglcell.models.config import HeteroCellConfig
from dglcell.runs.usage import environment, version_of

# These functions time a step, with as many repetitions as fit into a budget of time.


MOST_STEPS = 200
LEAST_STEPS = 3
LONG_STEP = 6
"""A first step may take so many budgets for a second one to follow it."""


@dataclass(frozen=True)
class Timing:
    """This is the wall time of repeated steps, until the device's work is done.

    Attributes:
        first: seconds of the first step, which also builds, compiles and touches memory anew.
        seconds: seconds of each timed step.
        warm_up: number of steps that were not counted.
    """

    first: float
    seconds: tuple[float, ...]
    warm_up: int

    @property
    def median(self) -> float:
        """Return the median of seconds per step."""
        return statistics.median(self.seconds)


def clock(step: Callable[[], object], budget: float, device: str, *, first_counts: bool = True) -> Timing:
    """Repeat ``step`` for about ``budget`` seconds.

    Two steps warm up. A step of more than a budget is timed once, after one to warm up; one of more than
    ``LONG_STEP`` budgets is its own measurement, which says more than the hour it would take to repeat it.

    Args:
        step: what is timed.
        budget: seconds.
        device: device whose queue is waited for.
        first_counts: whether the first step can be that measurement; not where it compiles.
    """
    first = _seconds(step, device)
    if first > LONG_STEP * budget and first_counts:
        return Timing(first, (first,), warm_up=0)
    if first > budget:
        return Timing(first, (_seconds(step, device),), warm_up=1)
    second = _seconds(step, device)
    seconds = [_seconds(step, device)]
    while len(seconds) < MOST_STEPS and (sum(seconds) < budget or (len(seconds) < LEAST_STEPS and second < budget)):
        seconds.append(_seconds(step, device))
    return Timing(first, tuple(seconds), warm_up=2)


def _seconds(step: Callable[[], object], device: str) -> float:
    synchronise(device)
    started = time.perf_counter()
    step()
    synchronise(device)
    return time.perf_counter() - started


def synchronise(device: str) -> None:
    """Wait for a GPU; a CPU has no queue."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


# These classes run a function in a fork of this process, so that neither leaves anything to the other.


T = TypeVar("T")

PR_SET_PDEATHSIG = 1  # of prctl(2)


class DiedError(RuntimeError):
    """A fork ended without a result.

    Attributes:
        killed: whether it was killed by the signal that the kernel's out-of-memory killer sends.
    """

    def __init__(self, status: int) -> None:
        number = os.waitstatus_to_exitcode(status)
        super().__init__(signal.Signals(-number).name if number < 0 else f"exit status {number}")
        self.killed = number == -signal.SIGKILL


class Isolation(Protocol):
    """An isolation says how methods are run."""

    def __call__(self, function: Callable[[], T]) -> T:
        """Return the result of ``function``."""


def in_this_process(function: Callable[[], T]) -> T:
    """Call the function here, as a GPU needs, whose driver does not survive a fork."""
    return function()


class Forked:
    """Run methods in a fork with the same cell graph, strains and settings, but a heap that no other method cut up.

    Before the first fork this process must compute with one thread and without gradients: neither OpenMP's threads nor
    autograd's survive.

    Args:
        threads: number of threads that forks compute with.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        torch.set_num_threads(1)

    def __call__(self, function: Callable[[], T]) -> T:
        """Return the result of ``function``, or raise its exception.

        Raises:
            DiedError: the fork was killed or crashed.
        """
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            self._child(function, read, write)
        os.close(write)
        try:
            with os.fdopen(read, "rb") as pipe:
                content = pipe.read()
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            _, status = os.waitpid(child, 0)
        if not content:
            raise DiedError(status)
        error, result = pickle.loads(content)
        if error is not None:
            raise error
        return result

    def _child(self, function: Callable[[], object], read: int, write: int) -> None:
        status = 1
        try:
            os.close(read)
            _die_with_parent()
            torch.set_num_threads(self.threads)
            content = pickle.dumps(_outcome(function))
            with os.fdopen(write, "wb") as pipe:
                pipe.write(content)
            status = 0
        finally:
            # Exit without cleaning up the parent's files, threads and buffers.
            os._exit(status)


def _die_with_parent() -> None:
    """Ask Linux to end this process when its parent ends, however that happens."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _outcome(function: Callable[[], object]) -> tuple[BaseException | None, object]:
    try:
        return None, function()
    except DglcellError as error:
        return error, None
    except BaseException as error:
        # The parent cannot see this process's frames.
        error.add_note(traceback.format_exc())
        return error, None


# A limit of memory that turns too much into an exception.


RESERVE = 0.03
"""This share of the available memory is left to others."""


class MemoryLimit:
    """Make allocations beyond what is really there fail, instead of waking the kernel's out-of-memory killer.

    Made before the first method runs, to know how much address space is reserved but never used (threads' stacks).

    Args:
        most: bytes that a method may take on top of what the process holds; None for what is available.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self._unused = max(0, (status("VmData") or 0) - (status("RssAnon") or 0))

    @contextmanager
    def on(self, device: str) -> Iterator[None]:
        """Limit memory inside the context, but not on a GPU, whose driver reserves address space as it likes."""
        room, resident = available_memory(), status("RssAnon")
        if torch.device(device).type == "cuda" or room is None or resident is None:
            yield
            return
        room = int(room * (1 - RESERVE)) if self.most is None else self.most
        old = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = resident + self._unused + room
        resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *(x for x in old if x != -1)]), old[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, old)


# These functions measure what the machine can do at most, and what a step would cost if nothing else limited it.


COPY_BYTES = 256 * 2**20
GEMM_SIZE = {"cpu": 2048, "cuda": 8192}


@dataclass(frozen=True)
class Ceilings:
    """Ceilings are measured here, on the same device, in the same precision, with the same threads.

    Attributes:
        copy_bytes_per_second: bytes read plus bytes written when copying 256 MiB.
        gemm_flops_per_second: operations per second of a square matrix product.
    """

    copy_bytes_per_second: float
    gemm_flops_per_second: float


def measure_ceilings(device: str, dtype: str, *, budget: float = 1.0) -> Ceilings:
    """Copy and multiply for ``budget`` seconds each; the best of them counts."""
    source = torch.ones(COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    copy = clock(lambda: target.copy_(source), budget, device)
    size = GEMM_SIZE[torch.device(device).type]
    matrix = torch.ones(size, size, dtype=getattr(torch, dtype), device=device)
    gemm = clock(lambda: matrix @ matrix, budget, device)
    return Ceilings(2 * COPY_BYTES / min(copy.seconds), 2 * size**3 / min(gemm.seconds))


def ideal_seconds(
    config: HeteroCellConfig, edges: dict[Relation, int], nodes: dict[str, int], batch: int, dtype: str, rates: Ceilings
) -> float:
    """Return the seconds of a step of plain node masks at the machine's ceilings, a yardstick that all methods share.

    Bytes: every aggregation reads one state of C = (B + 1) · H columns per edge, forward and backward, and those
    reads run at the copy rate. Flops: the Linear layers of all convolutions and of the pooling on all rows of all
    strains, forward once and backward twice, at the matrix product's rate. The two are added. A method is above 100 %
    where strains share work, or where the rows it gathers stay in cache.
    """
    strains, width = batch + 1, config.hidden
    size = torch.finfo(getattr(torch, dtype)).bits // 8
    gathered = 2 * config.layers * sum(edges.values()) * strains * width * size
    rows = sum(nodes[relation[2]] for relation in edges)
    hidden = config.gin_hidden or width
    per_row = 2 * width * width
    if config.conv == "gin":
        widths = [width] + [hidden] * (config.gin_layers - 1) + [width]
        per_row = sum(a * b for a, b in itertools.pairwise(widths))
    pooled = nodes[GENE] * width * (width + width // 2)
    flops = 3 * 2 * strains * (config.layers * rows * per_row + pooled)
    return gathered / rates.copy_bytes_per_second + flops / rates.gemm_flops_per_second


# Conditions say on what, for how long and within which limits methods are measured.


@dataclass(frozen=True)
class Conditions:
    """These conditions are the same for all methods.

    Attributes:
        device: ``cpu`` or ``cuda``.
        dtype: ``float32`` or ``bfloat16``.
        threads: number of threads that torch computes with.
        seconds_per_row: budget of timed repetitions.
        ceilings: ceilings of this machine.
        limit: limit of memory.
        isolation: where methods run.
    """

    device: str
    dtype: str
    threads: int
    seconds_per_row: float
    ceilings: Ceilings
    limit: MemoryLimit
    isolation: Isolation


def conditions(options: BenchOptions) -> Conditions:
    """Make the conditions asked for; on a CPU methods run in forks, unless that is not wanted or not possible.

    Must be made before this process has computed with several threads.
    """
    threads = options.threads or torch.get_num_threads()
    isolation: Isolation = in_this_process
    if options.device == "cpu" and not options.in_process and hasattr(os, "fork"):
        isolation = Forked(threads)
    else:
        torch.set_num_threads(threads)
    budget = min(1.0, options.seconds_per_row)
    ceilings = isolation(lambda: measure_ceilings(options.device, options.dtype, budget=budget))
    limit = MemoryLimit(options.memory_limit)
    return Conditions(options.device, options.dtype, threads, options.seconds_per_row, ceilings, limit, isolation)


# These functions describe the machine, versions and cell graph, as written beside the rows.


def describe_machine(command: str, cell: CellGraph, title: str, given: Conditions) -> dict[str, Any]:
    """Describe versions, device, memory, cell graph and ceilings as plain containers.

    Args:
        command: as typed.
        cell: the cell graph.
        title: where it came from.
        given: device, threads and ceilings.
    """
    about = environment(command)
    about["packages"]["torch_geometric"] = version_of("torch_geometric")
    degrees = {r[1]: _largest_degree(cell, r) for r in cell.relations if r[0] == r[2]}
    return {
        **about,
        "threads": given.threads,
        "device": torch.cuda.get_device_name() if torch.device(given.device).type == "cuda" else "cpu",
        "processor": processor_name(),
        "memory_available_bytes": available_memory(),
        "cell": title,
        "cell_sha256": cell.sha256,
        "nodes": cell.num_nodes,
        "relations": {r[1]: len(cell.edges(r)) for r in cell.relations},
        "largest_degrees": degrees,
        "ceilings": dataclasses.asdict(given.ceilings),
    }


def _largest_degree(cell: CellGraph, relation: tuple[str, str, str]) -> int:
    """Return the most edges of one node in both directions; its self-loop counts twice."""
    out, into = cell.degrees(relation)
    return int((out + into).max())
