"""States against plain tensors of every strain's rows, forward and backward, and relations computed together."""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.cells import generated_cell
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import gene_relation
from dglcell.kernels.rows import RowIndex
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.nn.config import CROSS_RELATION, GINOptions
from dglcell.nn.convolutions import GINConv
from dglcell.nn.hetero_layer import HeteroLayer, RelationConv, RowSum, StackedConvs, structure_of
from dglcell.perturbation import execution, perturb
from dglcell.perturbation import rules as differences
from dglcell.perturbation.curves import CURVES, allow_compilation
from dglcell.perturbation.execution import Choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import PerturbedCell
from dglcell.perturbation.rules import PerturbedTensor
from dglcell.perturbation.sent import Kept
from dglcell.perturbation.states import DifferenceStates, States, WholeStates
from tests.examples import examples
from tests.random_cells import agree, gradients, randomise, results, textbook_cell

WIDTH = 3


@dataclass
class Values:
    """States of all nodes of a type in plain tensors, of which gradients can be taken."""

    base_NH: Tensor  #: of the base
    delta_NBH: Tensor | None = None  #: by how much strains differ from it; None where none does
    mask_NB: Tensor | None = None  #: the pairs that differ, where they are listed; None for all

    @property
    def leaves(self) -> list[Tensor]:
        return [self.base_NH] if self.delta_NBH is None else [self.base_NH, self.delta_NBH]

    def whole(self, strains: int) -> Tensor:
        """[N, B, H]."""
        base_N1H = self.base_NH.unsqueeze(1)
        if self.delta_NBH is None:
            return base_N1H.expand(-1, strains, -1)
        return base_N1H + (self.delta_NBH if self.mask_NB is None else self.delta_NBH * self.mask_NB.unsqueeze(-1))

    def under(self, start: States) -> States:
        """As a strategy keeps them, whose states are ``start`` before anything differs."""
        if self.delta_NBH is None:
            return start
        if isinstance(start, WholeStates):
            whole_NBH = self.whole(start.num_strains)
            return WholeStates(torch.cat([self.base_NH.unsqueeze(1), whole_NBH], dim=1), start.num_strains)
        assert isinstance(start, DifferenceStates)
        if self.mask_NB is None:
            return start.with_difference(self.base_NH, self.delta_NBH)
        index = RowIndex(self.mask_NB)
        return start.with_difference(self.base_NH, self.delta_NBH.flatten(0, 1)[index.keys], index)


