"""Transport on a line against scipy, and against plans between repeated values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from dglcell.losses.distribution import transport_cost

VALUES = st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0, 1.5, 40.0]) | st.floats(-9, 9), min_size=1, max_size=8)


def cost(x: torch.Tensor, y: torch.Tensor, p: int) -> torch.Tensor:
    """All values count."""
    return transport_cost(x[None], y[None], torch.ones(1, len(x)).bool(), torch.ones(1, len(y)).bool(), p)[0]


@settings(max_examples=100)
@given(x=VALUES, y=VALUES)
def test_of_order_one_it_is_scipys(x: list[float], y: list[float]) -> None:
    got = cost(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64), 1)
    assert float(got) == pytest.approx(wasserstein_distance(x, y), rel=1e-12, abs=1e-12)


@settings(max_examples=100)
@given(x=VALUES, y=VALUES)
def test_of_order_two_it_is_half_the_square_between_sorted_values_of_equal_number(
    x: list[float], y: list[float]
) -> None:
    got = cost(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64), 2)
    # n values, m times each, are as many as m values, n times each.
    many_x, many_y = np.sort(np.repeat(x, len(y))), np.sort(np.repeat(y, len(x)))
    assert float(got) == pytest.approx(0.5 * np.square(many_x - many_y).mean(), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("p", [1, 2])
def test_what_does_not_count_changes_nothing(p: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(3, 7, generator=generator).double(), torch.randn(3, 5, generator=generator).double()
    has_x, has_y = torch.rand(3, 7, generator=generator) < 0.6, torch.rand(3, 5, generator=generator) < 0.6
    x.requires_grad_()
    got = transport_cost(x, y.masked_fill(~has_y, math.nan).nan_to_num(9.0), has_x, has_y, p)
    expected = torch.stack([cost(x[t][has_x[t]], y[t][has_y[t]], p) for t in range(3)])
    torch.testing.assert_close(got, expected)
    (one,), (other,) = torch.autograd.grad(got.sum(), x), torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(one, other)
    assert not one[~has_x].any()


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("sizes", [(6, 6), (5, 8), (8, 3)])
def test_its_gradient_is_that_of_differences(p: int, sizes: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(n, generator=generator).double().requires_grad_() for n in sizes)
    assert torch.autograd.gradcheck(lambda x, y: cost(x, y, p), (x, y))


@pytest.mark.parametrize("p", [1, 2])
def test_an_empty_sample_costs_nothing(p: int) -> None:
    x = torch.randn(1, 4, requires_grad=True)
    got = transport_cost(x, torch.randn(1, 3), torch.zeros(1, 4).bool(), torch.ones(1, 3).bool(), p)
    got.sum().backward()
    assert got == 0
    assert not x.grad.any()


def test_a_prediction_that_is_no_number_is_not_hidden() -> None:
    assert cost(torch.tensor([0.0, math.nan]), torch.tensor([0.0, 1.0]), 2).isnan()


def test_equal_samples_of_any_size_are_at_no_distance() -> None:
    x = torch.randn(6, generator=torch.Generator().manual_seed(2))
    assert cost(x, x[torch.randperm(6)], 2) == 0
    assert cost(x, x.repeat(3), 1) == 0
