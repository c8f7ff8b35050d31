"""Solve a linear program of flux balance for each blocked-reaction set, in several processes where that pays."""

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
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

import numpy as np
import swiglpk as glpk
from loky import BrokenProcessPool, ProcessPoolExecutor, cpu_count
from numpy.typing import NDArray

from dglcell.errors import DataError

if TYPE_CHECKING:
    from cobra import Model

# Flux balance analysis of a blocked-reaction set: one linear program.
#
# Maximise the objective flux c·v subject to S v = 0 and lower ≤ v ≤ upper, with v = 0 for blocked reactions
# (Orth, Thiele & Palsson 2010, Nat Biotechnol 28:245).
#
# Every solve starts from the wild type's optimal basis on a copy of its problem, so that a result depends on nothing
# but the blocked set: not on the order of the solves, nor on the number of processes. GLPK works on the unscaled
# problem: with its scaling and a tolerance of 1e-9 it takes the wild type of yeast-GEM for infeasible.


@dataclass(frozen=True)
class FluxProblem:
    """Hold the arrays of one flux balance problem; they are small enough to send to another process.

    Attributes:
        shape: (metabolites, reactions).
        rows, columns, values: [nnz] the stoichiometric matrix in coordinates.
        lower, upper: [reactions] flux bounds, possibly infinite.
        objective: [reactions] coefficients c.
        tolerance: feasibility and optimality tolerance of the solver.
        time_limit: seconds for one linear program.
    """

    shape: tuple[int, int]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    objective: NDArray[np.float64]
    tolerance: float
    time_limit: float

    @classmethod
    def of(cls, model: Model, *, tolerance: float, time_limit: float) -> FluxProblem:
        """Read the problem of a cobra model.

        Raises:
            DataError: the model minimises, has no linear objective, or has constraints beyond its mass balances.
        """
        if model.objective.direction != "max" or not model.objective.expression.is_polynomial():
            raise DataError(
                "in-silico screen: the model does not maximise a linear objective",
                got=f"{model.objective.direction} {model.objective.expression}",
                do="set the model's objective to its biomass reaction",
            )
        if len(model.constraints) != len(model.metabolites):
            raise DataError(
                "in-silico screen: the model has constraints beyond its mass balances",
                got=f"{len(model.constraints):,} constraints",
                expected=f"{len(model.metabolites):,}, one per metabolite",
                do="remove the extra constraints",
            )
        # The import is here because the processes that solve need no cobra.
        from cobra.util.array import create_stoichiometric_matrix
        from cobra.util.solver import linear_reaction_coefficients

        matrix = create_stoichiometric_matrix(model, array_type="dok").tocoo()
        weights = linear_reaction_coefficients(model)
        lower, upper = np.array([reaction.bounds for reaction in model.reactions], dtype=float).T
        return cls(
            shape=matrix.shape,
            rows=matrix.row,
            columns=matrix.col,
            values=matrix.data,
            lower=lower,
            upper=upper,
            objective=np.array([weights.get(reaction, 0.0) for reaction in model.reactions], dtype=float),
            tolerance=tolerance,
            time_limit=time_limit,
        )


@dataclass(frozen=True)
class Solution:
    """Hold the optimum of one linear program.

    Attributes:
        value: optimal objective; 0 if infeasible, NaN if the solver gave up.
        active: [reactions] whether the optimal flux vector uses the reaction; all false where there is no vector.
        timed_out: the time limit was reached.
    """

    value: float
    active: NDArray[np.bool_]
    timed_out: bool = False


