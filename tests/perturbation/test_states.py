"""Shared states against the dense states they stand for, forward and backward."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dglcell.perturbation.row_index import RowIndex
from dglcell.perturbation.row_wise import RowWise
from dglcell.perturbation.state_sums import combine_states, map_states, sum_states, sum_updates
from dglcell.perturbation.states import DenseStates, SharedStates, States

EXACT = {"atol": 1e-12, "rtol": 1e-12}


@st.composite
def pairs_of_states(draw: st.DrawFn, count: int = 2) -> tuple[list[SharedStates], torch.Tensor]:
    """Shared states of the same nodes with different changed rows, and a keep mask."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    nodes, strains, width = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    states = []
    for _ in range(count):
        changed = torch.rand(nodes, strains, generator=generator) < draw(st.sampled_from([0.0, 0.3, 1.0]))
        index = RowIndex.where(changed) if draw(st.booleans()) or changed.any() else None
        number = nodes + (0 if index is None else len(index))
        x = torch.randn(number, width, dtype=torch.float64, generator=generator)
        states.append(SharedStates(x.requires_grad_(), index))
    keep = torch.rand(nodes, strains, generator=generator) < draw(st.sampled_from([0.0, 0.7, 1.0]))
    return states, keep


class Product(nn.Module):
    """A function of two rows, with parameters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, dtype=torch.float64)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x) * y)


def as_dense(states: SharedStates, strains: int) -> DenseStates:
    """What the states stand for, by plain indexing."""
    columns = [states.base_NH] * strains
    if states.index is not None:
        columns = [
            states.base_NH.index_put((states.index.nodes[mine],), states.rows_KH[mine])
            for mine in (states.index.strains == strain for strain in range(strains))
        ]
    return DenseStates(torch.stack(columns, dim=1))


def agree(states: list[SharedStates], one: torch.Tensor, other: torch.Tensor) -> None:
    """Both results are equal, and so are their gradients in every base row and changed row."""
    torch.testing.assert_close(one, other, **EXACT)
    leaves = [s.x_XH for s in states]
    upstream = torch.randn_like(one)
    got = torch.autograd.grad(one, leaves, upstream, allow_unused=True, materialize_grads=True)
    expected = torch.autograd.grad(other, leaves, upstream, allow_unused=True, materialize_grads=True)
    for x, y in zip(got, expected, strict=True):
        torch.testing.assert_close(x, y, atol=1e-11, rtol=1e-11)


@given(case=pairs_of_states())
def test_map_combine_and_sum(case) -> None:
    states, keep = case
    strains = keep.shape[1]

    def dense() -> list[DenseStates]:
        return [as_dense(s, strains) for s in states]

    def whole(result: States) -> torch.Tensor:
        return result.dense().expand(-1, strains, -1)

    agree(states, whole(states[0]), dense()[0].dense())
    agree(states, whole(map_states(torch.tanh, states[0])), map_states(torch.tanh, dense()[0]).dense())
    agree(states, whole(combine_states(torch.mul, states)), combine_states(torch.mul, dense()).dense())
    agree(states, whole(sum_states(states)), sum_states(dense()).dense())
    agree(states, whole(sum_states([states[0], dense()[1]])), sum_states(dense()).dense())


@given(case=pairs_of_states(count=3), recompute=st.booleans())
def test_updates_of_different_rows_are_summed(case, recompute: bool) -> None:
    """One function of two states, another of one of them and a third, and a residual."""
    states, keep = case
    strains, one, other = keep.shape[1], Product(states[0].x_XH.shape[1]), Product(states[0].x_XH.shape[1])

    def total(x: States, y: States, z: States) -> torch.Tensor:
        addends = [
            (RowWise(one, one, recompute), [x, y]),
            (RowWise(other, other, recompute), [z, y]),
            (None, [x]),
        ]
        return sum_updates(addends).dense().expand(-1, strains, -1)

    def plain() -> torch.Tensor:
        x, y, z = (as_dense(s, strains).x_NBH for s in states)
        return one(x, y) + other(z, y) + x

    agree(states, total(*states), plain())
    agree(states, total(states[0], *(as_dense(s, strains) for s in states[1:])), plain())


@given(case=pairs_of_states(count=1), data=st.data())
def test_rows_are_those_of_the_strain(case, data) -> None:
    (states,), keep = case
    strain = data.draw(st.integers(0, keep.shape[1] - 1))
    nodes = torch.randint(0, keep.shape[0], (2, 3))
    agree([states], states.rows(nodes, strain), as_dense(states, keep.shape[1]).rows(nodes, strain))


@settings(max_examples=60)
@given(case=pairs_of_states(count=1))
def test_pooling(case) -> None:
    def logit(x: Tensor) -> Tensor:
        return x.sum(-1, keepdim=True)

    (states,), keep = case
    gate, value = map_states(logit, states), map_states(torch.tanh, states)
    dense = as_dense(states, keep.shape[1])
    expected = map_states(torch.tanh, dense).softmax_pool(map_states(logit, dense), keep)
    agree([states], value.softmax_pool(gate, keep), expected)


@pytest.mark.parametrize("spread", [12.0, 30.0, 200.0])
def test_pooling_is_right_where_a_lost_node_had_nearly_all_of_the_softmax(spread: float) -> None:
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(40, 3, generator=generator, requires_grad=True)
    logits = torch.randn(40, 1, generator=generator)
    logits[7] += spread
    keep = torch.ones(40, 2, dtype=torch.bool)
    keep[7, 1] = False
    pooled = States.shared(value).softmax_pool(States.shared(logits), keep)
    rest = torch.arange(40) != 7
    expected = torch.softmax(logits[rest], 0).T @ value[rest]
    torch.testing.assert_close(pooled[1:], expected)
    (gradient,) = torch.autograd.grad(pooled[1].sum(), value)
    torch.testing.assert_close(gradient[rest], torch.softmax(logits[rest], 0).expand(-1, 3))
    assert not gradient[7].any()


def test_a_sum_takes_terms_of_other_precisions() -> None:
    states: list[States] = []
    for dtype, strain, node in ((torch.float32, 0, 0), (torch.bfloat16, 1, 1)):
        mask_BN = torch.zeros(2, 3, dtype=torch.bool)
        mask_BN[strain, node] = True
        x = torch.tensor([[1.0], [1.0], [1.0], [5.0]], dtype=dtype).expand(-1, 2)
        states.append(SharedStates(x, RowIndex(mask_BN)))
    total = sum_states(states).dense()
    assert total.dtype == torch.float32
    assert total[:, :, 0].tolist() == [[6, 2], [2, 6], [2, 2]]


@pytest.mark.parametrize("form", ["dense", "shared"])
def test_small_differences_of_pooled_states_survive_single_precision(form: str) -> None:
    """Strains differ from the wild type in a few of thousands of nodes; the error stays far below that difference."""
    generator = torch.Generator().manual_seed(0)
    nodes, strains = 7000, 8
    base = torch.randn(nodes, 4, generator=generator) + 1
    logits = torch.randn(nodes, 1, generator=generator)
    keep = torch.ones(nodes, strains, dtype=torch.bool)
    keep[torch.arange(1, strains), torch.arange(1, strains)] = False

    def difference(dtype: torch.dtype) -> torch.Tensor:
        states = [States.shared(x.to(dtype)) for x in (base, logits)]
        value, gate = states if form == "shared" else [DenseStates(s.dense().expand(-1, strains, -1)) for s in states]
        pooled = value.softmax_pool(gate, keep)
        return pooled[:1] - pooled[1:]

    exact = difference(torch.float64)
    assert (difference(torch.float32) - exact).abs().max() < 0.01 * exact.abs().mean()
