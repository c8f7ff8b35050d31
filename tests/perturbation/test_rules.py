"""What torch functions do to differences: against ``f(b + δ) − f(b)`` of plain tensors, and how precise they are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dglcell.nn.blocks import make_activation, make_norm, mlp
from dglcell.nn.config import ACTIVATION_NAMES, NORM_NAMES, CrossRelation, GINOptions
from dglcell.nn.convolutions import GINConv
from dglcell.nn.cross_relation import make_mixer
from dglcell.perturbation.curves import share_changes
from dglcell.perturbation.execution import _run as run
from dglcell.perturbation.rules import LINEAR, RULES, PerturbedTensor
from tests.examples import examples
from tests.random_cells import agree, gradients

WIDTH = 4


@dataclass(frozen=True)
class Case:
    """A function of rows [n, WIDTH], and the shapes of the parameters that it takes after them."""

    function: Callable[..., Any]
    arguments: int = 1
    weights: tuple[tuple[int, ...], ...] = ()


def two(x: Tensor) -> Tensor:
    """[n, 2, WIDTH / 2]."""
    return x.unflatten(-1, (2, 2))


MASK = torch.tensor([False, True, True, False])
W, SQUARE = (WIDTH,), (WIDTH, WIDTH)
CASES = {
    "add": Case(torch.add, 2),
    "add a parameter": Case(lambda x, w: torch.add(w, x, alpha=3) + x, 1, (W,)),
    "__add__": Case(lambda x, y, w: (x + y) + w, 2, (W,)),
    "__radd__": Case(lambda x, w: w + (1 + x), 1, (W,)),
    "sub": Case(lambda x, y: torch.sub(x, y) - y, 2),
    "sub from a parameter": Case(lambda x, w: (w - x) - 2 * (1 - x) + torch.sub(x, w, alpha=2), 1, (W,)),
    "mul": Case(torch.mul, 2),
    "__mul__": Case(lambda x, y, w: x * y * w * 3, 2, (W,)),
    "__rmul__": Case(lambda x, w: w * (2 * x) / 3, 1, (W,)),
    "matmul": Case(lambda x, y, w: torch.matmul(two(x), two(y).transpose(1, 2)).flatten(1).matmul(w), 2, (SQUARE,)),
    "__matmul__": Case(lambda x, y: (two(x) @ two(y)).flatten(1), 2),
    "addcmul": Case(torch.addcmul, 3),
    "addcmul by a parameter": Case(lambda x, y, w: torch.addcmul(x, y, 1 + w, value=2), 2, ((1,),)),
    "linear": Case(F.linear, 1, ((3, WIDTH), (3,))),
    "einsum": Case(lambda x, w: torch.einsum("npe,pew->npw", two(x), w).flatten(1), 1, ((2, 2, 3),)),
    "where": Case(lambda x, y: torch.where(torch.tensor([True, False, True, False]), x, torch.where(MASK, y, 2.0)), 2),
    "dropout": Case(lambda x: F.dropout(x, 0.5, training=False)),
    "relu": Case(F.relu),
    "gelu": Case(F.gelu),
    "gelu by a tanh": Case(lambda x: F.gelu(x, approximate="tanh")),
    "layer_norm": Case(lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b), 1, (W, W)),
    "layer_norm without parameters": Case(lambda x: F.layer_norm(x, (WIDTH,))),
    "softmax": Case(lambda x: torch.softmax(x, 1) + F.softmax(x, dim=-1)),
    "softmax of parts": Case(lambda x: two(x).softmax(1).flatten(1)),
    "sum": Case(lambda x: x.sum(-1, keepdim=True)),
    "mean": Case(lambda x: two(x).mean(1)),
    "flatten": Case(lambda x: two(x).flatten(1)),
    "unflatten": Case(lambda x: x.unflatten(1, (2, 2))),
    "permute": Case(lambda x: two(x).permute(0, 2, 1)),
    "transpose": Case(lambda x: two(x).transpose(-1, -2)),
    "unsqueeze": Case(lambda x: x.unsqueeze(1)),
    "squeeze": Case(lambda x: x.unsqueeze(-1).squeeze(-1)),
    "split": Case(lambda x: x.split([1, 3], -1)[1]),
    "chunk": Case(lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1]),
    "unbind": Case(lambda x: two(x).unbind(1)[1]),
    "narrow": Case(lambda x: x.narrow(1, 1, 2)),
    "select": Case(lambda x: two(x).select(2, 1)),
    "index_select": Case(lambda x: x.index_select(1, torch.tensor([2, 0, 2]))),
    "__getitem__": Case(lambda x: x[:, 1:3] + x[..., :1]),
    "contiguous": Case(lambda x: two(x).transpose(1, 2).contiguous()),
    "neg": Case(lambda x: -x + torch.neg(x)),
    "stack": Case(lambda x, y: torch.stack([x, y, x], 1), 2),
    "cat": Case(lambda x, y: torch.cat([x, y], -1), 2),
    "concat": Case(lambda x, y, w: torch.concat((x, y[:, :2]), 1), 2, (W,)),
    "a function without a rule": Case(lambda x, y: torch.sin(x) * torch.maximum(x, y) + F.softplus(y), 2),
    "another without a rule": Case(lambda x, w: 1 / (2 + torch.cos(x) ** 2) + w / x.square().add(1), 1, (W,)),
    "einsum of several": Case(lambda x, y, w: torch.einsum("h,nh,nh->nh", w, x, y), 2, (W,)),
    "sizes": Case(lambda x: x.square() * x.size(-1) + x.dim()),
    "properties": Case(lambda x: x.square() * x.ndim if x.ndim == 2 and not x.is_cuda else x * 0),
    "in place": Case(lambda x: F.silu(x * 1, inplace=True)),
    "a quotient": Case(lambda x, y: x / y.square().add(1), 2),
}


def test_every_rule_is_tested() -> None:
    assert set(RULES) | LINEAR <= {name.split(" ")[0] for name in CASES}


def test_a_product_with_the_rows_on_the_right_is_refused() -> None:
    """The compiler turns the sides of `x @ weight` round, which would go unnoticed where rows equal width."""
    rows, weight = PerturbedTensor(torch.randn(4, 4), torch.randn(12, 4), 3), torch.randn(4, 4)
    with pytest.raises(TypeError, match=r"write torch.matmul\(x, weight\), not x @ weight"):
        torch.matmul(weight, rows)

    def product(base: Tensor, delta: Tensor) -> Tensor | None:
        return (PerturbedTensor(base, delta, 3) @ weight).delta

    compiled = torch.compile(product, backend="eager")
    torch.testing.assert_close(compiled(rows.base, rows.delta), rows.delta @ weight)
    torch.compiler.reset()


@dataclass
class Rows:
    """Bases and differences of some arguments, and which row of the base each difference belongs to."""

    bases: list[Tensor]
    deltas: list[Tensor | None]
    rows: int | Tensor
    weights: list[Tensor]

    @property
    def owners(self) -> Tensor:
        n = len(self.bases[0])
        return torch.arange(n).repeat_interleave(self.rows) if isinstance(self.rows, int) else self.rows

    @property
    def leaves(self) -> list[Tensor]:
        return [*self.bases, *(d for d in self.deltas if d is not None), *self.weights]

    def perturbed(self) -> list[PerturbedTensor]:
        return [PerturbedTensor(b, d, self.rows) for b, d in zip(self.bases, self.deltas, strict=True)]

    def by_rule(self, function: Callable[..., Any]) -> tuple[Tensor, Tensor | None]:
        out = function(*self.perturbed(), *self.weights)
        return out.base, out.delta

    def by_subtraction(self, function: Callable[..., Any]) -> tuple[Tensor, Tensor]:
        """Of whole rows, with plain torch alone."""
        before = [b[self.owners] for b in self.bases]
        after = [b if d is None else b + d for b, d in zip(before, self.deltas, strict=True)]
        return function(*self.bases, *self.weights), function(*after, *self.weights) - function(*before, *self.weights)

    def to(self, dtype: torch.dtype) -> Rows:
        """Return the very same numbers in another type."""
        bases, weights = ([x.detach().to(dtype).requires_grad_() for x in xs] for xs in (self.bases, self.weights))
        deltas = [d if d is None else d.detach().to(dtype).requires_grad_() for d in self.deltas]
        return Rows(bases, deltas, self.rows, weights)


SIZES = st.sampled_from([0.0, 1e-12, 1e-6, 1e-2, 1.0, 30.0, 1e3])


@st.composite
def rows_of(draw: st.DrawFn, case: Case) -> Rows:
    """Return all pairs of some rows and strains, or listed ones; changes of any size, some arguments without one."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    n, strains = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rows: int | Tensor = strains
    if draw(st.booleans()):
        rows = torch.randint(0, n, (draw(st.integers(0, 8)),), generator=generator).sort().values
    number = n * strains if isinstance(rows, int) else len(rows)

    def random(*shape: int, size: float = 1.0) -> Tensor:
        return (size * torch.randn(shape, dtype=torch.float64, generator=generator)).requires_grad_()

    def differences() -> Tensor:
        """Of one size, or every row of its own."""
        sizes = draw(st.one_of(SIZES.map(lambda s: [s]), st.lists(SIZES, min_size=number, max_size=number)))
        size = torch.tensor(sizes, dtype=torch.float64)[:, None]
        return (random(number, WIDTH).detach() * size).requires_grad_()

    bases = [random(n, WIDTH, size=draw(st.sampled_from([1e-3, 1.0, 20.0]))) for _ in range(case.arguments)]
    deltas = [None if draw(st.integers(0, 3)) == 0 else differences() for _ in bases]
    return Rows(bases, deltas, rows, [random(*shape) for shape in case.weights])


