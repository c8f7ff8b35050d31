"""Chains of updates against the same functions by torch's autograd, in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dglcell.kernels import chain
from dglcell.kernels.chain import Chain, PlainUpdate, RowUpdate, Step
from dglcell.nn.pairwise_interaction import PairwiseInteraction
from dglcell.nn.relation_attention import RelationAttention
from dglcell.perturbation.row_blocks import Shape
from dglcell.perturbation.row_wise import Rows, RowWise, Term, sum_terms

WIDTH, BASE = 4, 5


class Mean(nn.Module):
    """A mixture that only torch knows."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, *h: Tensor) -> Tensor:
        return torch.stack(h).mean(0).tanh() * self.scale


class Twice(nn.Module):
    """An update of two rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.linear(x) * y


def mixture(kind: str) -> tuple[nn.Module, RowUpdate]:
    """A mixture of three rows, and its update."""
    module: nn.Module = Mean().double()
    if kind == "pairs":
        module = PairwiseInteraction(3, WIDTH, hidden=3, layers=3, activation="silu", dropout=0.0).double()
    elif kind == "attention":
        module = RelationAttention(3, WIDTH, 2).double()
    return module, PlainUpdate(module, module) if kind == "torch" else module.compiled()


@settings(max_examples=40)
@given(data=st.data(), kind=st.sampled_from(["torch", "pairs", "attention"]), portion=st.sampled_from([1, 4, 100]))
def test_a_chain_equals_its_function(data: st.DataObject, kind: str, portion: int) -> None:
    """Two updates that share an argument, and rows as they are; gathered or not, some of them constant or frozen."""
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    pairs = data.draw(st.integers(0, 9))
    nodes, changed = torch.randint(0, BASE, (pairs,)), torch.rand(pairs) < 0.5
    index = torch.cat([torch.arange(BASE), torch.where(changed, BASE + changed.cumsum(0) - 1, nodes)])
    inputs, leaves = [], []
    for _ in range(3):
        gathered = data.draw(st.booleans())
        table = torch.randn(BASE + (int(changed.sum()) if gathered else pairs), WIDTH, dtype=torch.float64)
        leaves.append(table.requires_grad_(data.draw(st.integers(0, 3)) > 0))
        inputs.append(Rows(table, index, BASE) if gathered else Rows(table))
    updates = [Twice().double() for _ in range(2)]
    mix, mixed = mixture(kind)
    for module in (*updates, mix):
        module.requires_grad_(data.draw(st.integers(0, 3)) > 0)
    steps = [Step(PlainUpdate(u, u), [0, i + 1]) for i, u in enumerate(updates)] + [Step(None, [2])]

    def function(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return mix(updates[0](x, y), updates[1](x, z), z)

    whole = RowWise(function, nn.ModuleList([*updates, mix]), compiled=Chain(steps, mixed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "ROWS", portion)
        got = sum_terms([Term(whole, inputs), Term(None, [inputs[2]])], Shape(BASE, pairs, nodes))
        rows = [x.table if x.index is None else x.table[x.index] for x in inputs]
        expected = function(*rows) + rows[2]
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=1e-12)
        wanted = [x for x in [*leaves, *whole.module.parameters()] if x.requires_grad]
        assert got.requires_grad == expected.requires_grad
        if not wanted or not got.requires_grad:
            return
        upstream, options = torch.randn_like(got), {"allow_unused": True, "materialize_grads": True}
        for one, other in zip(
            torch.autograd.grad(got, wanted, upstream, **options),
            torch.autograd.grad(expected, wanted, upstream, **options),
            strict=True,
        ):
            torch.testing.assert_close(one, other, atol=1e-11, rtol=1e-11)


def test_a_chain_applies_where_all_of_it_does() -> None:
    module, mix = mixture("pairs")
    steps = [Step(None, [i]) for i in range(3)]
    double, single = (torch.ones(2, WIDTH, dtype=dtype) for dtype in (torch.float64, torch.float32))
    assert Chain(steps, mix).applies([double] * 3)
    assert not Chain(steps, mix).applies([single] * 3)
    other = Twice()
    assert not Chain([*steps[1:], Step(PlainUpdate(other, other), [0, 1])], mix).applies([double] * 3)
    assert not Chain(steps, mix).applies([double.to("meta")] * 3)
    module.bfloat16()
    assert not Chain(steps, mix).applies([double.bfloat16()] * 3)


def test_activations_that_compiled_code_lacks_are_left_to_torch() -> None:
    options = {"hidden": 3, "layers": 2, "dropout": 0.0}
    assert PairwiseInteraction(2, WIDTH, activation="relu", **options).compiled() is not None
    assert PairwiseInteraction(2, WIDTH, activation="elu", **options).compiled() is None
