"""All methods compute the same, and it shows where one does not."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from benchmarks.agreement import TOLERANCE, Agreement, check_agreement, check_methods
from benchmarks.methods import Method, MethodSpec, choose_methods, methods
from benchmarks.workload import Workload, random_workload
from dglcell.graph.schema import GENE
from dglcell.nn.config import LEARNED
from tests.benchmarks.cells import SETTING, small_cell, small_workload

PLAIN = [name for name, spec in methods().items() if spec.same_predictions and not spec.compiled]


@pytest.mark.slow
@pytest.mark.parametrize("conv", ["gin", "sage"])
def test_predictions_and_all_gradients_agree_in_every_method(conv: str) -> None:
    specs = choose_methods(PLAIN)
    assert {"pyg_replicated", "pyg_node_dim", "pyg_spmm", "dgl_edge_subgraph", "edge_mask"} < {s.name for s in specs}
    worst = check_agreement(small_workload(conv), specs, "cpu")
    assert 0 < worst <= TOLERANCE


@pytest.mark.parametrize("cross_relation", LEARNED)
@pytest.mark.slow
def test_learned_combinations_of_relations_agree_too(cross_relation: str) -> None:
    model = dataclasses.replace(SETTING.model(metabolism=True), cross_relation=cross_relation)
    workload = random_workload(small_cell(), model, SETTING.batch, deletions=2, seed=0)
    specs = choose_methods(["pyg_replicated", "pyg_node_dim", "pyg_spmm", "node_mask", "difference"])
    assert 0 < check_agreement(workload, specs, "cpu") <= TOLERANCE


def test_methods_agree_where_nodes_have_features() -> None:
    workload = small_workload()
    features = torch.rand(workload.cell.num_nodes[GENE], 3, generator=torch.Generator().manual_seed(0))
    workload = dataclasses.replace(workload, features={GENE: features})
    assert 0 < check_agreement(workload, choose_methods(["node_mask", "difference", "edge_mask"]), "cpu") <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("conv", ["gin", "sage"])
def test_the_compiled_method_agrees_too(conv: str) -> None:
    specs = choose_methods(["node_mask", "pyg_replicated_compiled"])
    assert check_methods([small_workload(conv)], specs, "cpu").faults == {}


def test_dango_is_compared_with_nothing() -> None:
    assert check_methods([small_workload()], choose_methods(["dango", "node_mask"]), "cpu") == Agreement(0.0, {})


@pytest.mark.slow
def test_a_compiler_that_miscompiles_is_a_fault_and_not_the_end() -> None:
    node_mask = choose_methods(["node_mask"])[0]

    def build(workload: Workload, device: str) -> Method:
        method = node_mask.build(workload, device)
        method.register_forward_hook(lambda _module, _inputs, out: out * 2)
        return method

    compiled = MethodSpec("miscompiled", build, compiled=True)
    found = check_methods([small_workload()], [node_mask, compiled], "cpu")
    assert list(found.faults) == ["miscompiled"]
    assert found.faults["miscompiled"].startswith("miscompiled and node_mask:auto disagree: predictions differ by")


def test_a_forgotten_mask_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = small_workload()
    from benchmarks.pyg import MaskedConv

    def message(self: MaskedConv, x_j: Tensor, mask: Tensor) -> Tensor:
        return x_j

    monkeypatch.setattr(MaskedConv, "message", message)
    with pytest.raises(RuntimeError, match="pyg_replicated and node_mask:auto disagree: predictions differ by"):
        check_agreement(workload, choose_methods(["node_mask", "pyg_replicated"]), "cpu")


def test_a_wrong_gradient_is_caught_and_named() -> None:
    node_mask = choose_methods(["node_mask"])[0]

    def build(workload: Workload, device: str) -> Method:
        method = node_mask.build(workload, device)
        assert method.weights is not None
        epsilon = method.weights.encoder.layers[1].convs[3].conv.epsilon
        epsilon.register_hook(lambda grad: grad * (1 + 1e-4))
        return method

    wrong = MethodSpec("wrong", build)
    with pytest.raises(
        RuntimeError, match=r"wrong and node_mask:auto disagree: the gradient of `encoder.layers.1.convs.3.conv"
    ):
        check_agreement(small_workload(), [node_mask, wrong], "cpu")


def test_epsilon_and_norms_are_not_what_a_new_model_has(monkeypatch: pytest.MonkeyPatch) -> None:
    # A method that leaves epsilon out would agree while epsilon is zero.
    from dglcell.nn.convolutions import GINConv

    workload = small_workload()
    seen = []
    monkeypatch.setattr(GINConv, "receive", _spy(GINConv.receive, seen))
    check_agreement(workload, choose_methods(["node_mask"]), "cpu")
    assert torch.stack(seen).abs().min() > 0


def _spy(forward, seen):
    def spied(self, *arguments):
        seen.append(self.epsilon.detach().clone())
        return forward(self, *arguments)

    return spied