@pytest.mark.parametrize("name", CASES)
@examples(8)
@given(data=st.data())
def test_a_rule_equals_the_difference_of_whole_rows_forward_and_in_every_gradient(name: str, data: Any) -> None:
    case = CASES[name]
    rows = data.draw(rows_of(case))
    base, delta = rows.by_rule(case.function)
    expected_base, expected = rows.by_subtraction(case.function)
    if all(d is None for d in rows.deltas):
        assert delta is None
        delta, expected = base[:0], base[:0]
    assert delta is not None
    agree([base, delta], [expected_base, expected])
    agree(gradients([base, delta], rows.leaves, True), gradients([expected_base, expected], rows.leaves))


@pytest.mark.parametrize("function", [F.relu_, lambda x: x.clamp_(0), nn.AlphaDropout(), nn.RReLU()])
def test_functions_that_write_or_draw_are_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="writes in place or draws at random"):
        function(PerturbedTensor(torch.ones(2, 3), torch.ones(4, 3), 2))


def test_softmax_takes_any_change_of_any_logit() -> None:
    """Entries that had no share or nearly all of it, and those that get it or lose it."""
    logits = torch.tensor([[0.0, 1, 2], [-1e30, 0, 1], [800, 0, -800], [-1e30, -1e30, 0]], dtype=torch.float64)
    changes = torch.tensor(
        [[0, 0, 0], [1e4, 0, 0], [-1e4, 0, 0], [-1e30, -1e30, 0], [-800, 0, 800], [1e30, 0, 0], [1e-12, 0, -1e-12]],
        dtype=torch.float64,
    )
    x = PerturbedTensor(logits, changes.repeat(len(logits), 1), len(changes))
    whole = logits[:, None] + changes
    expected = torch.softmax(whole, -1) - torch.softmax(logits, -1)[:, None]
    found = torch.softmax(x, -1).delta  # type: ignore[arg-type, union-attr]
    torch.testing.assert_close(found.unflatten(0, (len(logits), -1)), expected, atol=1e-12, rtol=0)


