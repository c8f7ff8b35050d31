"""GATv2 attention on a CPU: compiled loops over one head of one strain at a time, whose keys stay in a core's cache."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.graph.resident import ResidentRelation
from dglcell.kernels.threads import run_tasks

Keep = tuple[Tensor, Tensor]


def gatv2_cpu(
    edges: ResidentRelation,
    keys_NBH: Tensor,
    queries_MBH: Tensor,
    keep: Keep,
    vector_AD: Tensor,
    edge_vector_H: Tensor | None,
    slope: float,
) -> Tensor:
    """[M, B, H], see ``dglcell.kernels.attention.gatv2``. Half precisions are computed in float32."""
    dtype = torch.promote_types(keys_NBH.dtype, torch.float32)
    leaves = (keys_NBH, queries_MBH, vector_AD, edge_vector_H)
    out: Tensor = _CompiledAttention.apply(*(x if x is None else x.to(dtype) for x in leaves), slope, edges, keep)
    return out.to(keys_NBH.dtype)


class _CompiledAttention(torch.autograd.Function):
    """Keeps its inputs, its result and the logarithm of each softmax's denominator."""

    @staticmethod
    def forward(
        ctx: Any,
        keys: Tensor,
        queries: Tensor,
        vector: Tensor,
        edge_vector: Tensor | None,
        slope: float,
        edges: ResidentRelation,
        keep: Keep,
    ) -> Tensor:
        # Imported here: numba is slow to import, and commands that compute nothing should not wait for it.
        from dglcell.kernels.attention_numba import attend_of_width

        out, logsum = keys.new_zeros(queries.shape), keys.new_zeros(*queries.shape[:2], len(vector))
        known = _known(keys, queries, vector, edge_vector, slope, edges, keep)
        attend, results = attend_of_width(vector.shape[1]), (out.numpy(), logsum.numpy())
        run_tasks(attend, [(*pair, *known, *results) for pair in _heads(keys, vector, edges)])
        ctx.save_for_backward(keys, queries, vector, edge_vector, out, logsum)
        ctx.slope, ctx.edges, ctx.keep = slope, edges, keep
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from dglcell.kernels.attention_numba import gradients_of_width

        keys, queries, vector, edge_vector, out, logsum = ctx.saved_tensors
        d_keys, d_queries = keys.new_zeros(keys.shape), queries.new_zeros(queries.shape)
        # One row per strain and head, added up at the end: no two of them write to the same place.
        d_vectors = keys.new_zeros(keys.shape[1], *vector.shape)
        d_edge_vectors = torch.zeros_like(d_vectors)
        known = _known(keys, queries, vector, edge_vector, ctx.slope, ctx.edges, ctx.keep)
        given = map(_array, (out, logsum, grad, d_keys, d_queries, d_vectors, d_edge_vectors))
        gradients, arguments = gradients_of_width(vector.shape[1]), (*known, *given)
        run_tasks(gradients, [(*pair, *arguments) for pair in _heads(keys, vector, ctx.edges)])
        d_edge_vector = None if edge_vector is None else d_edge_vectors.sum(0).flatten()
        return d_keys, d_queries, d_vectors.sum(0), d_edge_vector, None, None, None


def _known(
    keys: Tensor,
    queries: Tensor,
    vector: Tensor,
    edge_vector: Tensor | None,
    slope: float,
    edges: ResidentRelation,
    keep: Keep,
) -> list[Any]:
    """What forward and backward loops read, but for the strain and the head."""
    weights = None
    if edge_vector is not None:
        weights = _array(keys.new_ones(edges.num_edges) if edges.weight is None else edges.weight.to(keys.dtype))
    edge_vectors = torch.zeros_like(vector) if edge_vector is None else edge_vector.view_as(vector)
    ends = edges.in_starts.numpy(), edges.src.numpy()
    vectors = _array(vector), _array(edge_vectors), _array(keys.new_full((1,), slope))[0]
    return [_array(keys), _array(queries), *map(_array, keep), *ends, weights, *vectors]


def _heads(keys: Tensor, vector: Tensor, edges: ResidentRelation) -> Iterable[tuple[int, int]]:
    """(strain, head), every one; none where there is no edge."""
    return product(range(keys.shape[1] if edges.num_edges else 0), range(len(vector)))


def _array(x: Tensor) -> NDArray[Any]:
    """A contiguous array: the same memory where ``x`` is contiguous."""
    array: NDArray[Any] = x.detach().contiguous().numpy()
    return array
