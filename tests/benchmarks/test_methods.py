"""Methods by name, and what each can compute."""

from __future__ import annotations

import dataclasses
import sys

import pytest
import torch

from benchmarks.methods import UnsupportedError, build_dango, choose_methods, methods, six_networks, training_step
from benchmarks.workload import hub_workload
from dglcell.errors import ConfigError, MissingDependencyError
from dglcell.graph.cell_graph import CellGraph, Edges
from dglcell.kernels.spmm import KERNELS
from tests.benchmarks.cells import small_cell, small_workload


def test_every_kernel_is_tried_with_the_strategies_that_use_one() -> None:
    names = list(methods())
    assert names[0] == "pyg_replicated"
    for strategy in ("node_mask", "difference"):
        assert {f"{strategy}:{kernel}" for kernel in ("auto", *KERNELS)} <= set(names)


def test_names_may_be_short_and_are_taken_once() -> None:
    chosen = choose_methods(["node_mask", "node_mask:auto", "edge_subgraph", "dango"])
    assert [spec.name for spec in chosen] == ["node_mask:auto", "dgl_edge_subgraph", "dango"]
    assert [spec.strategy for spec in chosen] == ["node_mask", "edge_subgraph", None]
    assert [spec.name for spec in choose_methods(["all"])] == list(methods())


def test_unknown_methods_are_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown method\n  got:      magic\n  expected: all, pyg_replicated, "):
        choose_methods(["magic"])


def test_a_missing_torch_geometric_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("benchmarks.pyg")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    workload = hub_workload(small_cell(), "gin")
    with pytest.raises(MissingDependencyError, match=r"install dglcell\[bench\]"):
        choose_methods(["pyg_spmm"])[0].build(workload, "cpu")


def test_weighted_edges_are_beyond_the_pyg_methods() -> None:
    workload = small_workload()
    relation = workload.cell.relations[0]
    relations = {r: workload.cell.edges(r) for r in workload.cell.relations}
    ends = relations[relation]
    relations[relation] = Edges(ends.src, ends.dst, torch.rand(len(ends)).numpy())
    weighted = dataclasses.replace(workload, cell=CellGraph.assemble(workload.cell.vocabularies, relations))
    with pytest.raises(UnsupportedError, match="do not compute edge weights"):
        choose_methods(["pyg_replicated"])[0].build(weighted, "cpu")


@pytest.mark.parametrize(
    "name", ["pyg_replicated", "pyg_node_dim", "pyg_spmm", "node_mask", "difference", "dango", "dango_dense"]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_steps_learn(name: str, dtype: str) -> None:
    workload = small_workload("sage")
    torch.manual_seed(0)
    method = choose_methods([name])[0].build(workload, "cpu")
    step = training_step(method, workload, dtype)
    before = float(method.loss(workload.genotypes, workload.targets).detach())
    for _ in range(8):
        step()
    assert float(method.loss(workload.genotypes, workload.targets).detach()) < before


def test_dense_matrices_give_dango_the_same_loss_and_gradients() -> None:
    workload = small_workload().double()
    sparse, dense = (build_dango(workload, "cpu", dense=dense).double() for dense in (False, True))
    losses = [method.loss(workload.genotypes, workload.targets) for method in (sparse, dense)]
    torch.testing.assert_close(*losses, atol=1e-10, rtol=1e-10)
    gradients = [
        torch.autograd.grad(loss, list(method.parameters()))
        for loss, method in zip(losses, (sparse, dense), strict=True)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


def test_dango_takes_the_six_channels_or_the_six_largest_networks() -> None:
    cell = small_cell()
    assert {r[1] for r in six_networks(cell)} >= {"fusion", "cooccurence"}
    rest = {r: cell.edges(r) for r in cell.relations if r[1] != "fusion"}
    names = [r[1] for r in six_networks(CellGraph.assemble(cell.vocabularies, rest))]
    assert names[:2] == ["coexpression", "experimental"]
    assert len(names) == 6
