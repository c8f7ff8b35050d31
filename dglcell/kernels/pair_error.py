"""Compute the squared error of a low-rank matrix against a sparse one, over all pairs, without making either matrix."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.graph.resident_graph import ResidentRelation, sparse_matrix

BLOCK_EDGES = 1 << 18
"""Edges whose rows are gathered at once."""

Factors = tuple[Tensor, Tensor, Tensor]
"""These are L, R and b, or their gradients."""


def pair_error(
    edges: ResidentRelation, left_NH: Tensor, right_MH: Tensor, bias_M: Tensor, zero_weight: float
) -> Tensor:
    r"""Compute the mean squared error of :math:`\hat A = L R^\top + 1 b^\top` against an adjacency A of ones and zeros.

    .. math:: \frac{1}{N M} \Big[\, \sum_{A_{uv} = 1} (\hat A_{uv} - 1)^2
              + \lambda \sum_{A_{uv} = 0} \hat A_{uv}^2 \Big]

    Exact, in O(E H + (N + M) H²): with :math:`\tilde L = [L, 1]` and :math:`\tilde R = [R, b]` the squares of all pairs
    are :math:`\sum_{uv} \hat A_{uv}^2 = \langle \tilde L^\top \tilde L,\, \tilde R^\top \tilde R \rangle`. The edges
    are then set right one by one. Differentiable (once) in L, R and b. The products of all pairs are taken in float64,
    because the edges' share is subtracted from them again.

    Args:
        edges: E edges u → v; each pair occurs at most once.
        left_NH: [N, H] factor of the sources; half precisions are computed in float32.
        right_MH: [M, H] factor of the destinations.
        bias_M: [M] bias b.
        zero_weight: λ, the weight of pairs without an edge.

    Returns:
        The error, a scalar.
    """
    dtype = torch.promote_types(torch.promote_types(left_NH.dtype, right_MH.dtype), torch.float32)
    factors = (x.to(dtype) for x in (left_NH, right_MH, bias_M))
    p = 1 / (len(left_NH) * len(right_MH))
    out: Tensor = _PairError.apply(*factors, edges, (p, zero_weight * p))
    return out


class _PairError(torch.autograd.Function):
    """Compute the gradients together with the error, because those of a scalar cost only as much as a factor."""

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, bias: Tensor, edges: ResidentRelation, weights: tuple[float, float]
    ) -> Tensor:
        # Autocast would turn factors into bfloat16.
        with torch.autocast(left.device.type, enabled=False):
            squares, gradients = _all_pairs(left, right, bias, weights[1])
            total = squares + _add_edges(edges, (left, right, bias), weights, gradients)
        ctx.save_for_backward(*gradients)
        return total.to(left.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        left, right, bias = (grad * gradient for gradient in ctx.saved_tensors)
        return left, right, bias, None, None


def _all_pairs(left: Tensor, right: Tensor, bias: Tensor, q: float) -> tuple[Tensor, Factors]:
    """Return q Σ Â² over all pairs, in float64, and its gradients in L, R and b."""
    H = left.shape[1]
    left_one = torch.cat([left, left.new_ones(len(left), 1)], dim=1).double()
    right_bias = torch.cat([right, bias.unsqueeze(1)], dim=1).double()
    of_left, of_right = q * (left_one.T @ left_one), right_bias.T @ right_bias
    S, G = of_left.to(left.dtype), of_right.to(left.dtype)
    d_left = torch.addmm(G[H, :H], left, G[:H, :H]) * (2 * q)
    d_right = 2 * torch.addmm(torch.outer(bias, S[H, :H]), right, S[:H, :H])
    d_bias = 2 * torch.addmv(bias * S[H, H], right, S[:H, H])
    return (of_left * of_right).sum(), (d_left, d_right, d_bias)


def _add_edges(edges: ResidentRelation, factors: Factors, weights: tuple[float, float], gradients: Factors) -> Tensor:
    """Return Σ over edges of p (Â − 1)² − q Â², in float64; its gradients in L, R and b are added to ``gradients``."""
    (left, right, bias), (p, q), (d_left, d_right, d_bias) = factors, weights, gradients
    total, slope_E = bias.new_zeros((), dtype=torch.float64), left.new_empty(edges.num_edges)
    for first in range(0, edges.num_edges, BLOCK_EDGES):
        block = slice(first, first + BLOCK_EDGES)
        u, v = edges.src[block], edges.dst[block]
        guess = (left.index_select(0, u) * right.index_select(0, v)).sum(1) + bias[v]
        error = guess - 1
        total += (p * error.square() - q * guess.square()).sum(dtype=torch.float64)
        slope_E[block] = 2 * (p * error - q * guess)
    if edges.num_edges:
        to_destinations = _matrix(edges, slope_E, transposed=False) @ torch.cat([left, torch.ones_like(left[:, :1])], 1)
        d_right += to_destinations[:, :-1]
        d_bias += to_destinations[:, -1]
        d_left += _matrix(edges, slope_E[edges.by_source], transposed=True) @ right
    return total


def _matrix(edges: ResidentRelation, values_E: Tensor, *, transposed: bool) -> Tensor:
    """Return values on edges, in the order of the rows, as a sparse matrix whose rows are destinations, or sources."""
    starts, columns, _ = edges.index_tensors(transposed=transposed)
    shape = (edges.num_src, edges.num_dst) if transposed else (edges.num_dst, edges.num_src)
    return sparse_matrix(starts, columns, values_E, shape)
