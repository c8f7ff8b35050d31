"""Flux balance analysis: one linear program, and many in several processes."""

from __future__ import annotations

import ast
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cobra.io import load_model

from dglcell.data.sources import fba
from dglcell.data.sources.fba import Bounds, FluxProblem, FluxSolver, solve_all
from dglcell.data.sources.growth import Growth, KnockoutRules
from dglcell.errors import DataError
from tests.integration.processes import PATIENCE, ended, is_running
from tests.tiny import process_environment

# One linear program at a time: optimum, infeasibility, time-out.


def without(*reactions: int) -> Bounds:
    """Return the bounds of a strain that lacks reactions."""
    nothing = np.zeros(len(reactions))
    return Bounds(np.array(reactions, dtype=np.int64), nothing, nothing)


@pytest.fixture(scope="module")
def problem() -> FluxProblem:
    return FluxProblem.of(load_model("textbook"), 1e-9)


def test_what_the_primal_simplex_leaves_unsolved_the_dual_one_solves(problem: FluxProblem) -> None:
    usual, limited = FluxSolver(problem), FluxSolver(problem)
    limited._primal.it_lim = limited._presolving.it_lim = 0
    for r in range(0, len(problem.lower), 5):
        expected = usual.solve(without(r)).value
        assert limited.solve(without(r)).value == pytest.approx(expected, abs=1e-8)


def test_a_solve_does_not_depend_on_the_ones_before(problem: FluxProblem) -> None:
    fresh, used = FluxSolver(problem), FluxSolver(problem)
    for r in range(30):
        used.solve(without(r))
    one, other = fresh.solve(without(40)), used.solve(without(40))
    assert one.value == other.value
    np.testing.assert_array_equal(one.fluxes, other.fluxes)


def test_a_capacity_without_a_bound_is_infinite(problem: FluxProblem) -> None:
    cycle = [load_model("textbook").reactions.index(name) for name in ("FRD7", "SUCDi")]
    upper = problem.upper.copy()
    upper[cycle] = np.inf
    solver = FluxSolver(replace(problem, upper=upper))
    assert [solver.capacity(reaction, sign) for reaction in cycle for sign in (-1, 1)] == [0, np.inf] * 2


def test_a_forced_flux_is_at_most_the_limit(problem: FluxProblem) -> None:
    maintenance = int(np.argmax(problem.lower))
    rule_of = np.where(np.arange(len(problem.lower)) == maintenance, 0, 1)
    growth = Growth(KnockoutRules((), (ast.Name("g"),), rule_of), problem, processes=1)
    growth._capacities[:] = 10.0
    for left, limits in ((0.0, (0, 0)), (0.5, (5, 5)), (0.875, (8.39, 8.75))):
        assert growth._bounds(np.array([left], np.float32)) == (maintenance, *limits)


def test_running_out_of_time_is_not_infeasible(problem: FluxProblem) -> None:
    solver = FluxSolver(problem)
    solver._primal.tm_lim = solver._presolving.tm_lim = solver._dual.tm_lim = 0
    solution = solver.solve(without(*range(0, len(problem.lower), 10)))
    assert solution.timed_out
    assert np.isnan(solution.value)


def test_a_problem_without_a_steady_state_is_refused(problem: FluxProblem) -> None:
    impossible = replace(problem, lower=np.where(problem.objective > 0, 500.0, problem.lower))
    with pytest.raises(DataError, match="the wild type has no optimal growth"):
        FluxSolver(impossible)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_optimum_is_found_by_scaling_or_the_dual_method(
    problem: FluxProblem, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """With bounds as large as 999999 GLPK takes the wild type of iMM904 for infeasible in some media."""
    status, answers = fba.glpk.glp_get_status, [fba.glpk.GLP_NOFEAS] * lost
    expected = FluxSolver(problem).solve(without()).value
    monkeypatch.setattr(fba.glpk, "glp_get_status", lambda lp: answers.pop() if answers else status(lp))
    assert FluxSolver(problem).solve(without()).value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("extra", r"constraints beyond its mass balances\n.*73 constraints\n.*72"),
        ("min", r"not maximise a linear objective\n  got:      min "),
        ("nothing", r"not maximise a linear objective\n  got:      max 0\n"),
    ],
)
def test_models_that_are_no_plain_problem_are_refused(fault: str, said: str) -> None:
    model = load_model("textbook")
    if fault == "extra":
        model.add_cons_vars(model.problem.Constraint(model.reactions.PGI.flux_expression, lb=-1, ub=1, name="extra"))
    model.objective = {} if fault == "nothing" else model.objective
    model.objective.direction = "min" if fault == "min" else "max"
    with pytest.raises(DataError, match=said):
        FluxProblem.of(model, 1e-9)