@examples(15)
@given(seed=st.integers(0, 2**32 - 1), size=SIZES, lost=st.sampled_from([0.0, 0.5, 1.0]))
def test_shares_change_where_entries_are_lost(seed: int, size: float, lost: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(6, 1, dtype=torch.float64, generator=generator).requires_grad_()
    delta = (size * torch.randn(6, 3, dtype=torch.float64, generator=generator)).requires_grad_()
    alive = torch.rand(6, 3, generator=generator) >= lost
    share = torch.softmax(logits, 0)
    found = share_changes(share, logits, delta, -2, alive)
    whole = (logits + delta).masked_fill(~alive, -torch.inf)
    kept = torch.where(alive.any(0), torch.softmax(torch.where(alive.any(0), whole, 0.0), 0), 0.0)
    agree([found], [kept - share])
    agree(gradients([found], [logits, delta], True), gradients([kept - share], [logits, delta]))


class OfAUser(nn.Module):
    """A module that knows nothing of differences, with functions that have no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(32, 32), nn.Parameter(torch.ones(32))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.linear(x)) * torch.sigmoid(x) + F.softplus(x) / (1 + self.scale) + x**2 / (2 + x.abs())


class GinUpdate(nn.Module):
    """What a node makes of itself and of what it received."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GINConv(("gene", "a", "gene"), 32, GINOptions(hidden=32, layers=2, activation="gelu", dropout=0.0))
        self.after = nn.Sequential(nn.LayerNorm(32), nn.GELU())

    def forward(self, x: Tensor, received: Tensor) -> Tensor:
        out: Tensor = self.after(self.conv.update(x, received))
        return out


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *x: Tensor) -> Tensor:
        return self.function(*x)


