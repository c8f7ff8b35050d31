"""Layers, combinations, heads and links give the same when torch's own compiler has joined their operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.nn.blocks import make_norm
from dglcell.nn.config import LINKS
from dglcell.nn.heads import FactorisationMachine, HyperSAGNN
from dglcell.perturbation import execution
from dglcell.perturbation.curves import allow_compilation
from dglcell.perturbation.execution import compiler_works
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import Choices
from tests.models.terms.test_link import new_link
from tests.random_cells import textbook_cell

WIDTH = 4


pytestmark = pytest.mark.slow


@pytest.fixture(params=["aot_eager", "inductor"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Machine code takes half a minute for each; without it, operations are joined but not translated.

    ``tests/perturbation/test_states.py`` translates a layer.
    """
    if request.param == "inductor" and not compiler_works("cpu"):
        pytest.skip("needs a C++ compiler")
    torch.manual_seed(0)
    allow_compilation()
    yield request.param
    torch.compiler.reset()


def gradients(outputs: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    sums = torch.stack([out.square().sum() for out in outputs])
    return list(torch.autograd.grad(sums.sum(), inputs, allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize("backend", ["inductor"], indirect=True)
@pytest.mark.parametrize("conv", ["gin", "sage"])
@pytest.mark.parametrize("how", ["sum", "mean", "pairwise_interaction"])
def test_layers_of_a_model(backend: str, conv: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "COMPILED_ROWS", 1)
    monkeypatch.setattr(execution, "VARIANTS", 256)
    cell = textbook_cell("shares_complex", "isoenzyme")
    config = HeteroCellConfig(
        hidden=WIDTH, layers=1, conv=conv, conv_heads=2, cross_relation=how, local_heads=2,
        strategy="node_mask",
    )  # fmt: skip
    model = HeteroCell(cell, config).double()
    strains, found = GenotypeBatch.from_lists([[3], [10, 40], [3, 5]]), []
    for compiled in (False, True):
        model.choose(Choices("node_mask", compiled=compiled))
        phenotypes = model(strains).phenotypes
        found.append([phenotypes, *gradients([phenotypes], list(model.parameters()))])
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-10)


def heads() -> list[Callable[[Tensor, Tensor, Tensor], Tensor]]:
    attention = HyperSAGNN(WIDTH, 1, layers=2, heads=2, gain=0.5, activation="gelu", dropout=0.0)
    factorisation = FactorisationMachine(WIDTH, 1, factors=3, dropout=0.0, genes=6)
    norm = make_norm("layer", WIDTH)
    return [lambda x, genes, present: attention(norm(x), present) + factorisation(norm(x), genes, present)]


def test_heads_and_links(backend: str) -> None:
    genes, present = torch.tensor([[0, 1], [2, 0], [5, 4]]), torch.tensor([[True, True], [True, False], [True, True]])
    states = torch.randn(3, 2, WIDTH, requires_grad=True)
    bound = torch.tensor([[0.5], [1.0], [0.9]])
    links = []
    for name in LINKS:
        link = new_link(name)
        link.choose([name], torch.full((1,), 0.2), torch.full((1,), 1.5))
        links.append(link)
    scored = heads()

    def outputs(states: Tensor) -> list[Tensor]:
        scores = [head(states, genes, present) for head in scored]
        return [*scores, *(link.phenotypes(scores[0], scores[0][:1] * 0, bound) for link in links)]

    found = []
    for run in (outputs, torch.compile(outputs, backend=backend)):
        values = run(states)
        found.append([*values, *gradients(values, [states])])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
