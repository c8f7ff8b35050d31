"""Solve linear programs of flux balance analysis, in several processes where that pays."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import swiglpk as glpk
from loky import BrokenProcessPool, ProcessPoolExecutor, cpu_count
from numpy.typing import ArrayLike, NDArray

from dglcell.errors import DataError
from dglcell.files import signals_blocked

if TYPE_CHECKING:
    from cobra import Model
    from scipy.sparse import coo_array

# Maximise the objective flux c·v subject to S v = 0 and lower ≤ v ≤ upper (Orth, Thiele & Palsson 2010, Nat Biotechnol
# 28:245), with other bounds for the reactions that a strain loses or has less of.
#
# Every solve starts from the wild type's optimal basis on a copy of its problem, so that a result depends on nothing
# but the bounds: not on the order of the solves, nor on the number of processes. GLPK works on the unscaled problem:
# with its scaling and a tolerance of 1e-9 it takes the wild type of yeast-GEM for infeasible.


@dataclass(frozen=True)
class FluxProblem:
    """Hold the arrays of one flux balance problem; they are small enough to send to another process."""

    stoichiometry: coo_array  #: [metabolites, reactions] S
    lower: NDArray[np.float64]  #: [reactions] flux bounds, possibly infinite
    upper: NDArray[np.float64]
    objective: NDArray[np.float64]  #: [reactions] coefficients c
    tolerance: float  #: feasibility and optimality tolerance of the solver
    medium: str | None = None  #: name of the growth medium, for messages; none for the model's own

    @property
    def wild_type(self) -> str:
        """Return what messages call the strain without changes in this medium."""
        return "the wild type" if self.medium is None else f"the wild type in medium '{self.medium}'"

    def in_medium(self, name: str | None, exchanges: Sequence[int], uptakes: ArrayLike) -> FluxProblem:
        """Return the problem with these largest uptakes of exchange reactions."""
        lower = self.lower.copy()
        lower[list(exchanges)] = -np.asarray(uptakes, dtype=float)
        return replace(self, lower=lower, medium=name)

    @classmethod
    def of(cls, model: Model, tolerance: float) -> FluxProblem:
        """Read the problem of a cobra model."""
        # The imports are here because the processes that solve need no cobra.
        from cobra.util.array import create_stoichiometric_matrix
        from cobra.util.solver import linear_reaction_coefficients

        weights = linear_reaction_coefficients(model)
        if model.objective.direction != "max" or not (weights and model.objective.expression.is_polynomial()):
            got = f"{model.objective.direction} {model.objective.expression}"
            what = "flux balance analysis: the model does not maximise a linear objective"
            raise DataError(what, got=got, do="set the model's objective to its biomass reaction")
        if (constraints := len(model.constraints)) != (balances := len(model.metabolites)):
            got, expected = f"{constraints:,} constraints", f"{balances:,}, one per metabolite"
            what = "flux balance analysis: the model has constraints beyond its mass balances"
            raise DataError(what, got=got, expected=expected, do="remove the extra constraints")
        lower, upper = np.array([reaction.bounds for reaction in model.reactions], dtype=float).T
        objective = np.array([weights.get(reaction, 0.0) for reaction in model.reactions], dtype=float)
        matrix = create_stoichiometric_matrix(model, array_type="dok").tocoo()
        return cls(matrix, lower, upper, objective, tolerance)


class Bounds(NamedTuple):
    """Hold what a strain changes of the wild type's problem."""

    reactions: NDArray[np.int64]  #: indices of reactions
    lower: NDArray[np.float64]  #: their bounds; NaN where a limit is not known
    upper: NDArray[np.float64]

    def apply(self, lp: object) -> None:
        """Set them in a problem of GLPK, which counts from 1."""
        for j, lower, upper in zip(*(column.tolist() for column in self), strict=True):
            if lower == upper:
                kind = glpk.GLP_FX
            elif np.isinf(lower):
                kind = glpk.GLP_FR if np.isinf(upper) else glpk.GLP_UP
            else:
                kind = glpk.GLP_LO if np.isinf(upper) else glpk.GLP_DB
            glpk.glp_set_col_bnds(lp, j + 1, kind, max(lower, -1e300), min(upper, 1e300))


class Solution(NamedTuple):
    """Hold the optimum of one linear program."""

    value: float  #: optimal objective; 0 if infeasible, NaN if the solver gave up
    fluxes: NDArray[np.float64] | None = None  #: [reactions] an optimal flux vector, where there is one
    timed_out: bool = False  #: the time limit was reached


Solutions = Generator[Solution, None, None]


