"""Every strategy against one graph per strain on the CPU, in float64, forward and in every gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dglcell.nn.convolutions import GATv2Score
from dglcell.perturbation import STRATEGIES
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import PerturbedCell, perturb
from dglcell.perturbation.row_index import RowIndex
from dglcell.perturbation.states import DifferenceStates, Execution, States
from dglcell.perturbation.strategies import difference
from tests.gpu.cells import SIZES, STRAINS, make_cell
from tests.gpu.devices import REFERENCE, ExplicitDevices, strategies_on
from tests.perturbation.states_of import Values, agree, states_of

WIDTH, HEADS = 6, 2
# A chain, so that later products start from states in which strains differ.
CHAIN = [("gene", "physical", "gene"), ("gene", "catalyses", "reaction"), ("reaction", "converts", "metabolite")]


def receive(perturbed: PerturbedCell, relation, how: str, states: dict[str, States], score: GATv2Score) -> States:
    if how != "attention":
        return perturbed.aggregate(relation, states[relation[0]], how)
    return perturbed.attend(relation, states[relation[0]], states[relation[2]], score)


def outcome(device: str, strategy: str, how: str, shared: bool, dense_share: float = 0.5) -> dict[str, Tensor]:
    """Results of the chain and gradients of all inputs, on the host."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device).requires_grad_()

    strains = GenotypeBatch.from_lists(STRAINS).to(device)
    leaves = {t: random(n, WIDTH) for t, n in SIZES.items()}
    deltas = {t: None if shared else random(n, len(STRAINS), WIDTH) for t, n in SIZES.items()}
    leaves |= {"vector": random(HEADS, WIDTH // HEADS), "edge_vector": random(WIDTH)}
    leaves |= {f"difference of {t}": delta for t, delta in deltas.items() if delta is not None}
    cell = make_cell().resident.to(device)
    with ExplicitDevices():
        perturbed = perturb(cell, strains, strategy, execution=Execution(dense_share=dense_share))
        states = {t: states_of(perturbed, Values(leaves[t], deltas[t])) for t in SIZES}
        total, results = torch.zeros((), dtype=torch.float64, device=device), {}
        for number, relation in enumerate(CHAIN):
            weighted = leaves["edge_vector"] if relation[1] == "converts" else None
            new = receive(perturbed, relation, how, states, GATv2Score(leaves["vector"], weighted))
            states[relation[2]] = new
            results[relation[1]] = new.whole()
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
        pytest.skip("needs DGL's kernels for GPUs")
    monkeypatch.setattr(difference, "ATTEND_SHARE", dense_share)
    expected = outcome("cpu", REFERENCE, how, shared)
    got = outcome(device, strategy, how, shared, dense_share)
    for name, value in expected.items():
        agree([got[name]], [value], name)


def test_sets_of_pairs_are_the_same_everywhere(device: str) -> None:
    mask_NB = torch.rand(40, 7, generator=torch.Generator().manual_seed(0)) < 0.2
    here, there = RowIndex(mask_NB), RowIndex(mask_NB.to(device))
    for name in ("keys", "strains", "nodes", "starts", "table"):
        assert torch.equal(getattr(there, name).cpu(), getattr(here, name)), name
    base, delta = torch.randn(40, 3), torch.randn(len(here), 3)
    moved = DifferenceStates(base.to(device), delta.to(device), there, 7, Execution())
    assert torch.equal(moved.whole().cpu(), DifferenceStates(base, delta, here, 7, Execution()).whole())
