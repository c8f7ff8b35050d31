"""The error of a low-rank matrix over all pairs against the same with dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.graph.resident_graph import ResidentRelation
from dglcell.kernels import pair_error as module
from dglcell.kernels.pair_error import pair_error
from tests.examples import examples


def make_edges(rng: np.random.Generator, sizes: tuple[int, int], share: float) -> ResidentRelation:
    """Distinct pairs, self-loops among them; the last node may have no edge."""
    src, dst = np.nonzero(rng.random(sizes) < share)
    return ResidentRelation(("gene", "random", "gene"), torch.as_tensor(src), torch.as_tensor(dst), *sizes)


def make_factors(rng: np.random.Generator, sizes: tuple[int, int]) -> list[Tensor]:
    shapes = (sizes[0], 8), (sizes[1], 8), (sizes[1],)
    return [torch.as_tensor(rng.normal(size=shape)).requires_grad_() for shape in shapes]


def dense_error(edges: ResidentRelation, left: Tensor, right: Tensor, bias: Tensor, zero_weight: float) -> Tensor:
    """Return the definition, pair by pair."""
    target = torch.zeros(edges.num_src, edges.num_dst, dtype=left.dtype)
    target[edges.src, edges.dst] = 1
    squares = (left @ right.T + bias - target).square()
    return torch.where(target == 1, squares, zero_weight * squares).mean()


@examples(13)
@given(
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    share=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    zero_weight=st.sampled_from([0.0, 0.1, 1.0, 2.5]),
    seed=st.integers(0, 2**32 - 1),
)
def test_error_and_gradients_equal_those_of_dense_matrices(
    sizes: tuple[int, int], share: float, zero_weight: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    edges = make_edges(rng, sizes, share)
    factors = make_factors(rng, sizes)
    expected = dense_error(edges, *factors, zero_weight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_EDGES", 7)
        got = pair_error(edges, *factors, zero_weight)
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-10)
    given_gradients = torch.autograd.grad(3 * got, factors)
    for gradient, right in zip(given_gradients, torch.autograd.grad(3 * expected, factors), strict=True):
        torch.testing.assert_close(gradient, right, atol=1e-10, rtol=1e-10)


def nearly_perfect(dtype: torch.dtype) -> tuple[ResidentRelation, list[Tensor]]:
    """Return two cliques of 300 genes, guessed to 1 %: nearly all of the sum of squares over all pairs is edges."""
    generator = torch.Generator().manual_seed(0)
    clique = torch.arange(600) // 300
    src, dst = (clique.unsqueeze(0) == clique.unsqueeze(1)).nonzero().unbind(1)
    edges = ResidentRelation(("gene", "cliques", "gene"), src, dst, 600, 600)
    left, right = (torch.nn.functional.one_hot(clique, 2).double() for _ in range(2))
    noise = [0.01 * torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in (left, right, left[:, 0])]
    factors = [left + noise[0], right + noise[1], noise[2]]
    return edges, [x.to(dtype).requires_grad_() for x in factors]


def test_single_precision_survives_that_edges_are_subtracted_from_all_pairs() -> None:
    edges, factors = nearly_perfect(torch.float32)
    got = pair_error(edges, *factors, 1.0)
    exact = [x.detach().double().requires_grad_() for x in factors]
    expected = dense_error(edges, *exact, 1.0)
    # The squares of all pairs are a thousand times the error, so float32 may lose three of its seven digits.
    assert float(got.detach()) == pytest.approx(float(expected.detach()), rel=3e-5)
    pairs = zip(torch.autograd.grad(got, factors), torch.autograd.grad(expected, exact), strict=True)
    for gradient, right in pairs:
        assert gradient.dtype == torch.float32
        assert (gradient - right).norm() < 1e-4 * right.norm()


def test_half_precision_is_computed_in_single_precision_also_under_autocast() -> None:
    edges, factors = nearly_perfect(torch.float32)
    rounded = factors[0].detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = pair_error(edges, rounded, *factors[1:], 1.0)
    got.backward()
    assert (got.dtype, rounded.grad.dtype) == (torch.float32, torch.bfloat16)
    expected = pair_error(edges, rounded.detach().float(), *factors[1:], 1.0)
    torch.testing.assert_close(got, expected, atol=0.0, rtol=1e-6)