@st.composite
def values_of(draw: st.DrawFn, nodes: int, strains: int, width: int) -> Values:
    """No pair differs, all of them do, or no, some or all pairs are listed."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    how = draw(st.sampled_from(["same", "dense", 0.0, 0.3, 1.0]))
    if how == "same":
        return Values(random(nodes, width))
    mask_NB = None if how == "dense" else torch.rand(nodes, strains, generator=generator) < how
    return Values(random(nodes, width), random(nodes, strains, width), mask_NB)


def start(values: Values, strains: int, choices: Choices | None = None, kind: str = "difference") -> States:
    """Return the values as states of a kind."""
    if kind == "whole":
        return values.under(WholeStates(values.base_NH.unsqueeze(1), strains))
    return values.under(DifferenceStates(values.base_NH, None, None, strains, choices or Choices()))


@examples(10)
@given(
    data=st.data(), nodes=st.integers(1, 6), strains=st.integers(1, 4), kind=st.sampled_from(["difference", "whole"])
)
def test_rows_are_those_of_the_pairs(data: Any, nodes: int, strains: int, kind: str) -> None:
    values = data.draw(values_of(nodes, strains, WIDTH))
    chosen = torch.randint(0, nodes, (2, 3)), torch.randint(0, strains, (2, 3))
    found, expected = start(values, strains, kind=kind).rows(*chosen), values.whole(strains)[chosen]
    agree([found], [expected])
    agree(gradients(found, values.leaves), gradients(expected, values.leaves))


@pytest.mark.parametrize("recompute", [True, False])
def test_little_is_kept_between_the_passes_where_it_is_recomputed(recompute: bool) -> None:
    linear, kept, calls = nn.Linear(WIDTH, WIDTH, dtype=torch.float64), dict[int, int](), 0
    values = Values(torch.randn(50, WIDTH).double().requires_grad_(), torch.randn(50, 4, WIDTH).double())
    states = start(values, 4, Choices(recompute=recompute))

    def counted(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return torch.tanh(linear(x) * torch.tanh(linear(x) * x))

    def keep(x: Tensor) -> Tensor:
        kept[x.data_ptr()] = x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        out = states.map(counted).whole()
    assert calls == 1
    out.sum().backward()
    assert calls == (2 if recompute else 1)
    assert (sum(kept.values()) <= 2 * (50 + 200) * WIDTH) == recompute


@pytest.mark.parametrize("spread", [12.0, 30.0, 200.0])
@pytest.mark.parametrize("kind", ["difference", "whole"])
def test_pooling_is_right_where_nearly_all_of_the_softmax_moves(spread: float, kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(40, 3, generator=generator, requires_grad=True)
    logits, rises_NB1 = torch.randn(40, 1, generator=generator), torch.zeros(40, 3, 1)
    logits[7] += spread
    rises_NB1[3, 2] = 2 * spread
    kept = Kept(torch.ones(40, 1, dtype=torch.bool), torch.ones(40, 3, dtype=torch.bool))
    kept.strains_NB[7, 1] = False
    gate = start(Values(logits, rises_NB1, rises_NB1.squeeze(2) > 0), 3, kind=kind)
    pooled = start(Values(value), 3, kind=kind).pool(gate, kept)
    whole_BH, rest = pooled.base_1H + pooled.difference_BH, torch.arange(40) != 7
    torch.testing.assert_close(whole_BH[1:2], torch.softmax(logits[rest], 0).T @ value[rest])
    torch.testing.assert_close(whole_BH[2:], torch.softmax(logits + rises_NB1[:, 2], 0).T @ value)
    (gradient,) = torch.autograd.grad(whole_BH[1].sum(), value)
    torch.testing.assert_close(gradient[rest], torch.softmax(logits[rest], 0).expand(-1, 3))
    assert gradient[7].abs().max() < 1e-6


@pytest.mark.parametrize("known", [False, True])
def test_a_compiled_function_of_rows_gives_the_same(known: bool) -> None:
    """Where a compiler works; elsewhere plain torch runs, and says so once."""
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 4)).double()
    values = Values(torch.randn(9, 4).double().requires_grad_(), torch.randn(9, 3, 4).double().requires_grad_())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "COMPILED_ROWS", 1)
        if not known:
            patch.setattr(execution, "compiler_works", lambda device_type: False)
        found = [
            [y.detach(), *gradients(y, [*values.leaves, *layer.parameters()])]
            for y in (start(values, 3, Choices(compiled=c)).map(layer).whole() for c in (False, True))
        ]
    agree(found[1], found[0])


@pytest.mark.parametrize(
    ("rows", "training", "device"),
    [(3, True, "cpu"), (2, True, "cpu"), (3, False, "cpu"), (3, False, "gpu"), (2, False, "gpu")],
)
def test_only_whole_blocks_are_compiled_and_on_a_cpu_only_those_of_training(
    rows: int, training: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other size would be compiled anew, for little."""
    called = []
    if device == "gpu":
        monkeypatch.setattr(execution, "UNCOMPILED_EVALUATION", ())

    def run(*arguments: Any) -> tuple[Tensor, Tensor | None]:
        called.append(arguments)
        return execution._run(*arguments)

    monkeypatch.setattr(execution, "compiler_works", lambda device_type: True)
    monkeypatch.setattr(execution, "_compiled_run", lambda: run)
    monkeypatch.setattr(execution, "COMPILED_ROWS", 27)
    values = Values(torch.randn(9, 4).double(), torch.randn(9, rows, 4).double())
    with torch.set_grad_enabled(training):
        start(values, rows, Choices(compiled=True)).map(nn.GELU())
    assert bool(called) == (rows * 9 >= 27 and (training or device == "gpu"))


FIRST = {"float32": 1e-4, "tf32": 0.01, "bfloat16": 0.02}
"""Largest median error of pooled differences by how the strains' differences are computed."""

SMALL = 0.12
"""Of the genes of yeast: enough for whole states to fail both bounds in float32."""

PAIRS = 5

Pooled = tuple[Tensor, Tensor]
"""[PAIRS, 3, H] pooled differences of the strains without i, without j and without both; [PAIRS, H] second ones."""


def make_model(scale: float) -> HeteroCell:
    """Fresh weights: GIN over nine networks."""
    torch.manual_seed(0)
    config = HeteroCellConfig(hidden=64, layers=3, metabolism=False, local_head=False, combination="none")
    return HeteroCell(ResidentCell.of(generated_cell(scale=scale)), config)


@torch.no_grad()
def pooled(model: HeteroCell, strategy: str, dtype: str | None = None) -> Pooled:
    """First and second differences of the strains of some pairs of genes."""
    model.choose(Choices(strategy, half=dtype is not None))
    model.train()  # so that nothing is kept from call to call; there is no dropout
    genes = random.Random(0).sample(range(model.cell.num_nodes["gene"]), 2 * PAIRS)
    pairs = [sorted(genes[k : k + 2]) for k in range(0, 2 * PAIRS, 2)]
    strains = [strain for i, j in pairs for strain in ([i], [j], [i, j])]
    first = model(GenotypeBatch.from_lists(strains)).embedding.double().unflatten(0, (PAIRS, 3))
    return first, first[:, 0] + first[:, 1] - first[:, 2]


def errors(found: Pooled, exact: Pooled) -> list[float]:
    """Relative errors of first and second differences, medians over the pairs."""
    pairs = [(x.flatten(1), y.flatten(1)) for x, y in zip(found, exact, strict=True)]
    return [statistics.median(((x - y).norm(dim=1) / y.norm(dim=1)).tolist()) for x, y in pairs]


