"""Shared states against the dense states they stand for, forward and backward."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.perturbation.row_index import RowIndex
from dglcell.perturbation.states import DenseStates, SharedStates, States, combine_states, sum_states

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
        base = torch.randn(nodes, width, dtype=torch.float64, generator=generator)
        rows = torch.randn(len(index) if index else 0, width, dtype=torch.float64, generator=generator)
        states.append(SharedStates(base.requires_grad_(), rows.requires_grad_(), index))
    keep = torch.rand(nodes, strains, generator=generator) < draw(st.sampled_from([0.0, 0.7, 1.0]))
    return states, keep


def as_dense(states: SharedStates, strains: int) -> DenseStates:
    return DenseStates(states.dense().expand(-1, strains, -1))


def agree(states: list[SharedStates], one: torch.Tensor, other: torch.Tensor) -> None:
    """Both results are equal, and so are their gradients in every base and row."""
    torch.testing.assert_close(one, other, **EXACT)
    leaves = [leaf for s in states for leaf in (s.base_NH, s.rows_KH)]
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

    agree(states, whole(states[0].map(torch.tanh)), dense()[0].map(torch.tanh).dense())
    agree(states, whole(combine_states(torch.mul, states)), combine_states(torch.mul, dense()).dense())
    agree(states, whole(sum_states(states)), sum_states(dense()).dense())
    agree(states, whole(sum_states([states[0], dense()[1]])), sum_states(dense()).dense())


@given(case=pairs_of_states(count=1), data=st.data())
def test_rows_are_those_of_the_strain(case, data) -> None:
    (states,), keep = case
    strain = data.draw(st.integers(0, keep.shape[1] - 1))
    nodes = torch.randint(0, keep.shape[0], (2, 3))
    agree([states], states.rows(nodes, strain), as_dense(states, keep.shape[1]).rows(nodes, strain))


@settings(max_examples=60)
@given(case=pairs_of_states(count=1))
def test_pooling(case) -> None:
    (states,), keep = case
    gate, value = states.map(lambda x: x.sum(-1, keepdim=True)), states.map(torch.tanh)
    dense = as_dense(states, keep.shape[1])
    expected = dense.map(torch.tanh).softmax_pool(dense.map(lambda x: x.sum(-1, keepdim=True)), keep)
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
    states = [
        SharedStates(
            torch.ones(3, 2, dtype=dtype), torch.full((1, 2), 5.0, dtype=dtype), RowIndex(torch.tensor([key]), 2)
        )
        for dtype, key in ((torch.float32, 0), (torch.bfloat16, 3))
    ]
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
