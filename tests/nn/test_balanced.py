"""Projections onto balanced changes, against a dense least-squares solution of each strain alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import null_space

from dglcell.nn.balanced import nearest_balanced, projection_onto_balance
from dglcell.nn.exact_growth import balance_matrix
from tests.examples import examples
from tests.random_cells import textbook_cell

CELL = textbook_cell()


def amounts_of(seed: int) -> torch.Tensor:
    """Stoichiometry of the core model's reaction nodes with random spreads, of which some do not change at all."""
    nodes = torch.arange(CELL.num_nodes["reaction"])[::2]
    spread = np.random.default_rng(seed).lognormal(size=len(nodes))
    spread[::7] = 0
    return torch.from_numpy(balance_matrix(CELL, nodes).toarray() * spread)


def nearest(x: NDArray[Any], given: NDArray[Any], value: float, amounts: torch.Tensor) -> NDArray[Any]:
    """Solve it in coordinates of the balanced changes: first as near as can be to the given values, then to x."""
    basis = null_space(amounts.numpy())
    left, sizes, right = np.linalg.svd(basis[given], full_matrices=False)
    left, sizes, right = left[:, sizes > 1e-8], sizes[sizes > 1e-8], right[sizes > 1e-8]
    first, own = right.T @ (left.T @ np.full(given.sum(), value) / sizes), basis.T @ x
    return np.asarray(basis @ (first + own - right.T @ (right @ own)))


@examples(4)
@given(st.integers(0, 1000), st.integers(0, 6))
def test_it_is_the_nearest_balanced_change(seed: int, most: int) -> None:
    amounts, rng = amounts_of(seed), np.random.default_rng(seed)
    projection, M = projection_onto_balance(amounts), amounts.shape[1]
    x, given_BM = rng.normal(size=(5, M)), np.zeros((5, M), dtype=bool)
    for strain, row in enumerate(given_BM):
        row[rng.permutation(M)[: min(strain, most)]] = True
    taken = torch.from_numpy(x), torch.from_numpy(given_BM), torch.full((M,), 0.5, dtype=torch.float64), projection
    found = nearest_balanced(*taken)
    assert ((found @ amounts.T).abs() <= 1e-10 * (1 + found.abs() @ amounts.T.abs())).all()
    expected = [nearest(*one, 0.5, amounts) for one in zip(x, given_BM, strict=True)]
    np.testing.assert_allclose(found, np.array(expected), atol=1e-7)
    torch.testing.assert_close(nearest_balanced(found, *taken[1:]), found, atol=1e-8, rtol=0)


@examples(3)
@given(st.integers(0, 1000))
def test_a_balanced_change_stays_as_it_is(seed: int) -> None:
    amounts, rng = amounts_of(seed), np.random.default_rng(seed)
    projection, nothing = projection_onto_balance(amounts), torch.zeros(amounts.shape[1], dtype=torch.float64)
    torch.testing.assert_close(projection @ projection, projection, atol=1e-10, rtol=0)
    x_BM = torch.from_numpy(rng.normal(size=(3, len(nothing)))) @ projection
    for zero_BM in (torch.zeros_like(x_BM, dtype=torch.bool), x_BM.abs() < 1e-12):
        torch.testing.assert_close(nearest_balanced(x_BM, zero_BM, nothing, projection), x_BM, atol=1e-10, rtol=0)
        single = nearest_balanced(x_BM.bfloat16(), zero_BM, nothing, projection.float())
        assert single.dtype == torch.float32
        assert (single @ amounts.float().T).abs().max() < 1e-3  # amounts are up to about 100
    assert (nearest_balanced(torch.zeros_like(x_BM), zero_BM, nothing, projection) == 0).all()


def test_gradients_are_those_of_the_projection() -> None:
    projection = projection_onto_balance(torch.tensor([[1.0, -1, 0, 0, 0], [0, 1, -1, -1, 0]]))
    given = torch.tensor([[False] * 5, [True, False, False, False, False]])
    x = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    value = torch.full((5,), -2.0, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: nearest_balanced(x, given, value, projection), (x,))
    assert nearest_balanced(x, given, value, projection)[1, 0].item() == pytest.approx(-2)


def test_the_balance_holds_where_given_values_contradict_it() -> None:
    projection = projection_onto_balance(torch.tensor([[1.0, -1, 0]]))
    given, value = torch.tensor([[True, True, False]]), torch.tensor([1.0, 3.0, 0.0])
    found = nearest_balanced(torch.zeros(1, 3, dtype=torch.float64), given, value, projection)
    torch.testing.assert_close(found, torch.tensor([[2.0, 2.0, 0.0]], dtype=torch.float64))
