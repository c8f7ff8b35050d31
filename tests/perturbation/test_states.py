"""States against plain tensors of every strain's rows, forward and backward."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.cells import generated_cell
from dglcell.graph.resident import ResidentCell
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.perturbation import execution as compiled
from dglcell.perturbation import rules as differences
from dglcell.perturbation import states as module
from dglcell.perturbation.execution import Choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.rules import PerturbedTensor
from dglcell.perturbation.sent import Kept
from dglcell.perturbation.states import DifferenceStates, States, WholeStates
from tests.examples import examples
from tests.perturbation.states_of import Values, agree, gradients, values_of

WIDTH = 3


class Product(nn.Module):
    """A function of two rows, with parameters."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, dtype=torch.float64)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(self.linear(x) * y)


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


def dropout_of(seed: int, recompute: bool, states: Values) -> list[Tensor]:
    torch.manual_seed(seed)
    layer = nn.Sequential(nn.Linear(WIDTH, WIDTH, dtype=torch.float64), nn.GELU(), nn.Dropout(0.5))
    y = start(states, 4, Choices(recompute=recompute)).map(layer).whole()
    return [y.detach(), *gradients(y, [*states.leaves, *layer.parameters()])]


@pytest.mark.parametrize("listed", [False, True])
def test_dropout_draws_the_same_numbers_when_rows_are_computed_once_more(
    listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several blocks."""
    monkeypatch.setitem(module.ROWS_IN_BLOCK, "cpu", 16)
    base, delta = torch.randn(20, WIDTH, dtype=torch.float64), torch.randn(20, 4, WIDTH, dtype=torch.float64)
    values = Values(base.requires_grad_(), delta.requires_grad_(), torch.rand(20, 4) < 0.5 if listed else None)
    agree(dropout_of(0, True, values), dropout_of(0, False, values))
    assert not torch.equal(dropout_of(0, True, values)[0], dropout_of(1, True, values)[0])


@pytest.mark.parametrize("recompute", [True, False])
def test_little_is_kept_between_the_passes_where_it_is_recomputed(recompute: bool) -> None:
    function, kept, calls = Product(), dict[int, int](), 0
    values = Values(torch.randn(50, WIDTH).double().requires_grad_(), torch.randn(50, 4, WIDTH).double())
    states = start(values, 4, Choices(recompute=recompute))

    def counted(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return function(x, function(x, x))

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
        patch.setattr(compiled, "COMPILED_ROWS", 1)
        if not known:
            patch.setattr(compiled, "compiler_works", lambda device_type: False)
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
        monkeypatch.setattr(compiled, "UNCOMPILED_EVALUATION", ())

    def run(*arguments: Any) -> tuple[Tensor, Tensor | None]:
        called.append(arguments)
        return compiled._run(*arguments)

    monkeypatch.setattr(compiled, "compiler_works", lambda device_type: True)
    monkeypatch.setattr(compiled, "_compiled_run", lambda: run)
    monkeypatch.setattr(compiled, "COMPILED_ROWS", 27)
    values = Values(torch.randn(9, 4).double(), torch.randn(9, rows, 4).double())
    with torch.set_grad_enabled(training):
        start(values, rows, Choices(compiled=True)).map(nn.GELU())
    assert bool(called) == (rows * 9 >= 27 and (training or device == "gpu"))


FIRST = {"float32": 1e-4, "tf32": 0.01, "bfloat16": 0.02}
"""Largest median error of pooled differences by how the strains' differences are computed."""

GRADIENT = 1e-4
"""Largest error of the gradient of all weights in float32."""

SECOND = 0.05
"""Largest median error of second differences in float32."""

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
    assert precision != "float32" or second <= SECOND


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
    assert error <= GRADIENT