# Processes that solve linear programs end when they are not needed any more, however that comes about.


# About a third of a millisecond each: all of them would take much longer than any test may.
MANY = 300_000

SCRIPT = """\
import sys
from dglcell.cli import main
from dglcell.data.sources import fba

if __name__ == "__main__":
    fba.PROBE, fba.WORTHWHILE_SECONDS = 5, 0.0
    sys.exit(main(sys.argv[1:]))
"""

SCREEN = """\
experiment: {name: screen}
cell: {model: textbook}
data:
  source: {name: insilico, insilico: {activities: [0, 0.1, 0.3, 0.5, 0.8], triples: "20000", processes: 2}}
"""


@pytest.fixture
def strains(problem: FluxProblem, monkeypatch: pytest.MonkeyPatch) -> list[Bounds]:
    """Strains of which nearly all are left to two processes."""
    monkeypatch.setattr(fba, "PROBE", 2)
    monkeypatch.setattr(fba, "WORTHWHILE_SECONDS", 0.0)
    each = [without(r) for r in range(len(problem.lower))]
    return each * (MANY // len(each))


def test_an_error_ends_the_other_processes(problem: FluxProblem, strains: list[Bounds]) -> None:
    solver = FluxSolver(problem)
    with pytest.raises(ZeroDivisionError), closing(solve_all(solver, strains, processes=2)) as solved:
        assert len([*itertools.islice(solved, 10)]) == 10
        assert len(multiprocessing.active_children()) == 2
        raise ZeroDivisionError
    assert not multiprocessing.active_children()


def test_a_process_that_dies_is_an_error(problem: FluxProblem, strains: list[Bounds]) -> None:
    solved = solve_all(FluxSolver(problem), strains, processes=2)
    assert len([*itertools.islice(solved, 10)]) == 10
    pid = multiprocessing.active_children()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(DataError, match=r"has ended before its time\n  do: .*`data.source.insilico.processes`"):
        for _ in solved:
            pass
    assert not multiprocessing.active_children()


@pytest.fixture
def build(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Provide a build of a large screen, a process group of its own: it, two that solve, and two resource trackers."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "screen.yaml").write_text(SCREEN)
    command = [sys.executable, "script.py", "train", "screen.yaml", "data.store=data/store"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=process_environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    end = time.monotonic() + PATIENCE
    while len([pid for pid in children(process.pid) if keeps_back(pid, signal.SIGUSR1)]) < 4:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize(
    "number",
    [signal.SIGUSR1, *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGTERM, signal.SIGINT))],
)
def test_a_signal_to_all_processes_ends_a_build_and_leaves_nothing(
    build: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    workers = children(build.pid)
    os.killpg(build.pid, number)
    _, said = build.communicate(timeout=PATIENCE)
    assert build.returncode == 128 + number, said
    assert "Traceback" not in said
    assert all(ended(pid) for pid in workers)
    assert not list((tmp_path / "data").glob("*"))


@pytest.mark.slow
def test_processes_do_not_outlive_the_first_one(build: subprocess.Popen[str]) -> None:
    workers = children(build.pid)
    assert all(is_running(pid) for pid in workers)
    build.kill()
    assert all(ended(pid) for pid in workers)


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def keeps_back(pid: int, number: signal.Signals) -> bool:
    """Return whether a signal does not reach a process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    (blocked,) = (line.split()[1] for line in lines if line.startswith("SigBlk:"))
    return bool(int(blocked, 16) >> (number - 1) & 1)