class FluxSolver:
    """Run GLPK with the wild type's problem and basis."""

    def __init__(self, problem: FluxProblem) -> None:
        glpk.glp_term_out(glpk.GLP_OFF)
        self.problem = problem
        self._primal, self._presolving, self._dual = (_parameters(problem.tolerance) for _ in range(3))
        self._presolving.presolve, self._dual.meth = glpk.GLP_ON, glpk.GLP_DUALP
        self._wild = _build(problem)
        self._work, self._optima = glpk.glp_create_prob(), glpk.glp_create_prob()
        for lp in (self._wild, self._work, self._optima):
            weakref.finalize(self, glpk.glp_delete_prob, lp)
        # The presolver finds the optimum reliably, the second call makes its basis GLPK's own. With bounds as large as
        # 999999 both may lose the optimum by rounding: then the problem is scaled, and the dual method asked at last.
        for second, scaled in ((self._primal, False), (self._primal, True), (self._dual, True)):
            if scaled:
                glpk.glp_scale_prob(self._wild, glpk.GLP_SF_AUTO)
                glpk.glp_adv_basis(self._wild, 0)
            glpk.glp_simplex(self._wild, self._presolving)
            glpk.glp_simplex(self._wild, second)
            if glpk.glp_get_status(self._wild) == glpk.GLP_OPT:
                break
        else:
            where = "a model that grows on its own medium" if problem.medium is None else "a medium that feeds it"
            what = f"flux balance analysis: {problem.wild_type} has no optimal growth"
            raise DataError(what, expected=where, do="check the objective and exchange bounds")
        # Optimal flux vectors keep every variable with a reduced cost at its bound.
        glpk.glp_copy_prob(self._optima, self._wild, glpk.GLP_OFF)
        costs = np.array([glpk.glp_get_col_dual(self._wild, j + 1) for j in range(len(problem.lower))])
        fixed = np.flatnonzero(np.abs(costs) > problem.tolerance)
        at_bounds = self._fluxes(self._wild)[fixed]
        Bounds(fixed, at_bounds, at_bounds).apply(self._optima)

    def _fluxes(self, lp: object) -> NDArray[np.float64]:
        return np.array([glpk.glp_get_col_prim(lp, j + 1) for j in range(len(self.problem.lower))])

    def solve(self, bounds: Bounds) -> Solution:
        """Return the optimum with other bounds of some reactions."""
        if np.isnan(bounds.lower).any():
            return Solution(float("nan"))
        code, status = self._maximise(self._wild, bounds.apply)
        if status == glpk.GLP_OPT:
            return Solution(glpk.glp_get_obj_val(self._work), self._fluxes(self._work))
        if code == glpk.GLP_ENOPFS or status == glpk.GLP_NOFEAS:
            return Solution(0.0)
        return Solution(float("nan"), timed_out=code == glpk.GLP_ETMLIM)

    def _maximise(self, start: object, change: Callable[[object], None]) -> tuple[int, int | None]:
        """Solve a changed copy of a problem, and return GLPK's code and, where that is 0, its status.

        An answer other than an optimum is asked for again before it is believed: with the presolver, with GLPK's
        scaling and by the dual simplex method, each with its own time limit. A wrong "infeasible" would be a wrong
        lethal, and where bounds are as large as 999999, as in iMM904, rounding alone can make the first answers wrong.
        """
        primal, presolving, dual = self._primal, self._presolving, self._dual
        for parameters, scaled in ((primal, False), (presolving, False), (primal, True), (dual, False)):
            glpk.glp_copy_prob(self._work, start, glpk.GLP_OFF)
            change(self._work)
            if scaled:
                glpk.glp_scale_prob(self._work, glpk.GLP_SF_AUTO)
            code = glpk.glp_simplex(self._work, parameters)
            status = glpk.glp_get_status(self._work) if code == 0 else None
            if status == glpk.GLP_OPT:
                break
        return code, status

    def capacity(self, reaction: int, sign: int) -> float:
        """Compute the largest flux, from 0, that the wild type can need of a reaction in the direction ``sign``.

        That is the largest flux at optimal growth; in a direction that no optimal flux vector uses, it is the largest
        flux at any growth (flux variability analysis; Mahadevan & Schilling 2003, Metab Eng 5:264). It is NaN without
        an answer.
        """
        if (self.problem.upper if sign > 0 else -self.problem.lower)[reaction] <= 0:
            return 0.0

        def aim(lp: object) -> None:
            for j in np.flatnonzero(self.problem.objective).tolist():
                glpk.glp_set_obj_coef(lp, j + 1, 0.0)
            glpk.glp_set_obj_coef(lp, reaction + 1, sign)

        for start in (self._optima, self._wild):
            code, status = self._maximise(start, aim)
            if status == glpk.GLP_OPT:
                flux = max(0.0, float(glpk.glp_get_obj_val(self._work)))
            else:
                flux = float("inf" if code == glpk.GLP_ENODFS or status == glpk.GLP_UNBND else "nan")
            if not flux <= 1e-7:  # in mmol/gDW/h, the solver's zero
                break
        return flux


