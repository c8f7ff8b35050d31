"""Flux balance analysis of many blocked-reaction sets, in several processes where that is worth starting them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.fba import FluxProblem, FluxSolver, Solution
from dglcell.errors import DataError

# Blocked sets solved in this process first, to learn whether starting others pays.
PROBE = 64
# Starting a process and importing the package there costs a few seconds.
WORTHWHILE_SECONDS = 10.0
# Sets that are sent to a process together, and how many such chunks each process has before it.
CHUNK = 16
AHEAD = 8
# How long a process may take to end beyond what it is at.
GRACE_SECONDS = 10.0


def _usable_cpus() -> int:
    """CPUs this process may run on, where the system tells; else all of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_solver: FluxSolver | None = None
_stopped: Event | None = None


def _start_worker(problem: FluxProblem, stopped: Event) -> None:
    global _solver, _stopped
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _solver, _stopped = FluxSolver(problem), stopped


def _end_with_parent() -> None:
    """End this process when the first one is gone: its queue would never end."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _solve_in_worker(blocked: Sequence[NDArray[np.int64]]) -> list[Solution]:
    assert _solver is not None
    assert _stopped is not None
    solutions = []
    for reactions in blocked:
        if _stopped.is_set():
            raise CancelledError
        solutions.append(_solver.solve(reactions))
    return solutions


def _in_order(pool: ProcessPoolExecutor, blocked: Sequence[NDArray[np.int64]], ahead: int) -> Iterator[Solution]:
    """Solutions, with at most so many chunks being solved or waiting.

    Not ``pool.map``, which gives out everything at once, and cancels what is left also where a process has died: the
    pool, which says so to all that wait, can stumble over it (Python 3.11) and keep the other processes.
    """
    waiting: deque[Future[list[Solution]]] = deque()
    for start in range(0, len(blocked), CHUNK):
        if len(waiting) == ahead:
            yield from waiting.popleft().result()
        # May start a process.
        with _signals_left_to_this_process():
            waiting.append(pool.submit(_solve_in_worker, blocked[start : start + CHUNK]))
    while waiting:
        yield from waiting.popleft().result()


@contextmanager
def _signals_left_to_this_process() -> Iterator[None]:
    """Signals that may be sent to all processes of a job do not reach those that are started within it, and reach
    this one at its end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _workers(problem: FluxProblem, processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes with a solver each; where the body is left by an error, they end after the programs they are at.

    They are not killed unless they are stuck: one that dies while it sends a result would leave its receiver waiting
    for the rest.
    """
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    # A program is solved twice at most; see `FluxSolver.solve`.
    patience = 2 * problem.time_limit + GRACE_SECONDS
    with _signals_left_to_this_process():
        # Starts Python's resource tracker, too.
        stopped = context.Event()
    pool = ProcessPoolExecutor(processes, context, _start_worker, (problem, stopped))
    try:
        yield pool
    except BrokenProcessPool as error:
        patience = 0.0
        raise DataError(
            "in-silico screen: a process that solves linear programs has ended before its time",
            do="look whether memory ran out; with fewer processes it takes less (`data.source.insilico.processes`)",
        ) from error
    finally:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
        _end(set(multiprocessing.active_children()) - before, patience)


def _end(workers: Iterable[BaseProcess], seconds: float) -> None:
    """Wait for processes; kill those that do not end. Asking them to is no use: they keep signals back."""
    end = time.monotonic() + seconds
    for worker in workers:
        worker.join(max(0.0, end - time.monotonic()))
        if worker.is_alive():
            worker.kill()
            worker.join()


def solve_all(
    solver: FluxSolver,
    problem: FluxProblem,
    blocked: Sequence[NDArray[np.int64]],
    *,
    processes: int,
    advance: Callable[[], None],
) -> Generator[Solution, None, None]:
    """Solve the blocked sets, in order; in several processes where that is worth starting them.

    To be closed where its user leaves it early: the other processes end then.

    Args:
        solver: of ``problem``, in this process.
        problem: what the other processes build their solvers from.
        blocked: reaction indices to hold at zero, one array per linear program.
        processes: how many; 0 for as many as there are CPUs.
        advance: called after every solution.

    Raises:
        DataError: another process has died.
    """
    processes = processes or _usable_cpus()
    begin = time.perf_counter()
    probe = PROBE if processes > 1 else len(blocked)
    for reactions in blocked[:probe]:
        yield solver.solve(reactions)
        advance()
    rest = blocked[probe:]
    if not rest:
        return
    if (time.perf_counter() - begin) / probe * len(rest) < WORTHWHILE_SECONDS:
        for reactions in rest:
            yield solver.solve(reactions)
            advance()
        return
    with _workers(problem, processes) as pool:
        for solution in _in_order(pool, rest, AHEAD * processes):
            yield solution
            advance()
