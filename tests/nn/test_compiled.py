"""Layers, combinations, heads and links give the same when torch's own compiler has joined their operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dglcell.graph.cell import build_cell
from dglcell.graph.config import CellConfig
from dglcell.graph.resident import ResidentCell
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.nn.blocks import make_norm
from dglcell.nn.config import LINKS, CrossRelation
from dglcell.nn.cross_relation import make_mixer
from dglcell.nn.heads import Combination, FactorisationMachine, HyperSAGNN, LocalHead
from dglcell.nn.links import Link
from dglcell.perturbation import execution
from dglcell.perturbation.choose.autotuned import Autotuned
from dglcell.perturbation.curves import allow_compilation
from dglcell.perturbation.execution import compiler_works
from dglcell.perturbation.genotype import GenotypeBatch

WIDTH = 4


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    if not compiler_works("cpu"):
        pytest.skip("needs a C++ compiler")
    torch.manual_seed(0)
    allow_compilation()
    yield
    torch.compiler.reset()


def gradients(outputs: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    found = torch.autograd.grad([out.square().sum() for out in outputs], inputs, allow_unused=True)
    return [torch.zeros(()) if grad is None else grad for grad in found]


SLOW = pytest.mark.slow
"""The compiler takes half a minute for each."""


@pytest.mark.parametrize("how", [pytest.param("cross_attention", marks=SLOW), "pairwise_interaction"])
@pytest.mark.parametrize("nodes", [pytest.param(7, marks=SLOW), WIDTH], ids=["more rows", "as many rows as columns"])
def test_combinations_of_relations(how: str, nodes: int) -> None:
    mixer = make_mixer(CrossRelation(how=how, heads=2, norm="layer"), 3, WIDTH)
    assert mixer is not None
    mixer.double()
    bases = [torch.randn(nodes, WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    deltas = [torch.randn(2 * nodes, WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    leaves, found = [*bases, *deltas, *mixer.parameters()], []
    for run in (execution._run, torch.compile(execution._run)):
        outputs = [part for part in run(mixer, 2, bases, deltas) if part is not None]
        found.append([*outputs, *gradients(outputs, leaves)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-9)


@SLOW
@pytest.mark.parametrize("conv", ["gin", "sage", "gatv2"])
@pytest.mark.parametrize("how", ["sum", "mean", "cross_attention", "pairwise_interaction"])
def test_layers_of_a_model(conv: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "COMPILED_ROWS", 1)
    monkeypatch.setattr(execution, "VARIANTS", 256)
    cell = ResidentCell.of(build_cell(CellConfig(model="textbook", derived=["shares_complex", "isoenzyme"])))
    config = HeteroCellConfig(
        hidden=WIDTH, layers=1, conv=conv, conv_heads=2, cross_relation=how, cross_relation_heads=2, local_heads=2,
        strategy="node_mask",
    )  # fmt: skip
    model = HeteroCell(cell, config).double()
    strains, found = GenotypeBatch.from_lists([[3], [10, 40], [3, 5]]), []
    for compiled in (False, True):
        model.choose(Autotuned("node_mask").for_layers(compiled=compiled, half=False))
        phenotypes = model(strains).phenotypes
        found.append([phenotypes, *gradients([phenotypes], list(model.parameters()))])
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-10)


def heads() -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    attention = HyperSAGNN(WIDTH, 1, layers=2, heads=2, gain=0.5, activation="gelu", dropout=0.0)
    factorisation = FactorisationMachine(WIDTH, 1, factors=3, dropout=0.0, genes=6)
    combination = Combination(1, how="gated", width=WIDTH, activation="gelu", dropout=0.0)
    made: dict[str, nn.Module] = {
        "hyper_sagnn": LocalHead(attention, None),
        "factorisation": LocalHead(None, factorisation),
        "both": LocalHead(attention, factorisation),
    }
    norm = make_norm("rms", WIDTH)
    found: dict[str, Any] = {
        kind: lambda x, genes, present, head=head: head(norm(x), genes, present) for kind, head in made.items()
    }
    found["gated"] = lambda x, genes, present: combination(x[:, 0, :1], x[:, 1, :1])[0]
    return found


def test_heads_and_links() -> None:
    genes, present = torch.tensor([[0, 1], [2, 0], [5, 4]]), torch.tensor([[True, True], [True, False], [True, True]])
    states = torch.randn(3, 2, WIDTH, requires_grad=True)
    bound = torch.tensor([[0.5], [1.0], [0.9]])
    links = []
    for name in LINKS:
        link = Link(1, name, "gene")
        link.choose([name], torch.full((1,), 0.2), torch.full((1,), 1.5))
        links.append(link)
    scored = heads()

    def outputs(states: Tensor) -> list[Tensor]:
        scores = [head(states, genes, present) for head in scored.values()]
        return [*scores, *(link(scores[0], scores[0][:1] * 0, bound) for link in links)]

    found = []
    for run in (outputs, torch.compile(outputs)):
        values = run(states)
        found.append([*values, *gradients(values, [states])])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
