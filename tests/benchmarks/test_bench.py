"""Methods compute the same before they are timed, and it shows where one does not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.bench import TOLERANCE, check, main
from benchmarks.cells import generated_cell
from benchmarks.methods import Method, MethodSpec, UnsupportedError, choose_methods, methods, training_step
from benchmarks.workload import Workload, hub_workload
from dglcell.errors import ConfigError
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import Edges
from dglcell.kernels.spmm import KERNELS

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