def _build(problem: FluxProblem) -> object:
    matrix = problem.stoichiometry
    metabolites, reactions = matrix.shape
    lp = glpk.glp_create_prob()
    glpk.glp_set_obj_dir(lp, glpk.GLP_MAX)
    glpk.glp_add_rows(lp, metabolites)
    glpk.glp_add_cols(lp, reactions)
    for i in range(metabolites):
        glpk.glp_set_row_bnds(lp, i + 1, glpk.GLP_FX, 0.0, 0.0)
    Bounds(np.arange(reactions), problem.lower, problem.upper).apply(lp)
    for j in np.flatnonzero(problem.objective).tolist():
        glpk.glp_set_obj_coef(lp, j + 1, float(problem.objective[j]))
    rows, columns, values = (kind(matrix.nnz + 1) for kind in (glpk.intArray, glpk.intArray, glpk.doubleArray))
    entries = zip(matrix.row.tolist(), matrix.col.tolist(), matrix.data.tolist(), strict=True)
    for k, (i, j, value) in enumerate(entries, start=1):
        rows[k], columns[k], values[k] = i + 1, j + 1, value
    glpk.glp_load_matrix(lp, matrix.nnz, rows, columns, values)
    glpk.glp_adv_basis(lp, 0)
    return lp


def _parameters(tolerance: float) -> Any:
    parameters = glpk.glp_smcp()
    glpk.glp_init_smcp(parameters)
    parameters.msg_lev = glpk.GLP_MSG_OFF
    parameters.tol_bnd = parameters.tol_dj = tolerance
    parameters.tm_lim = 60_000  # milliseconds for one linear program
    return parameters


PROBE = 64  # linear programs solved in this process first, to learn whether starting others pays
WORTHWHILE_SECONDS = 10.0  # starting a process and importing the package there costs a few seconds
CHUNK = 16  # linear programs that are sent to a process together

# Signals that may be sent to all processes of a job: those that solve leave them to the first one.
OF_A_JOB = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1

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


def _solve_in_worker(strains: Sequence[Bounds]) -> bytes:
    # Few bytes go out at once, because a reader would wait for the rest from a process that was killed.
    assert _solver is not None
    return zlib.compress(pickle.dumps([_solver.solve(bounds) for bounds in strains]))


def solve_all(solver: FluxSolver, strains: Sequence[Bounds], *, processes: int) -> Solutions:
    """Solve the linear programs of strains in order, in several processes where that is worth starting them.

    Args:
        solver: in this process; the others build theirs from its problem, and end when the generator is closed.
        strains: what each changes.
        processes: how many; 0 for as many as there are CPUs.
    """
    processes = processes or cpu_count()
    probe = PROBE if processes > 1 else len(strains)
    begin = time.perf_counter()
    yield from map(solver.solve, strains[:probe])
    rest = strains[probe:]
    if rest and (time.perf_counter() - begin) / probe * len(rest) >= WORTHWHILE_SECONDS:
        yield from _solve_in_processes(solver.problem, rest, processes)
    else:
        yield from map(solver.solve, rest)


def _solve_in_processes(problem: FluxProblem, strains: Sequence[Bounds], processes: int) -> Solutions:
    with signals_blocked(OF_A_JOB):
        # The pool needs the tracker. Python 3.11 unblocks SIGINT and SIGTERM when it starts it: so before any worker.
        resource_tracker.ensure_running()
        pool = ProcessPoolExecutor(processes, initializer=_start_worker, initargs=(problem, os.getpid()))
    try:
        with signals_blocked(OF_A_JOB):
            # Not by `map`, which cancels what is left after an error: loky's thread then fails with a traceback.
            parts = (strains[start : start + CHUNK] for start in range(0, len(strains), CHUNK))
            futures = [pool.submit(_solve_in_worker, part) for part in parts]  # the first starts all workers
        while futures:  # which hold what is solved
            yield from pickle.loads(zlib.decompress(futures.pop(0).result()))
    except BrokenProcessPool as error:
        what = "flux balance analysis: a process that solves linear programs has ended before its time"
        do = "look whether memory ran out; with fewer processes it takes less (`data.source.insilico.processes`, "
        raise DataError(what, do=f"{do}`data.fba.processes`)") from error
    finally:
        pool.shutdown(kill_workers=True)
