"""The scripts of `benchmarks`: methods that are equal before they are timed, tables, cells, and measuring on a GPU."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from benchmarks import collect, gpu_once
from benchmarks.bench import TOLERANCE, check, main
from benchmarks.cells import GENES, PUBLISHED, generated_cell
from benchmarks.methods import Method, MethodSpec, UnsupportedError, choose_methods, methods, training_step
from benchmarks.own_tables import CLASSES, CORE, TABLES, OwnTable, interacting, measure, viable
from benchmarks.workload import Workload, hub_workload
from dglcell.errors import ConfigError
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import Edges, gene_relation
from dglcell.kernels.spmm import KERNELS
from dglcell.new_experiment.experiment import GROWTH, PAIRS, choose_settings
from dglcell.training.run import train


def write_run(folder: Path, name: str, seed: int, pearson: float | None, **metrics: float) -> Path:
    run = folder / name / f"seed-{seed}"
    run.mkdir(parents=True)
    about: dict[str, Any] = {
        "command": f"dglcell train x.yaml seed={seed} paths.runs=/somewhere",
        "python": "3.11",
        "packages": {"torch": "2.13"},
        "git": {"commit": f"{seed}" * 40},
        "devices": ["a GPU that was not used"],
        "threads": 1,
        "parameters": 3,
        "strains": {"train": 8, "validation": 1, "test": 1},
        "hashes": {"split": "s" * 64, "store": "t" * 64, "cell": "c" * 64},
    }
    score: dict[str, float | None] = {"pearson": pearson, "n": 1, **metrics}
    rows = [
        {"model": "set_operator", "part": "validation", "metrics": score, "is_baseline": False},
        {"model": "set_operator", "part": "test", "metrics": score, "is_baseline": False},
        {"model": "network + ridge (0.25)", "part": "test", "metrics": score, "is_baseline": False},
        {"model": "training mean", "part": "test", "metrics": {"r2": -0.1, "pearson": None}, "is_baseline": True},
    ]
    usage = {"device": "cpu", "epochs": 2, "wall_seconds": 9.4 + seed, "peak_resident_bytes": 100, "processes": 1}
    (run / "config.yaml").write_text(yaml.safe_dump({"experiment": {"name": name}, "seed": seed}))
    (run / "environment.json").write_text(json.dumps(about))
    (run / "usage.json").write_text(json.dumps(usage))
    (run / "metrics.jsonl").write_text('{"seconds": 1.5}\n{"seconds": 2.0}\n')
    (run / "predictions_test.csv").write_text("genes,predicted_x\nb0008,0.5\n")
    (run / "results.json").write_text(json.dumps({"epoch": 1, "rows": rows}))
    return run


def test_runs_become_rows_and_later_ones_replace_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "RESULTS", tmp_path)
    earlier = [write_run(tmp_path / "a", "101-x/y", seed, 0.5 + seed / 8) for seed in (1, 0)]
    later = [write_run(tmp_path / "b", "101-x/y", 1, 0.123456789, covered=0.9)]
    for runs in (earlier, [*later, write_run(tmp_path, "quickstart", 0, None, auroc=0.75)]):
        monkeypatch.setattr("sys.argv", ["collect", *map(str, runs)])
        collect.main()
    rows = collect.read(tmp_path / "101.csv")
    models = ("set_operator", "network + baseline", "training mean")
    assert [(row["seed"], row["model"]) for row in rows] == [(seed, model) for seed in "01" for model in models]
    assert [row["pearson"] for row in rows] == ["0.5", "0.5", "", "0.12346", "0.12346", ""]
    assert [row["covered"] for row in rows] == ["", "", "", "0.9", "0.9", ""]
    assert {path.name for path in tmp_path.glob("*.csv")} == {"101.csv", "quickstart.csv", "runs.csv"}
    assert collect.read(tmp_path / "quickstart.csv")[0]["auroc"] == "0.75"
    assert "auroc" not in rows[0], "other numbers have tables of their own"
    first, second, _ = collect.read(tmp_path / "runs.csv")
    assert first["command"] == "dglcell train x.yaml seed=0"
    assert (first["device"], first["training_seconds"], first["best_epoch"]) == ("cpu", "3.5", "2")
    assert second["commit"] == "1" * 12


def test_cells_keep_the_density_of_published_networks() -> None:
    one, same, other, both = (generated_cell(scale=0.1, **more) for more in ({}, {}, {"seed": 1}, {"symmetrise": True}))
    assert one.sha256 == same.sha256 != other.sha256
    number = len(one.genes)
    share = (len(one.edges(gene_relation("coexpression"))) - number) / number**2
    assert share == pytest.approx(996_199 / GENES**2, rel=0.01)
    for size in PUBLISHED:
        relation = gene_relation(size.name)
        pairs, factor = len(one.edges(relation)) - number, 2 if size.regulators is None else 1
        assert len(both.edges(relation)) == factor * pairs + number, "regulation stays directed"
    with pytest.raises(ConfigError, match=r"`scale` is out of range\n  got:      0.001"):
        generated_cell(scale=0.001)


OF_CORE = {table.name: table for table in TABLES if table.cell == CORE}

ROWS = {
    "growth-60": (60, {1, 2}),
    "growth-144": (144, {1, 2}),
    "singles-137": (137, {1}),
    "growth-3000": (3000, {1, 2}),
    "pairs-3000": (3000, {2}),
    "growth-30000": (29453, {1, 2, 3}),
    "viable-1000": (1000, {1, 2}),
    "epsilon-5000": (5000, {2}),
}


@pytest.mark.parametrize("name", ROWS)
def test_tables_are_what_they_are_called_and_the_same_each_time(name: str, tmp_path: Path) -> None:
    rows = OF_CORE[name].make()
    assert (len(rows), {len(genes) for genes, _ in rows}) == ROWS[name]
    assert len({genes for genes, _ in rows}) == len(rows)
    assert {label for _, label in rows} <= {0.0, 1.0} if name in CLASSES else True
    assert OF_CORE[name].make() == rows
    assert OF_CORE[name].write(tmp_path / "table.csv") == len(rows)
    assert len((tmp_path / "table.csv").read_text().splitlines()) == len(rows) + 1


def test_there_are_twelve_and_scores_become_classes() -> None:
    assert len({table.name for table in TABLES}) == 12
    assert set(ROWS) == set(OF_CORE)
    assert set(CLASSES) < {table.name for table in TABLES}
    rows = [((str(i),), float(i)) for i in range(10)]
    assert [label for _, label in interacting(rows, 0.2)] == [1.0, 1.0, *[0.0] * 8]
    assert [label for _, label in viable(rows, 7.5)] == [*[0.0] * 8, 1.0, 1.0]


def test_a_table_is_given_to_init_and_train(monkeypatch: pytest.MonkeyPatch) -> None:
    def quick(*arguments: Any) -> object:
        chosen = choose_settings(*arguments)
        chosen.keys["trainer"]["epochs"] = 2
        return chosen

    monkeypatch.setattr("dglcell.new_experiment.experiment.choose_settings", quick)
    monkeypatch.setattr("benchmarks.own_tables.train", lambda config: train(replace(config, plot=False)))
    few = OwnTable("few", CORE, "growth", lambda: OF_CORE["growth-144"].make()[::3])
    found = measure(few, seeds=2)
    assert (found["rows"], found["splits"], found["chosen"]["model"]) == (48, 2, GROWTH)
    assert max(found["score"], found["best_baseline_score"]) <= 1
    assert len(found["each_split"][GROWTH]) == 2
    assert PAIRS not in found["each_split"]


@pytest.mark.slow
def test_all_stages_come_to_their_end(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric", reason="the peer is not installed")
    test = "tests/gpu/test_model.py::test_a_tensor_on_no_device_in_particular_is_found"
    words = [str(tmp_path), "--device", "cpu", "--tiny", "--tests", test]
    assert gpu_once.main(words) == 0
    stages = json.loads((tmp_path / "results.json").read_text())["stages"]
    assert list(stages) == list(gpu_once.LIMITS)
    assert {stage["status"] for stage in stages.values()} == {"done"}
    rows = [row for stage in stages.values() for row in stage["found"].get("rows", [])]
    assert len(rows) == 20
    assert all(row["least_ms"] <= row["ms"] <= row["largest_ms"] and "failed" not in row for row in rows)
    assert max(row["error"] for row in rows if "float32" in row["method"] and "error" in row) < 1e-5
    assert "080" in (tmp_path / "table.md").read_text()


pytest.importorskip("torch_geometric")


@pytest.fixture(scope="module")
def cell() -> CellGraph:
    """132 genes."""
    return generated_cell(scale=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("conv", ["gin", "sage"])
def test_predictions_and_all_gradients_agree_in_every_method(cell: CellGraph, conv: str) -> None:
    specs = [spec for spec in methods().values() if not spec.compiled]
    assert {"pyg_spmm", "pyg_replicated", "dgl_loop", "edge_subgraph", "edge_mask"} < {spec.name for spec in specs}
    assert 0 < check(hub_workload(cell, conv), specs, "cpu") <= TOLERANCE


def test_a_forgotten_mask_is_caught(cell: CellGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.pyg import MaskedConv

    def message(self: MaskedConv, x_j: Tensor, mask: Tensor) -> Tensor:
        return x_j

    monkeypatch.setattr(MaskedConv, "message", message)
    with pytest.raises(RuntimeError, match="pyg_replicated and node_mask:auto disagree by"):
        check(hub_workload(cell, "gin"), choose_methods(["node_mask", "pyg_replicated"]), "cpu")


def test_a_wrong_gradient_is_caught_and_named(cell: CellGraph) -> None:
    (node_mask,) = choose_methods(["node_mask"])

    def build(workload: Workload, device: str) -> Method:
        method = node_mask.build(workload, device)
        layer = method.weights.encoder.layers[1]
        layer.convs[3].conv.epsilon.register_hook(lambda grad: grad * (1 + 1e-4))  # type: ignore[union-attr, index]
        return method

    with pytest.raises(RuntimeError, match=r"wrong and node_mask:auto disagree by .* in encoder.layers.1.convs.3.conv"):
        check(hub_workload(cell, "gin"), [node_mask, MethodSpec("wrong", build)], "cpu")


def test_every_kernel_is_tried_and_names_may_be_short() -> None:
    for strategy in ("node_mask", "difference"):
        assert {f"{strategy}:{kernel}" for kernel in ("auto", *KERNELS)} <= set(methods())
    assert [spec.name for spec in choose_methods(["node_mask", "edge_subgraph"])] == ["node_mask:auto", "edge_subgraph"]
    with pytest.raises(ConfigError, match=r"unknown method\n  got:      magic\n  expected: all, pyg_spmm, "):
        choose_methods(["magic"])


def test_weighted_edges_are_beyond_the_peers(cell: CellGraph) -> None:
    relations = {r: cell.edges(r) for r in cell.relations}
    ends = relations[cell.relations[0]]
    relations[cell.relations[0]] = Edges(ends.src, ends.dst, torch.rand(len(ends)).numpy())
    weighted = CellGraph.assemble(cell.vocabularies, relations)
    with pytest.raises(UnsupportedError, match="do not compute edge weights"):
        choose_methods(["pyg_spmm"])[0].build(dataclasses.replace(hub_workload(cell, "gin"), cell=weighted), "cpu")


@pytest.mark.parametrize("name", ["pyg_spmm", "pyg_replicated", "dgl_loop", "node_mask", "difference"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_steps_learn(cell: CellGraph, name: str, dtype: str) -> None:
    workload = hub_workload(cell, "sage")
    torch.manual_seed(0)
    method = choose_methods([name])[0].build(workload, "cpu")
    step = training_step(method, workload, dtype)
    before = float(method.loss(workload.genotypes, workload.targets).detach())
    for _ in range(8):
        step()
    assert float(method.loss(workload.genotypes, workload.targets).detach()) < before


@pytest.mark.parametrize("alone", [[], pytest.param(["--alone", "4", "--cpu-seconds"], marks=pytest.mark.slow)])
def test_steps_are_timed_in_turn_and_kept(alone: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, size = tmp_path / "out.json", ["--scale", "0.02", "--hidden", "8", "--layers", "1", "--rounds", "2"]
    main(["--batch", "2", "3", *size, *alone, "--methods", "pyg_spmm", "difference", "--output", str(out)])
    found = json.loads(out.read_text())
    assert found["environment"]["largest_difference"] <= TOLERANCE
    assert [row["batch"] for row in found["rows"]] == [2, 3]
    for row in found["rows"]:
        peer, ours = row["methods"].values()
        assert peer["peak_bytes"] > 0
        assert peer["times_as_fast"] == 1
        assert ours["times_as_fast"] == pytest.approx(peer["seconds"] / ours["seconds"], rel=0.05)
    assert "difference:auto" in capsys.readouterr().out