def mixer(how: str) -> nn.Module:
    made = make_mixer(CrossRelation(how, norm="layer"), 3, 32)
    assert made is not None
    return made


MODULES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "linear": (lambda: nn.Linear(32, 32), 1),
    **{name: (lambda name=name: make_activation(name), 1) for name in ACTIVATION_NAMES if name != "identity"},
    **{name: (lambda name=name: make_norm(name, 32), 1) for name in NORM_NAMES if name != "none"},
    "softmax": (lambda: nn.Softmax(-1), 1),
    "product": (lambda: Function(torch.mul), 2),
    "product of matrices": (lambda: Function(lambda x, y: x.unflatten(1, (4, 8)) @ y.unflatten(1, (8, 4))), 2),
    "distance from a parameter": (lambda: Function(lambda x: torch.ones(32, dtype=x.dtype) - x), 1),
    "mlp": (lambda: mlp([32, 64, 32, 32], "gelu"), 1),
    "update of GIN": (GinUpdate, 2),
    "pairwise_interaction": (lambda: mixer("pairwise_interaction"), 3),
    "of a user": (OfAUser, 1),
}


def small_changes(arguments: int, size: float) -> Rows:
    """Single precision; many rows near any place where a function bends."""
    generator = torch.Generator().manual_seed(0)

    def random(number: int) -> Tensor:
        return torch.randn(number, 32, generator=generator)

    return Rows([2 * random(64) for _ in range(arguments)], [size * random(256) for _ in range(arguments)], 4, [])


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def errors(name: str, size: float, dtype: torch.dtype) -> tuple[float, float]:
    """Relative errors of differences by rules with δ in a type, and of the subtraction in single precision."""
    make, arguments = MODULES[name]
    torch.manual_seed(0)
    module, rows = make(), small_changes(arguments, size)
    rows.deltas = [d.to(dtype) for d in rows.deltas if d is not None]
    with torch.no_grad():
        _, found = rows.by_rule(module)
        _, subtracted = rows.to(torch.float32).by_subtraction(module)
        _, exact = rows.to(torch.float64).by_subtraction(module.double())
    assert found is not None
    assert found.dtype == dtype
    return error(found, exact), error(subtracted, exact)


@pytest.mark.parametrize(
    ("size", "dtype", "most"),
    [(1e-5, torch.float32, 1e-5), (1e-4, torch.bfloat16, 0.02), (0.1, torch.bfloat16, 0.02)],
    ids=["single", "half", "half, large"],
)
@pytest.mark.parametrize("name", MODULES)
def test_small_differences_keep_their_digits(name: str, size: float, dtype: torch.dtype, most: float) -> None:
    by_rule, subtracted = errors(name, size, dtype)
    assert by_rule <= most
    assert subtracted > 1e-3 or dtype == torch.bfloat16


