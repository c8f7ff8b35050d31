"""Whatever keeps a method from running is its result."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from benchmarks.bench import Runner
from benchmarks.methods import Method, MethodSpec, UnsupportedError, choose_methods
from benchmarks.results_file import Results
from benchmarks.workload import Setting, Workload, random_workload
from dglcell.errors import MissingDependencyError
from dglcell.perturbation.genotype import GenotypeBatch
from tests.benchmarks.cells import SETTING, quick_conditions, small_cell


class Greedy(Method):
    """Fails in its backward pass."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.weights, self.error = None, error
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, genotypes: GenotypeBatch) -> torch.Tensor:
        out = self.weight.expand(genotypes.num_strains, 1) * 1.0
        out.register_hook(self._fail)
        return out

    def _fail(self, grad: torch.Tensor) -> None:
        raise self.error


def failing(name: str, error: BaseException) -> MethodSpec:
    return MethodSpec(name, lambda *_: Greedy(error))


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    cell = small_cell()

    def workload(setting: Setting) -> Workload:
        assert setting.deletions is not None
        return random_workload(cell, setting.model(False), setting.batch, setting.deletions, 0)

    return Runner(Results({}, tmp_path / "r.json"), workload, quick_conditions())


def test_failures_become_rows(runner: Runner) -> None:
    def refuse(error: Exception) -> MethodSpec:
        def build(*_: object) -> Method:
            raise error

        return MethodSpec(str(error), build)

    memory = failing("memory", RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"))
    specs = [memory, refuse(MissingDependencyError("install x")), refuse(UnsupportedError("no weights\nat all"))]
    specs += choose_methods(["node_mask"])
    runner.run([(SETTING, specs)])
    assert [row.status for row in runner.results.rows] == [
        "out_of_memory",
        "missing: install x",
        "unsupported: no weights",
        "ok",
    ]
    ok = runner.results.rows[-1]
    assert ok.steps >= 1
    assert ok.seconds_best <= ok.seconds_per_step
    assert ok.samples_per_second == pytest.approx(3 / ok.seconds_per_step)
    assert ok.share_of_ideal > 0
    assert (ok.strategy, ok.kernel, ok.method) == ("node_mask", "auto", "node_mask:auto")
    assert all(row.seconds_per_step is None for row in runner.results.rows[:3])


def test_methods_with_a_fault_are_not_run(runner: Runner) -> None:
    faulty = dataclasses.replace(runner, faults={"node_mask:auto": "it is wrong"})
    faulty.run([(SETTING, choose_methods(["node_mask"]))])
    assert [row.status for row in runner.results.rows] == ["error: it is wrong"]


def test_what_is_there_is_not_run_again(runner: Runner) -> None:
    plan = [(SETTING, choose_methods(["node_mask"]))]
    runner.run(plan)
    before = list(runner.results.rows)
    runner.run(plan)
    assert runner.results.rows == before


@pytest.mark.parametrize("error", [RuntimeError("shapes cannot be multiplied"), KeyboardInterrupt()])
def test_bugs_and_interrupts_leave_no_row(runner: Runner, error: BaseException) -> None:
    with pytest.raises(type(error)):
        runner.run([(SETTING, [failing("bug", error)])])
    assert runner.results.rows == []
    assert '"rows": []' in runner.results.path.read_text()
