"""Distances between distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import gaussian_kde

from dglcell.losses.distribution import distribution_matching, label_quantiles, transport_cost
from tests.examples import examples

# Distribution matching against scipy's density, inverted by root finding.


def quantiles_by_scipy(labels: np.ndarray, bandwidth: float) -> np.ndarray:
    """(i − ½)/n of the density between the smallest and the largest label."""
    density = gaussian_kde(labels, bw_method=bandwidth)
    low, high = labels.min(), labels.max()
    whole = density.integrate_box_1d(low, high)
    levels = (np.arange(len(labels)) + 0.5) / len(labels)
    return np.array([brentq(lambda x, q=q: density.integrate_box_1d(low, x) / whole - q, low, high) for q in levels])


@examples(15)
@given(
    labels=st.lists(st.floats(-5, 5), min_size=2, max_size=12).filter(lambda x: max(x) - min(x) > 0.1),
    bandwidth=st.sampled_from([0.1, 0.5, 1.0]),
    missing=st.integers(0, 3),
)
def test_quantiles_are_those_of_scipys_density(labels: list[float], bandwidth: float, missing: int) -> None:
    target = torch.tensor([math.nan] * missing + labels, dtype=torch.float64)
    got = label_quantiles(target.unsqueeze(0), bandwidth)[0, : len(labels)].numpy()
    reach = max(labels) - min(labels)
    np.testing.assert_allclose(got, quantiles_by_scipy(np.array(labels), bandwidth), atol=2e-3 * reach)
    assert (np.diff(got) >= 0).all()
    assert got.min() >= min(labels)
    assert got.max() <= max(labels)


def test_the_cost_is_the_mean_square_of_sorted_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    prediction, target = torch.randn(2, 9, generator=generator), torch.randn(2, 9, generator=generator)
    target[1, [0, 4, 5]] = math.nan
    got = distribution_matching(prediction, target, 0.5)
    for t in range(2):
        there = ~target[t].isnan()
        quantiles = label_quantiles(target[t][there].unsqueeze(0), 0.5)[0]
        expected = (prediction[t][there].sort().values - quantiles).square().mean()
        torch.testing.assert_close(got[t], expected)


# Transport on a line against scipy, and against plans between repeated values.


VALUES = st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0, 1.5, 40.0]) | st.floats(-9, 9), min_size=1, max_size=8)


def cost(x: torch.Tensor, y: torch.Tensor, p: int) -> torch.Tensor:
    """All values count."""
    return transport_cost(x[None], y[None], torch.ones(1, len(x)).bool(), torch.ones(1, len(y)).bool(), p)[0]


@examples(50)
@given(x=VALUES, y=VALUES)
def test_of_order_two_it_is_half_the_square_between_sorted_values_of_equal_number(
    x: list[float], y: list[float]
) -> None:
    got = cost(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64), 2)
    # n values, m times each, are as many as m values, n times each.
    many_x, many_y = np.sort(np.repeat(x, len(y))), np.sort(np.repeat(y, len(x)))
    assert float(got) == pytest.approx(0.5 * np.square(many_x - many_y).mean(), rel=1e-12, abs=1e-12)


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
