"""Every strategy against one graph per strain on the CPU, in float64, forward and in every gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dglcell.kernels.attention import GATv2Score
from dglcell.perturbation import difference, difference_attention
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import STRATEGIES, PerturbedCell, perturb
from dglcell.perturbation.row_index import RowIndex
from dglcell.perturbation.states import DenseStates, SharedStates, States
from tests.gpu.cells import SIZES, STRAINS, make_cell
from tests.gpu.devices import ExplicitDevices, strategies_on

WIDTH, HEADS = 6, 2
# A chain, so that later products start from states in which strains differ.
CHAIN = [("gene", "physical", "gene"), ("gene", "catalyses", "reaction"), ("reaction", "converts", "metabolite")]


def receive(perturbed: PerturbedCell, relation, how: str, states: dict[str, States], score: GATv2Score) -> States:
    if how != "attention":
        return perturbed.aggregate(relation, states[relation[0]], how)
    return perturbed.attend(relation, states[relation[0]], states[relation[2]], score)


def outcome(device: str, strategy: str, how: str, shared: bool) -> dict[str, Tensor]:
    """Results of the chain and gradients of all inputs, on the host."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device).requires_grad_()

    strains = GenotypeBatch.from_lists(STRAINS).to(device)
    leaves = {t: random(n, *(() if shared else (len(STRAINS),)), WIDTH) for t, n in SIZES.items()}
    leaves |= {"vector": random(HEADS, WIDTH // HEADS), "edge_vector": random(WIDTH)}
    cell = make_cell().resident.to(device)
    with ExplicitDevices():
        perturbed = perturb(cell, strains, strategy)
        states = {t: States.shared(leaves[t]) if shared else DenseStates(leaves[t]) for t in SIZES}
        total, results = torch.zeros((), dtype=torch.float64, device=device), {}
        for number, relation in enumerate(CHAIN):
            weighted = leaves["edge_vector"] if relation[1] == "converts" else None
            new = receive(perturbed, relation, how, states, GATv2Score(leaves["vector"], weighted))
            states[relation[2]] = new
            results[relation[1]] = new.dense().expand(-1, len(STRAINS), -1)
            total = total + (number + 1) * results[relation[1]].square().sum()
        total.backward()
    gradients = {f"gradient of {n}": torch.zeros_like(x) if x.grad is None else x.grad for n, x in leaves.items()}
    return {name: x.detach().cpu() for name, x in (results | gradients).items()}


# The strategy, and from which share of changed rows `difference` makes states dense.
CASES = [(strategy, 1e9) for strategy in STRATEGIES] + [("difference", 0.05)]


@pytest.mark.parametrize(("strategy", "dense_share"), CASES)
@pytest.mark.parametrize("how", ["sum", "mean", "attention"])
@pytest.mark.parametrize("shared", [True, False])
def test_a_strategy_equals_one_graph_per_strain(
    device: str, strategy: str, how: str, shared: bool, dense_share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if strategy not in strategies_on(device):
        pytest.skip(f"this DGL build has no {device} kernels")
    monkeypatch.setattr(difference, "DENSE_SHARE", dense_share)
    monkeypatch.setattr(difference_attention, "DENSE_SHARE", dense_share)
    expected, got = outcome("cpu", "edge_subgraph", how, shared), outcome(device, strategy, how, shared)
    for name, value in expected.items():
        scale = max(1.0, float(value.abs().max()))
        assert float((got[name] - value).abs().max()) <= 1e-10 * scale, name


def test_sets_of_pairs_are_the_same_everywhere(device: str) -> None:
    mask_NB = torch.rand(40, 7, generator=torch.Generator().manual_seed(0)) < 0.2
    here, there = RowIndex.where(mask_NB), RowIndex.where(mask_NB.to(device))
    for name in ("keys", "strains", "nodes", "table"):
        assert torch.equal(getattr(there, name).cpu(), getattr(here, name)), name
    rows = torch.randn(40 + len(here), 3, generator=torch.Generator().manual_seed(1))
    moved = SharedStates(rows.to(device), there)
    assert torch.equal(moved.dense().cpu(), SharedStates(rows, here).dense())
