"""Sums of row-wise functions against plain torch on whole tensors: values and all gradients, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dglcell.kernels import rows
from dglcell.perturbation import row_blocks, row_wise
from dglcell.perturbation.row_blocks import Shape
from dglcell.perturbation.row_wise import Rows, RowWise, Term, add_by, sum_terms

EXACT = {"atol": 1e-12, "rtol": 1e-12}


class Update(nn.Module):
    """A function of one or two rows."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 5), nn.Linear(width, 5, bias=False)
        self.after = nn.Sequential(nn.Tanh(), nn.Dropout(dropout), nn.Linear(5, width))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return self.after(self.first(x) if y is None else self.first(x) * self.second(y))


@dataclass
class Case:
    """A random sum, the tables that its inputs are rows of, and the modules of its terms."""

    terms: list[Term]
    shape: Shape
    tables: list[Tensor]
    modules: list[Update]

    def plain(self) -> Tensor:
        """The same by indexing of whole tensors."""
        total = torch.zeros(())
        for term in self.terms:
            inputs = [x.table if x.index is None else x.table[x.index] for x in term.inputs]
            out = inputs[0] if term.update is None else term.update.function(*inputs)
            if term.place is not None:
                assert self.shape.nodes is not None
                base, pairs = out[: self.shape.base], out[self.shape.base :]
                out = torch.cat([base, base[self.shape.nodes].index_put((term.place,), pairs)])
            total = total + out
        return total

    def leaves(self) -> list[Tensor]:
        parameters = [p for module in self.modules for p in module.parameters()]
        return [x for x in [*self.tables, *parameters] if x.requires_grad]

    def agrees(self, **tolerance: float) -> None:
        """Value and gradients equal those of ``plain``."""
        got, expected = sum_terms(self.terms, self.shape), self.plain()
        torch.testing.assert_close(got, expected, **tolerance)
        assert got.requires_grad == expected.requires_grad
        if got.requires_grad:
            upstream = torch.randn(got.shape, dtype=got.dtype)
            options = {"allow_unused": True, "materialize_grads": True}
            for x, y in zip(
                torch.autograd.grad(got, self.leaves(), upstream, **options),
                torch.autograd.grad(expected, self.leaves(), upstream, **options),
                strict=True,
            ):
                torch.testing.assert_close(x, y, **tolerance)


