"""Flux balance analysis of many blocked-reaction sets, in several processes where that is worth starting them."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from multiprocessing import resource_tracker

import numpy as np
from loky import BrokenProcessPool, ProcessPoolExecutor, cpu_count
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

_solver: FluxSolver | None = None


def _start_worker(problem: FluxProblem, parent: int) -> None:
    global _solver
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _solver = FluxSolver(problem)


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone: its queue would never end."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _solve_in_worker(blocked: Sequence[NDArray[np.int64]]) -> bytes:
    """Packed, because few bytes go out at once: who reads would wait for the rest from a process that was killed."""
    assert _solver is not None
    return zlib.compress(pickle.dumps([_solver.solve(reactions) for reactions in blocked]))


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


def _solve_in_processes(
    problem: FluxProblem, blocked: Sequence[NDArray[np.int64]], processes: int
) -> Iterator[Solution]:
    """Solutions in order, with at most ``AHEAD`` chunks per process being solved or waiting."""
    with _signals_left_to_this_process():
        # The pool needs it. Python 3.11 ends the block on SIGINT and SIGTERM when it starts it: before any worker.
        resource_tracker.ensure_running()
        pool = ProcessPoolExecutor(processes, initializer=_start_worker, initargs=(problem, os.getpid()))
    waiting: deque[Future[bytes]] = deque()
    try:
        with _signals_left_to_this_process():
            pool.submit(os.getpid)  # starts all workers
        for start in range(0, len(blocked), CHUNK):
            if len(waiting) == AHEAD * processes:
                yield from pickle.loads(zlib.decompress(waiting.popleft().result()))
            waiting.append(pool.submit(_solve_in_worker, blocked[start : start + CHUNK]))
        while waiting:
            yield from pickle.loads(zlib.decompress(waiting.popleft().result()))
    except BrokenProcessPool as error:
        raise DataError(
            "in-silico screen: a process that solves linear programs has ended before its time",
            do="look whether memory ran out; with fewer processes it takes less (`data.source.insilico.processes`)",
        ) from error
    finally:
        pool.shutdown(kill_workers=True)


def _solve(
    solver: FluxSolver, problem: FluxProblem, blocked: Sequence[NDArray[np.int64]], processes: int
) -> Generator[Solution, None, None]:
    probe = PROBE if processes > 1 else len(blocked)
    begin = time.perf_counter()
    yield from map(solver.solve, blocked[:probe])
    rest = blocked[probe:]
    if rest and (time.perf_counter() - begin) / probe * len(rest) >= WORTHWHILE_SECONDS:
        yield from _solve_in_processes(problem, rest, processes)
    else:
        yield from map(solver.solve, rest)


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
    with closing(_solve(solver, problem, blocked, processes or cpu_count())) as solutions:
        for solution in solutions:
            yield solution
            advance()
