"""One linear program at a time: optimum, infeasibility, time-out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cobra.io import load_model

from dglcell.data.sources.fba import FluxProblem, FluxSolver
from dglcell.errors import DataError

NOTHING = np.zeros(0, dtype=np.int64)


@pytest.fixture(scope="module")
def problem() -> FluxProblem:
    return FluxProblem.of(load_model("textbook"), tolerance=1e-9, time_limit=60.0)


def test_blocked_reactions_equal_cobra(problem: FluxProblem) -> None:
    model = load_model("textbook")
    model.tolerance = 1e-9
    solver = FluxSolver(problem)
    for r, reaction in enumerate(model.reactions):
        with model:
            reaction.knock_out()
            expected = model.slim_optimize(error_value=0.0)
        assert solver.solve(np.array([r])).value == pytest.approx(expected, abs=1e-8), reaction.id


def test_a_solve_does_not_depend_on_the_ones_before(problem: FluxProblem) -> None:
    fresh, used = FluxSolver(problem), FluxSolver(problem)
    for r in range(30):
        used.solve(np.array([r]))
    one, other = fresh.solve(np.array([40])), used.solve(np.array([40]))
    assert one.value == other.value
    np.testing.assert_array_equal(one.active, other.active)


def test_active_reactions_are_enough_for_the_optimum(problem: FluxProblem) -> None:
    solver = FluxSolver(problem)
    wild = solver.solve(NOTHING)
    unused = np.flatnonzero(~wild.active)
    assert len(unused) > 10
    assert solver.solve(unused).value == pytest.approx(wild.value, abs=1e-8)
    assert solver.solve(np.flatnonzero(wild.active)).value == 0


def test_running_out_of_time_is_not_infeasible() -> None:
    model = load_model("iJO1366")
    solver = FluxSolver(FluxProblem.of(model, tolerance=1e-9, time_limit=60.0))
    # A millisecond is far too short to recover from losing every tenth reaction.
    solver._parameters.tm_lim = solver._presolving.tm_lim = 1  # type: ignore[attr-defined]
    solution = solver.solve(np.arange(0, len(model.reactions), 10))
    assert solution.timed_out
    assert np.isnan(solution.value)


def test_a_problem_without_a_steady_state_is_refused(problem: FluxProblem) -> None:
    impossible = replace(problem, lower=np.where(problem.objective > 0, 500.0, problem.lower))
    with pytest.raises(DataError, match="the wild type has no optimal growth"):
        FluxSolver(impossible)


def test_minimising_models_are_refused() -> None:
    model = load_model("textbook")
    model.objective.direction = "min"
    with pytest.raises(DataError, match="does not maximise a linear objective"):
        FluxProblem.of(model, tolerance=1e-9, time_limit=1.0)


def test_extra_constraints_are_refused() -> None:
    model = load_model("textbook")
    flux = model.reactions.PGI.flux_expression
    model.add_cons_vars(model.problem.Constraint(flux, lb=-1, ub=1, name="extra"))
    with pytest.raises(DataError, match=r"constraints beyond its mass balances\n.*73 constraints\n.*72"):
        FluxProblem.of(model, tolerance=1e-9, time_limit=1.0)