@contextmanager
def rounded_products() -> Iterator[None]:
    """Linear layers of differences in TF32: factors are rounded to 10 bits behind the leading one."""
    plain = differences.RULES["linear"]

    def rounded(x: Tensor) -> Tensor:
        return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)

    def rule(x: PerturbedTensor, weight: Tensor, bias: Tensor | None = None) -> PerturbedTensor:
        base = nn.functional.linear(x.base, weight, bias)
        delta = None if x.delta is None else rounded(x.delta) @ rounded(weight).T
        return PerturbedTensor(base, delta, x.rows)

    differences.RULES["linear"] = rule
    try:
        yield
    finally:
        differences.RULES["linear"] = plain


@pytest.fixture(scope="module", params=[SMALL, pytest.param(1.0, marks=pytest.mark.slow)], ids=["small", "yeast_size"])
def known(request: pytest.FixtureRequest) -> tuple[HeteroCell, Pooled]:
    """Return a model, and what it makes of the strains in float64."""
    model = make_model(request.param).double()
    exact = pooled(model, "node_mask")
    return model.float(), exact


@pytest.mark.parametrize("strategy", ["difference", "node_mask"])
@pytest.mark.parametrize("precision", FIRST)
def test_differences_keep_their_digits(known: tuple[HeteroCell, Pooled], strategy: str, precision: str) -> None:
    model, exact = known
    if precision == "tf32":
        with rounded_products():
            found = pooled(model, strategy)
    else:
        found = pooled(model, strategy, None if precision == "float32" else precision)
    first, second = errors(found, exact)
    assert first <= FIRST[precision]
    assert precision != "float32" or second <= 0.05


def gradient(model: HeteroCell, strategy: str) -> Tensor:
    """Of all weights, from the embeddings of some strains that lose a gene or two."""
    model.choose(Choices(strategy))
    genes = random.Random(1).sample(range(model.cell.num_nodes["gene"]), 6)
    embedding = model(GenotypeBatch.from_lists([genes[:1], genes[1:3], genes[3:5], genes[5:]])).embedding
    upstream = torch.randn(embedding.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = list(model.encoder.parameters())
    grads = torch.autograd.grad(embedding, weights, upstream.to(embedding.dtype), materialize_grads=True)
    return torch.cat([x.flatten().double() for x in grads])


@pytest.mark.parametrize("strategy", ["difference", "node_mask"])
def test_gradients_keep_their_digits(strategy: str) -> None:
    model = make_model(SMALL / 2).double()
    exact = gradient(model, strategy)
    error = (gradient(model.float(), strategy) - exact).norm() / exact.norm()
    assert error <= 1e-4


STRAINS = GenotypeBatch.from_lists([[], [3], [10, 40, 90], [3, 5]])
CONFIG: dict[str, Any] = {"hidden": 8, "layers": 2, "local_heads": 2, "dropout": 0.0, "strategy": "node_mask"}


@pytest.fixture(scope="module")
def resident() -> ResidentCell:
    """Return the E. coli core cell: three relations among genes, and metabolism, of which relations stay alone."""
    return textbook_cell("shares_complex", "metabolic_neighbour", "isoenzyme")


def model_of(resident: ResidentCell, **options: Any) -> HeteroCell:
    torch.manual_seed(0)
    return randomise(HeteroCell(resident, HeteroCellConfig(**{**CONFIG, **options})).double().train())


class Own(GINConv):
    """A convolution of a user's own, which receives something else than what it inherits from."""

    def receive(self, perturbed: PerturbedCell, source: States, destination: States) -> States:
        return perturbed.aggregate(self.relation, source, "mean")


@pytest.mark.parametrize("other", [{"activation": "relu"}, {"hidden": 5}, {"layers": 3}, {}], ids=str)
def test_a_convolution_that_differs_in_more_than_weights_is_computed_alone(
    resident: ResidentCell, other: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with nothing else is of a class that inherits what it is made of."""
    model, kind = model_of(resident, layers=1), GINConv if other else Own
    layer = cast(HeteroLayer, model.encoder.layers[0])
    settings: dict[str, Any] = {"hidden": 8, "layers": 2, "activation": "gelu", "dropout": 0.0, **other}
    first = cast(RelationConv, layer.convs[0])
    first.conv = kind(first.conv.relation, 8, GINOptions(**settings)).double()
    layer.structures[0] = structure_of(first.conv)
    together, forward, found = list[int](), StackedConvs.forward, []

    def noted(stacked: StackedConvs, x: Tensor, received: Tensor) -> Tensor:
        together.append(len(stacked.convs))
        return forward(stacked, x, received)

    monkeypatch.setattr(StackedConvs, "forward", noted)
    for listing, most in (((), 2), (("cpu",), 0)):  # as a GPU computes them, and one by one
        monkeypatch.setattr(perturb, "LISTING_DEVICES", listing)
        found.append(results(model, STRAINS))
        assert max(together, default=0) == most
        together.clear()
    agree(*found)


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
@pytest.mark.parametrize("how", CROSS_RELATION)
def test_a_compiled_model_agrees(resident: ResidentCell, conv: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code takes half a minute for each; a test above compiles a layer."""
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