def subset(draw: st.DrawFn, pairs: int) -> Tensor | None:
    """Some of the pairs, ascending; None for all."""
    if draw(st.booleans()):
        return None
    return torch.tensor(sorted(draw(st.sets(st.integers(0, pairs - 1)))) if pairs else [], dtype=torch.int64)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """One to three terms, each with one or two inputs: aligned, or gathered from a base and changed rows."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    base, pairs, width = draw(st.integers(0, 6)), draw(st.integers(0, 9)), draw(st.sampled_from([1, 3, 32]))
    if base == 0:
        pairs = pairs + draw(st.integers(0, 4))
    nodes = torch.randint(0, base, (pairs,), generator=generator) if base else None
    recompute, modules = draw(st.booleans()), [Update(width).double() for _ in range(2)]
    tables: list[Tensor] = []

    def table(number: int) -> Tensor:
        x = torch.randn(number, width, dtype=torch.float64, generator=generator)
        tables.append(x.requires_grad_(draw(st.integers(0, 3)) > 0))
        return x

    def rows_at(place: Tensor | None) -> Rows:
        here = torch.arange(pairs) if place is None else place
        if draw(st.booleans()):
            return Rows(table(base + len(here)))
        if base == 0:
            # What several rows share.
            shared = draw(st.integers(1, 3))
            return Rows(table(shared), torch.randint(0, shared, (len(here),), generator=generator), shared)
        assert nodes is not None
        changed = torch.rand(len(here), generator=generator) < 0.5
        own = base + changed.cumsum(0) - 1
        index = torch.cat([torch.arange(base), torch.where(changed, own, nodes[here])])
        return Rows(table(base + int(changed.sum())), index, base)

    terms = []
    for _ in range(draw(st.integers(1, 3))):
        place = subset(draw, pairs) if base else None
        module = modules[draw(st.integers(0, 1))]
        kind = draw(st.sampled_from(["residual", "one", "two"]))
        update = None if kind == "residual" else RowWise(module, module, recompute)
        terms.append(Term(update, [rows_at(place) for _ in range(2 if kind == "two" else 1)], place))
    return Case(terms, Shape(base, pairs, nodes), tables, modules)


@settings(max_examples=150)
@given(
    case=cases(),
    block_bytes=st.sampled_from([1, 600, 1 << 20]),
    rows_per_share=st.sampled_from([1, 3, 1024]),
    compiled=st.booleans(),
    at_once=st.booleans(),
)
def test_a_sum_equals_plain_torch(
    case: Case, block_bytes: int, rows_per_share: int, compiled: bool, at_once: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(row_blocks.BLOCK_BYTES, "cpu", block_bytes)
        patch.setattr(row_blocks, "ROWS_PER_SHARE", rows_per_share)
        if not compiled:
            patch.setattr(rows, "COMPILED_DEVICES", ())
        if at_once:
            patch.setattr(RowWise, "random", True)
        case.agrees(**EXACT)


def two_terms(number: int, recompute: bool, dropout: float = 0.0, dtype: torch.dtype = torch.float64) -> Case:
    """A term at all pairs and one at every third, whose inputs share a table, and a residual."""
    torch.manual_seed(0)
    base, width, nodes = number, 8, torch.arange(2 * number) % number
    modules = [Update(width, dropout).to(dtype) for _ in range(2)]
    tables = [torch.randn(base + len(nodes), width, dtype=dtype, requires_grad=True) for _ in range(2)]
    place = torch.arange(0, len(nodes), 3)
    index = torch.cat([torch.arange(base), torch.where(place % 2 == 0, base + place, nodes[place])])
    update, other = (RowWise(module, module, recompute) for module in modules)
    terms = [
        Term(update, [Rows(tables[0]), Rows(tables[1])]),
        Term(other, [Rows(tables[0], index, base), Rows(tables[1], index, base)], place),
        Term(None, [Rows(tables[1])]),
    ]
    return Case(terms, Shape(base, len(nodes), nodes), tables, modules)


def evaluated(case: Case) -> list[Tensor]:
    """The sum, and the gradients of something of it."""
    out = sum_terms(case.terms, case.shape)
    return [out.detach(), *torch.autograd.grad((out * torch.cos(out)).sum(), case.leaves())]


@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("number", [300, 3000])
def test_results_are_the_same_bit_by_bit_for_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, number: int, recompute: bool
) -> None:
    monkeypatch.setitem(row_blocks.BLOCK_BYTES, "cpu", 20_000)
    case, before = two_terms(number, recompute, dtype=torch.float32), torch.get_num_threads()
    for module in case.modules:
        module.after.append(nn.LayerNorm(8))  # its gradients are sums that torch cuts among threads
    try:
        torch.set_num_threads(1)
        one = evaluated(case)
        torch.set_num_threads(2)
        two = evaluated(case)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    for x, y in zip(one, two, strict=True):
        assert torch.equal(x, y)


def test_recomputed_results_are_those_of_kept_graphs() -> None:
    for x, y in zip(evaluated(two_terms(2000, True)), evaluated(two_terms(2000, False)), strict=True):
        assert torch.equal(x, y)


def test_random_functions_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> Tensor:
        raise AssertionError("cut into blocks")

    case = two_terms(50, True, dropout=0.5)
    monkeypatch.setattr(row_wise, "sum_parts", refuse)
    with pytest.raises(AssertionError, match="cut into blocks"):
        sum_terms(two_terms(5, True).terms, two_terms(5, True).shape)
    torch.manual_seed(3)
    got = evaluated(case)
    torch.manual_seed(3)
    expected = case.plain()
    gradients = torch.autograd.grad((expected * torch.cos(expected)).sum(), case.leaves())
    for x, y in zip(got, [expected, *gradients], strict=True):
        torch.testing.assert_close(x, y, **EXACT)
    for module in case.modules:
        module.eval()
    with pytest.raises(AssertionError, match="cut into blocks"):
        evaluated(case)


@pytest.mark.parametrize("recompute", [True, False])
def test_half_precision_under_autocast(recompute: bool) -> None:
    case = two_terms(400, recompute, dtype=torch.float32)
    exact = evaluated(case)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = evaluated(case)
        out = sum_terms(case.terms[:1], case.shape)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()  # outside of autocast
    assert all(p.grad is not None and p.grad.any() for p in case.modules[0].parameters())
    for x, y in zip(rounded, exact, strict=True):
        assert x.dtype == torch.float32
        assert (x - y).norm() < 0.03 * y.norm()
        assert not torch.equal(x, y)


def test_terms_of_other_precisions_are_promoted() -> None:
    single, half = torch.ones(3, 2, requires_grad=True), torch.ones(3, 2, dtype=torch.bfloat16, requires_grad=True)
    for first, second in ((single, half), (half, single)):
        out = sum_terms([Term(None, [Rows(first)]), Term(None, [Rows(second)])], Shape(0, 3))
        assert out.dtype == torch.float32
        out.sum().backward()
    assert half.grad is not None
    assert half.grad.dtype == torch.bfloat16
    assert half.grad.tolist() == [[2.0, 2.0]] * 3


def test_frozen_parameters_and_constant_inputs_get_no_gradient() -> None:
    case = two_terms(20, True)
    case.modules[0].requires_grad_(False)
    case.tables[0].requires_grad_(False)
    case.agrees(**EXACT)
    case.tables[1].requires_grad_(False)
    case.agrees(**EXACT)
    case.modules[1].requires_grad_(False)
    assert not sum_terms(case.terms, case.shape).requires_grad


@pytest.mark.parametrize("recompute", [True, False])
def test_little_is_kept_between_the_passes_where_it_is_recomputed(recompute: bool) -> None:
    kept: list[Tensor] = []
    case = two_terms(500, recompute)
    calls = 0

    def counted(x: Tensor) -> Tensor:
        nonlocal calls
        calls += len(x) > 0
        return case.modules[0](x)

    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        out = sum_terms([Term(RowWise(counted, case.modules[0], recompute), [Rows(case.tables[0])])], Shape(0, 1500))
    assert calls == 1
    out.sum().backward()
    assert calls == (2 if recompute else 1)
    inputs = [x for x in kept if x is case.tables[0] or x.data_ptr() == case.tables[0].data_ptr()]
    assert (len(kept) == len(inputs)) == recompute


@given(seed=st.integers(0, 2**32 - 1), number=st.integers(0, 20))
def test_values_are_added_by_group(seed: int, number: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(4, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    values = torch.randn(number, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    groups = torch.randint(0, 4, (number,), generator=generator)
    member = nn.functional.one_hot(groups, 4).T.to(torch.float64)
    got, expected = add_by(start, groups, values), start + member @ values
    torch.testing.assert_close(got, expected, **EXACT)
    upstream = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    for x, y in zip(
        torch.autograd.grad(got, [start, values], upstream),
        torch.autograd.grad(expected, [start, values], upstream),
        strict=True,
    ):
        torch.testing.assert_close(x, y, **EXACT)


def test_every_thread_works_in_inference_mode_where_the_caller_does() -> None:
    layer, threads = nn.Linear(4, 4), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch.inference_mode():
            x = torch.randn(8 * row_blocks.ROWS_PER_SHARE, 4)
            terms = [Term(None, [Rows(x)]), Term(RowWise(layer, layer), [Rows(x)])]
            total = sum_terms(terms, Shape(0, len(x)))
            torch.testing.assert_close(total, x + layer(x))
    finally:
        torch.set_num_threads(threads)