class FluxSolver:
    """Run GLPK with the wild type's problem and basis.

    Raises:
        DataError: the wild type has no optimum.
    """

    def __init__(self, problem: FluxProblem) -> None:
        glpk.glp_term_out(glpk.GLP_OFF)
        self._problem = problem
        self._wild = _build(problem)
        self._parameters = _parameters(problem, presolve=False)
        self._presolving = _parameters(problem, presolve=True)
        self._work = glpk.glp_create_prob()
        # The presolver finds the optimum reliably, the second call makes its basis GLPK's own.
        glpk.glp_simplex(self._wild, self._presolving)
        glpk.glp_simplex(self._wild, self._parameters)
        if glpk.glp_get_status(self._wild) != glpk.GLP_OPT:
            raise DataError(
                "in-silico screen: the wild type has no optimal growth",
                expected="a model that grows on its own medium",
                do="check the model's objective and exchange bounds, or raise `time_limit`",
            )

    def solve(self, blocked: NDArray[np.int64]) -> Solution:
        """Return the optimum with the reactions ``blocked`` (indices) held at zero flux.

        An answer other than an optimum is asked for a second time, with the presolver and its own time limit, before
        it is believed: a wrong "infeasible" would be a wrong lethal.
        """
        for parameters in (self._parameters, self._presolving):
            glpk.glp_copy_prob(self._work, self._wild, glpk.GLP_OFF)
            for reaction in blocked.tolist():
                glpk.glp_set_col_bnds(self._work, reaction + 1, glpk.GLP_FX, 0.0, 0.0)
            code = glpk.glp_simplex(self._work, parameters)
            if code == 0 and glpk.glp_get_status(self._work) == glpk.GLP_OPT:
                return self._optimum()
        nothing = np.zeros(self._problem.shape[1], dtype=bool)
        if code == glpk.GLP_ENOPFS or (code == 0 and glpk.glp_get_status(self._work) == glpk.GLP_NOFEAS):
            return Solution(0.0, nothing)
        return Solution(float("nan"), nothing, timed_out=code == glpk.GLP_ETMLIM)

    def _optimum(self) -> Solution:
        fluxes = np.array([glpk.glp_get_col_prim(self._work, j + 1) for j in range(self._problem.shape[1])])
        # A flux below the solver's own tolerance is zero for it.
        return Solution(glpk.glp_get_obj_val(self._work), np.abs(fluxes) > self._problem.tolerance)


def _build(problem: FluxProblem) -> object:
    metabolites, reactions = problem.shape
    lp = glpk.glp_create_prob()
    glpk.glp_set_obj_dir(lp, glpk.GLP_MAX)
    glpk.glp_add_rows(lp, metabolites)
    glpk.glp_add_cols(lp, reactions)
    for i in range(metabolites):
        glpk.glp_set_row_bnds(lp, i + 1, glpk.GLP_FX, 0.0, 0.0)
    for j, (lower, upper) in enumerate(zip(problem.lower.tolist(), problem.upper.tolist(), strict=True)):
        glpk.glp_set_col_bnds(lp, j + 1, _bound_kind(lower, upper), max(lower, -1e300), min(upper, 1e300))
    for j in np.flatnonzero(problem.objective).tolist():
        glpk.glp_set_obj_coef(lp, j + 1, float(problem.objective[j]))
    size = len(problem.values)
    rows, columns, values = glpk.intArray(size + 1), glpk.intArray(size + 1), glpk.doubleArray(size + 1)
    for k, (i, j, value) in enumerate(
        zip(problem.rows.tolist(), problem.columns.tolist(), problem.values.tolist(), strict=True), start=1
    ):
        rows[k], columns[k], values[k] = i + 1, j + 1, value
    glpk.glp_load_matrix(lp, size, rows, columns, values)
    glpk.glp_adv_basis(lp, 0)
    return lp


def _bound_kind(lower: float, upper: float) -> int:
    if lower == upper:
        return int(glpk.GLP_FX)
    if np.isinf(lower):
        return int(glpk.GLP_FR if np.isinf(upper) else glpk.GLP_UP)
    return int(glpk.GLP_LO if np.isinf(upper) else glpk.GLP_DB)


def _parameters(problem: FluxProblem, *, presolve: bool) -> object:
    parameters = glpk.glp_smcp()
    glpk.glp_init_smcp(parameters)
    parameters.msg_lev = glpk.GLP_MSG_OFF
    parameters.tol_bnd = parameters.tol_dj = problem.tolerance
    parameters.tm_lim = max(1, round(1000 * problem.time_limit))
    parameters.presolve = glpk.GLP_ON if presolve else glpk.GLP_OFF
    return parameters


# Flux balance analysis of many blocked-reaction sets, in several processes where that is worth starting them.


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
    """End this process when the process that started it is gone, because its queue would never end."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _solve_in_worker(blocked: Sequence[NDArray[np.int64]]) -> bytes:
    """Solve blocked sets and pack the solutions.

    Few bytes go out at once, because a reader would wait for the rest from a process that was killed.
    """
    assert _solver is not None
    return zlib.compress(pickle.dumps([_solver.solve(reactions) for reactions in blocked]))


@contextmanager
def _signals_left_to_this_process() -> Iterator[None]:
    """Block signals that may be sent to all processes of a job.

    They do not reach processes that are started within the block, and reach this process when it ends.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _solve_in_processes(
    problem: FluxProblem, blocked: Sequence[NDArray[np.int64]], processes: int
) -> Iterator[Solution]:
    """Yield solutions in order, with at most ``AHEAD`` chunks per process being solved or waiting."""
    with _signals_left_to_this_process():
        # The pool needs the tracker. Python 3.11 unblocks SIGINT and SIGTERM when it starts it: so before any worker.
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
    """Solve the blocked sets in order, in several processes where that is worth starting them.

    Close the iterator if you leave it early, so that the other processes end.

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