@pytest.mark.parametrize("name", MODULES)
def test_gradients_are_right_to_rounding_in_single_precision(name: str) -> None:
    """What reaches base and weights is a difference of what reaches strains and what they share; the rest is not."""
    make, arguments = MODULES[name]
    torch.manual_seed(0)
    module, rows = make(), small_changes(arguments, 1e-3).to(torch.float32)
    found = gradients([rows.by_rule(module)[1]], [*rows.leaves, *module.parameters()])  # type: ignore[list-item]
    rows = rows.to(torch.float64)
    exact = gradients([rows.by_subtraction(module.double())[1]], [*rows.leaves, *module.parameters()])
    largest, of_deltas = max(y.norm() for y in exact), range(arguments, 2 * arguments)
    for i, (x, y) in enumerate(zip(found, exact, strict=True)):
        bound = 1e-6 * y.norm() if i in of_deltas else 1e-3 * y.norm() + 1e-6 * largest
        assert (x.double() - y).norm() <= bound


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("name", ["gelu", "relu", "layer"])
def test_a_base_in_half_precision_is_taken_too(name: str, listed: bool) -> None:
    """As under a user's own ``torch.autocast``; sums are in single precision all the same."""
    module, rows = MODULES[name][0](), small_changes(1, 0.1).to(torch.bfloat16)
    rows.rows = torch.arange(256) // 4 if listed else 4
    _, exact = rows.to(torch.float64).by_subtraction(copy.deepcopy(module).double())
    _, found = rows.by_rule(module.bfloat16())
    assert found is not None
    assert error(found.detach(), exact.detach()) <= 0.02
    assert all(x.dtype == torch.bfloat16 and x.isfinite().all() for x in gradients([found], rows.leaves))


def test_dropout_draws_one_mask_for_the_base_and_all_strains() -> None:
    base, delta = torch.full((50, 8), 3.0), torch.randn(150, 8)
    torch.manual_seed(0)
    dense = F.dropout(PerturbedTensor(base, delta, 3), 0.4)  # type: ignore[arg-type]
    torch.manual_seed(0)
    factor = F.dropout(torch.ones_like(base), 0.4)
    assert 0.2 < float((factor == 0).float().mean()) < 0.6
    assert torch.equal(dense.base, base * factor)
    torch.testing.assert_close(dense.delta, delta * factor.repeat_interleave(3, 0))
    torch.manual_seed(0)
    rows = torch.arange(150) // 3
    listed = F.dropout(PerturbedTensor(base, delta, rows), 0.4)  # type: ignore[arg-type]
    assert torch.equal(listed.delta, dense.delta)
    torch.manual_seed(0)
    assert torch.equal(F.dropout(PerturbedTensor(base, None, 3), 0.4).base, dense.base)  # type: ignore[arg-type]


REFUSED: list[tuple[Callable[[Any], object], str]] = [
    (lambda x: x.swish(), "no attribute 'swish'"),
    (lambda x: x.T, "no property T"),
    (lambda x: torch.where(x == 0, 1.0, x), "eq gives no single tensor of real numbers"),
    (lambda x: x * (x > 0), "gt gives no single tensor of real numbers"),
    (lambda x: x.max(1).values, "max gives no single tensor of real numbers"),
    (lambda x: x - x.mean(0), "mean mixes rows"),
    (lambda x: x.softmax(0), "softmax mixes rows"),
    (lambda x: run(lambda y: y.sum(1), 2, [x.base], [x.delta]), r"rows \(3, 4\) returned \(3,\)"),
    (lambda x: run(lambda y: (y, y), 2, [x.base], [x.delta]), r"rows \(3, 4\) returned tuple"),
]


@pytest.mark.parametrize(("function", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_what_has_no_difference_is_refused(function: Callable[[Any], object], says: str) -> None:
    with pytest.raises((AttributeError, TypeError), match=says):
        function(PerturbedTensor(torch.randn(3, WIDTH), torch.randn(6, WIDTH), 2))
