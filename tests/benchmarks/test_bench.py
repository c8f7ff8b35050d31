"""The benchmark's command line, and what it runs."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.bench import Runner, _plan, main
from benchmarks.methods import Method, MethodSpec, UnsupportedError, choose_methods
from benchmarks.results_file import Results
from benchmarks.workload import BenchOptions, Setting, Workload, random_workload
from dglcell.errors import MissingDependencyError
from dglcell.perturbation.genotype import GenotypeBatch
from tests.benchmarks.cells import SETTING, quick_conditions, small_cell
from tests.tiny import Tiny, process_environment

# ``python -m benchmarks.bench`` from the command line.


QUICK = ["--scale", "0.01", "--hidden", "8", "--layers", "1", "--seconds-per-row", "0.01", "--threads", "1"]


def run(*arguments: object) -> int:
    """In this process, where other tests have computed gradients already: forks could compute none."""
    return main([*map(str, arguments), "--in-process"])


@pytest.mark.slow
def test_a_tiny_cell_graph_gives_a_table_and_a_file(tmp_path: Path, capsys) -> None:
    pytest.importorskip("torch_geometric")
    target = tmp_path / "bench.json"
    methods = ["pyg_replicated", "node_mask", "dango"]
    asked = [*QUICK, "--batch", 2, "--deletions", 1, 2, "--methods", *methods, "--output", target]
    assert run(*asked) == 0
    printed = capsys.readouterr().out
    assert printed.count("x pyg_replicated") == 2
    content = json.loads(target.read_text())
    about = content["environment"]
    assert about["packages"]["torch"] == torch.__version__
    assert about["relations"]["physical"] == 66 + 14
    assert about["ceilings"]["copy_bytes_per_second"] > 1e8
    assert 0 <= about["largest_difference"] < 1e-10
    assert {"processor", "memory_available_bytes", "threads", "command", "cell", "device"} <= set(about)
    assert len(content["rows"]) == 6
    for row in content["rows"]:
        assert row["status"] == "ok"
        base = next(r for r in content["rows"] if r["method"] == methods[0] and _same(r, row))
        assert row["ratio_to_pyg_replicated"] == pytest.approx(base["seconds_per_step"] / row["seconds_per_step"])
    assert run(*asked, "--resume") == 0
    assert json.loads(target.read_text())["rows"] == content["rows"]


def _same(one: dict, other: dict) -> bool:
    return all(one[key] == other[key] for key in ("batch", "deletions", "hidden", "layers", "conv"))


@pytest.mark.slow
def test_an_experiment_is_measured_on_its_own_cell_and_strains(tiny: Tiny, tmp_path: Path, capsys) -> None:
    target = tmp_path / "bench.json"
    asked = [tiny.file, f"data.store={tiny.store}", "--batch", 3, "--seconds-per-row", 0.01, "--output", target]
    assert run(*asked, "--methods", "pyg_replicated", "edge_subgraph", "node_mask") == 0
    rows = json.loads(target.read_text())["rows"]
    assert [row["method"] for row in rows] == ["pyg_replicated", "dgl_edge_subgraph", "node_mask:auto"]
    assert {(row["batch"], row["hidden"], row["layers"], row["deletions"]) for row in rows} == {(3, 8, 1, None)}
    assert rows[1]["status"] == rows[2]["status"] == "ok"
    assert rows[0]["status"].startswith(("unsupported: the PyG methods do not compute relations", "missing"))


@pytest.mark.slow
def test_a_batch_larger_than_the_training_part_is_refused(tiny: Tiny, capsys) -> None:
    assert run("--config", tiny.file, f"data.store={tiny.store}", "--batch", 241, *QUICK[6:]) == 2
    assert "smaller than the batch\n  got:      240\n  expected: 241 or more" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--batch", "--threads"])
@pytest.mark.parametrize("wrong", ["0", "many"])
def test_numbers_are_checked(option: str, wrong: str, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["tiny.yaml", option, wrong])
    assert f"argument {option}: '{wrong}' is not a number of 1 or more" in capsys.readouterr().err


@pytest.mark.slow
def test_too_little_memory_is_a_row(tmp_path: Path) -> None:
    target = tmp_path / "bench.json"
    asked = ["--scale", 0.15, "--hidden", 64, "--layers", 1, "--batch", 28, "--memory-limit", 0.25, "--threads", 1]
    asked += ["--methods", "node_mask:reference", "difference", "--seconds-per-row", 0.01, "--output", target]
    command = [sys.executable, "-m", "benchmarks.bench", *map(str, asked)]
    done = subprocess.run(command, cwd=tmp_path, env=process_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = {row["method"]: row for row in json.loads(target.read_text())["rows"]}
    assert rows["node_mask:reference"]["status"] == "out_of_memory"
    assert rows["node_mask:reference"]["seconds_per_step"] is None
    assert rows["difference:auto"]["status"] == "ok"


@pytest.mark.slow
def test_products_are_written_too(tmp_path: Path, capsys) -> None:
    target = tmp_path / "products.json"
    assert run(*QUICK, "--products", "--batch", 2, "--output", target) == 0
    assert "of copy" in capsys.readouterr().out
    assert {row["kernel"] for row in json.loads(target.read_text())["products"]} >= {"auto", "reference", "csr", "dgl"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume"], "`--resume` needs a file"),
        (["--resume", "--products", "--output", "x.json"], "`--resume` continues steps"),
        (["--metabolism"], "`--metabolism` needs real genes"),
        (["--methods", "magic"], "unknown method"),
        ([*QUICK, "--deletions", 100], "`--deletions` is more than there are genes"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: list[object], message: str, capsys) -> None:
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err


def test_the_headline_leaves_slow_methods_out_of_large_batches() -> None:
    plan = {(s.batch, s.layers): [m.name for m in members] for s, members in _plan(BenchOptions("bench"), None)}
    assert set(plan) == {(8, 2), (8, 3), (28, 2), (28, 3)}
    assert set(plan[28, 3]) < set(plan[8, 3])
    assert all(names[0] == "pyg_replicated" for names in plan.values())


def test_the_grid_has_every_method_and_size() -> None:
    plan = _plan(BenchOptions("bench", grid=True), None)
    assert {s.batch for s, _ in plan} == {8, 16, 28, 64, 256}
    assert {(s.hidden, s.layers, s.conv) for s, _ in plan} == {
        (h, n, c) for h in (64, 128) for n in (2, 3) for c in ("gin", "sage")
    }
    assert "dgl_edge_subgraph" in {m.name for m in plan[0][1]}


# Whatever keeps a method from running is its result.


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


@pytest.mark.slow
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
