"""Relations that are computed together give what they give one by one, forward and backward."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import gene_relation
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.nn.config import GINOptions
from dglcell.nn.convolutions import GINConv
from dglcell.nn.hetero_layer import HeteroLayer, RelationConv, RowSum, StackedConvs, structure_of
from dglcell.perturbation import execution, perturb
from dglcell.perturbation.curves import CURVES, allow_compilation
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.rules import PerturbedTensor
from dglcell.perturbation.states import States
from tests.perturbation.states_of import agree
from tests.random_cells import randomise, results, textbook_cell

STRAINS = GenotypeBatch.from_lists([[], [3], [10, 40, 90], [3, 5]])
CONFIG: dict[str, Any] = {"hidden": 8, "layers": 2, "local_heads": 2, "dropout": 0.0, "strategy": "node_mask"}
COMBINATIONS = ("sum", "mean", "pairwise_interaction")


@pytest.fixture(scope="module")
def resident() -> ResidentCell:
    """Return the E. coli core cell: three relations among genes, and metabolism, of which relations stay alone."""
    return textbook_cell("shares_complex", "metabolic_neighbour", "isoenzyme")


class Route:
    """Lets a CPU compute relations together, as a GPU does, or one by one; and notes what was computed together."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.together: list[int] = []
        forward = StackedConvs.forward

        def noted(stacked: StackedConvs, x: Tensor, received: Tensor) -> Tensor:
            self.together.append(len(stacked.convs))
            return forward(stacked, x, received)

        patch.setattr(StackedConvs, "forward", noted)

    def stack(self, yes: bool) -> None:
        """Choose."""
        self.together.clear()
        self._patch.setattr(perturb, "LISTING_DEVICES", () if yes else ("cpu",))


@pytest.fixture
def route(monkeypatch: pytest.MonkeyPatch) -> Route:
    return Route(monkeypatch)


def model_of(resident: ResidentCell, **options: Any) -> HeteroCell:
    torch.manual_seed(0)
    return randomise(HeteroCell(resident, HeteroCellConfig(**{**CONFIG, **options})).double().train())


class Own(GINConv):
    """A convolution of a user's own, which receives something else than what it inherits from."""

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        return perturbed.aggregate(self.relation, source, "mean")


@pytest.mark.parametrize("other", [{"activation": "relu"}, {"hidden": 5}, {"layers": 3}, {}], ids=str)
def test_a_convolution_that_differs_in_more_than_weights_is_computed_alone(
    resident: ResidentCell, route: Route, other: dict[str, Any]
) -> None:
    """One with nothing else is of a class that inherits what it is made of."""
    model, kind = model_of(resident, layers=1), GINConv if other else Own
    layer = cast(HeteroLayer, model.encoder.layers[0])
    settings: dict[str, Any] = {"hidden": 8, "layers": 2, "activation": "gelu", "dropout": 0.0, **other}
    first = cast(RelationConv, layer.convs[0])
    first.conv = kind(first.conv.relation, 8, GINOptions(**settings)).double()
    layer.structures[0] = structure_of(first.conv)
    route.stack(True)
    together = results(model, STRAINS)
    assert max(route.together) == 2
    route.stack(False)
    agree(together, results(model, STRAINS))
    assert not route.together


def stacked_convs(dropout: float, layers: int = 2) -> StackedConvs:
    """Return three convolutions with the same weights."""
    relations = [gene_relation(name) for name in "abc"]
    torch.manual_seed(0)
    gins = [GINConv(r, 8, GINOptions(8, layers, "gelu", dropout)) for r in relations]
    convs = [RelationConv(gin, 8, "layer", "gelu", dropout) for gin in gins]
    for conv in convs[1:]:
        conv.load_state_dict(convs[0].state_dict())
    return StackedConvs(relations, convs)


def test_every_relation_drops_on_its_own_and_all_strains_alike() -> None:
    x, received = torch.randn(50, 8), torch.randn(1, 50, 8).expand(3, -1, -1)
    delta = torch.randn(1, 200, 8).expand(3, -1, -1)
    out = stacked_convs(0.5)(PerturbedTensor(x, None, 4), PerturbedTensor(received, delta, 4))
    dropped = out.base == 0
    assert dropped.float().mean() == pytest.approx(0.5, abs=0.1)
    assert torch.equal((out.delta == 0).unflatten(1, (50, 4)), dropped.unsqueeze(2).expand(-1, -1, 4, -1))
    assert all((dropped[i] != dropped[i - 1]).any() for i in range(3))


def test_layers_of_one_structure_are_compiled_once() -> None:
    torch.compiler.reset()
    allow_compilation()
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    run = torch.compile(execution._run, backend=backend, fullgraph=True)
    bases, deltas = [torch.randn(5, 8), torch.randn(3, 5, 8)], [torch.randn(20, 8), torch.randn(3, 20, 8)]
    for _ in range(2):
        total = RowSum(stacked_convs(0.0))
        torch.testing.assert_close(run(total, 4, bases, deltas), execution._run(total, 4, bases, deltas))
    assert len(graphs) == 1


@pytest.mark.parametrize("together", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_gradients_of_compiled_layers_are_those_of_the_rules(together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what the compiler makes of the forward pass, which moves more bytes."""
    torch.compiler.reset()
    allow_compilation()
    called: list[str] = []
    for name, curve in CURVES.items():

        def noted(*arguments: Any, _name: str = name, _gradient: Any = curve.gradient) -> Tensor:
            called.append(_name)
            return cast(Tensor, _gradient(*arguments))

        monkeypatch.setitem(CURVES, name, dataclasses.replace(curve, gradient=noted))
    convs = stacked_convs(0.0, layers=1)
    function = RowSum(convs) if together else convs.convs[0]
    shape = (3,) if together else ()

    def gradients(run: Any, leaves: list[Tensor], strains: int) -> list[Tensor]:
        x, received, *deltas = (leaf.clone().requires_grad_() for leaf in leaves)
        out = run(function, strains, [x, received], deltas)
        return list(torch.autograd.grad([part.square().sum() for part in out], [x, received, *deltas]))

    compiled = torch.compile(execution._run, backend="aot_eager", fullgraph=True)
    for nodes, strains in ((5, 4), (7, 3)):  # the second time, sizes are symbols
        sizes = ((nodes,), (*shape, nodes), (nodes * strains,), (*shape, nodes * strains))
        leaves = [torch.randn(*size, 8) for size in sizes]
        expected = gradients(execution._run, leaves, strains)
        called.clear()
        torch.testing.assert_close(gradients(compiled, leaves, strains), expected, rtol=1e-5, atol=1e-5)
        assert {"gelu", "norm"} <= set(called)


@pytest.mark.slow
@pytest.mark.parametrize("conv", ["gin", "sage"])
@pytest.mark.parametrize("how", COMBINATIONS)
def test_a_compiled_model_gives_the_same(
    resident: ResidentCell, conv: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machine code takes half a minute for each; ``test_states`` compiles a layer."""
    if not execution.compiler_works("cpu"):
        pytest.skip("needs a C++ compiler")
    monkeypatch.setattr(execution, "COMPILED_ROWS", 1)
    monkeypatch.setattr(execution, "VARIANTS", 256)
    allow_compilation()
    model, found = model_of(resident, hidden=4, layers=1, conv=conv, cross_relation=how), []
    for compiled in (False, True):
        model.choose(execution.Choices("node_mask", compiled=compiled))
        found.append(results(model, STRAINS))
    torch.compiler.reset()
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-10)
