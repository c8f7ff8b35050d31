"""Compute GATv2 attention along edges by Triton's loops, with gradients: for a base, and by how much strains differ.

What it computes is defined by ``dglcell.perturbation.attention``, which does the same for any score in torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.graph.resident import ResidentRelation

BYTES = 512
"""A tile's rows (edges × strains × columns of a head) have this many bytes: sixteen for each thread of a warp."""

STRAINS = 4
"""A program has at most this many strains."""

Keep = tuple[Tensor, Tensor]
"""These masks say which sources and destinations are kept, [N, C] and [M, C] bool."""


@dataclass(frozen=True)
class Edges:
    """Hold the edges of one relation as a program reads them, and what all scores along them share.

    Attributes:
        relation: a relation of E edges from N to M nodes.
        weighted: whether the relation's fixed weights take part in the score.
        slope: slope of LeakyReLU.
        width: H.
        head: width of a head.
        dtype: type of the sums.
    """

    relation: ResidentRelation
    weighted: bool
    slope: float
    width: int
    head: int
    dtype: torch.dtype

    @property
    def heads(self) -> int:
        """Return the number of heads, A."""
        return self.width // self.head

    def tensors(self, *, transposed: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return where rows start, the nodes at the other ends, and weights (any tensor where these do not count)."""
        edges = self.relation.compact(self.dtype if self.weighted else None, transposed=transposed)
        return edges.starts, edges.neighbours, edges.starts if edges.weights is None else edges.weights

    def constants(self, strains: int | None, dtype: torch.dtype) -> dict[str, Any]:
        """Return the constants of Triton: types and tiles.

        Args:
            strains: B; None for the base.
            dtype: type of the rows.
        """
        import triton
        import triton.language as tl

        columns = triton.next_power_of_2(self.head)
        together = 1 if strains is None else min(STRAINS, triton.next_power_of_2(strains))
        sizes = {"BE": max(1, BYTES // (columns * together * dtype.itemsize)), "BD": columns}
        if strains is not None:
            sizes["BB"] = together
        sums = tl.float64 if self.dtype == torch.float64 else tl.float32
        return {"WEIGHTED": self.weighted, "SLOPE": self.slope, "SUM": sums, "num_warps": 1, **sizes}


def attend_base(
    edges: Edges, key_NH: Tensor, query_MH: Tensor, vector_H: Tensor, edge_vector_H: Tensor | None, keep: Keep
) -> Tensor:
    """Return the attention of every destination to its in-edges, [M, H], in the type of the sums.

    It is zero where there are no in-edges.

    Args:
        edges: the edges of a relation.
        key_NH, query_MH: keys of the sources and queries of the destinations.
        vector_H, edge_vector_H: vectors of the score, for all heads side by side.
        keep: [N, 1] and [M, 1] bool, which sources and destinations are kept.
    """
    out: Tensor = _Base.apply(key_NH, query_MH, vector_H, edge_vector_H, edges, keep)
    return out


def attend_strains(
    edges: Edges,
    keys: tuple[Tensor, Tensor | None],
    queries: tuple[Tensor, Tensor | None],
    vector_H: Tensor,
    edge_vector_H: Tensor | None,
    base_keep: Keep,
    keep: Keep,
    dtype: torch.dtype,
) -> Tensor:
    """Return by how much the attention of strains differs, [M, B, H]; see ``dglcell.perturbation.attention``.

    Args:
        edges: the edges of a relation.
        keys: [N, H] keys of the base, and [N, B, H] differences, or None.
        queries: [M, H] queries of the base, and [M, B, H] differences, or None.
        vector_H, edge_vector_H: vectors of the score.
        base_keep: [N, 1] and [M, 1] bool, what the base keeps.
        keep: [N, B] and [M, B] bool, what the strains keep.
        dtype: type of the result.
    """
    out: Tensor = _Strains.apply(*keys, *queries, vector_H, edge_vector_H, edges, base_keep, keep, dtype)
    return out


def _bytes(keep: Keep) -> tuple[Tensor, ...]:
    return tuple(mask.contiguous().view(torch.uint8) for mask in keep)


def _run_base(edges: Edges, rows: tuple[Tensor, ...], keep: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    from dglcell.kernels import edge_attention_triton as compiled

    M = edges.relation.num_dst
    out = rows[0].new_empty(M, edges.width, dtype=edges.dtype)
    lse = rows[0].new_empty(M, edges.heads, dtype=edges.dtype)
    run, constants = compiled.attend_base[M, edges.heads], edges.constants(None, rows[0].dtype)
    run(*edges.tensors(transposed=False), *rows, *keep, out, lse, edges.width, edges.head, **constants)
    return out, lse


class _Base(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, key: Tensor, query: Tensor, vector: Tensor, edge_vector: Tensor | None, edges: Edges, keep: Keep
    ) -> Tensor:
        rows = tuple((key if x is None else x).contiguous() for x in (key, query, vector, edge_vector))
        bytes_ = _bytes(keep)
        out, lse = _run_base(edges, rows, bytes_)
        ctx.edges = edges
        ctx.save_for_backward(*rows, *bytes_, out, lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from dglcell.kernels import edge_attention_triton as compiled

        edges, (key, query, vector, edge_vector, *rest), grad = ctx.edges, ctx.saved_tensors, grad.contiguous()
        rows, sizes = (key, query, vector, edge_vector, *rest, grad), (edges.width, edges.head)
        d_query, d_vector, d_edge_vector = (torch.empty_like(grad) for _ in range(3))
        d_key, constants = key.new_empty(key.shape, dtype=edges.dtype), edges.constants(None, key.dtype)
        run = compiled.base_to_destinations[len(query), edges.heads]
        run(*edges.tensors(transposed=False), *rows, d_query, d_vector, d_edge_vector, *sizes, **constants)
        run = compiled.base_to_sources[len(key), edges.heads]
        run(*edges.tensors(transposed=True), *rows, d_key, *sizes, **constants)
        of_weights = d_edge_vector.sum(0).to(edge_vector.dtype) if edges.weighted else None
        sums = d_key.to(key.dtype), d_query.to(query.dtype), d_vector.sum(0).to(vector.dtype)
        return *sums, of_weights, None, None


class _Strains(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        key: Tensor,
        key_delta: Tensor | None,
        query: Tensor,
        query_delta: Tensor | None,
        vector: Tensor,
        edge_vector: Tensor | None,
        edges: Edges,
        base_keep: Keep,
        keep: Keep,
        dtype: torch.dtype,
    ) -> Tensor:
        from dglcell.kernels import edge_attention_triton as compiled

        # Unused arguments have to be some tensor.
        given = (key, key_delta, query, query_delta, vector, edge_vector)
        rows = tuple((key if x is None else x).contiguous() for x in given)
        masks = (*_bytes(base_keep), *_bytes(keep))
        _, lse = _run_base(edges, (rows[0], rows[2], *rows[4:]), masks[:2])
        B = keep[0].shape[1]
        ctx.edges, ctx.B = edges, B
        ctx.flags = {"HAS_KEYS": key_delta is not None, "HAS_QUERIES": query_delta is not None}
        out = key.new_empty(len(query), B, edges.width, dtype=dtype)
        growth = lse.new_empty(len(query), B, edges.heads)
        constants = {**ctx.flags, **edges.constants(B, dtype)}
        run = compiled.attend_strains[len(query), edges.heads, -(-B // constants["BB"])]
        sizes = B, edges.width, edges.head
        run(*edges.tensors(transposed=False), *rows, *masks, lse, out, growth, *sizes, **constants)
        ctx.save_for_backward(*rows, *masks, lse, growth)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from dglcell.kernels import edge_attention_triton as compiled

        edges, B, saved, grad = ctx.edges, ctx.B, ctx.saved_tensors, grad.contiguous()
        key, key_delta, query, query_delta, vector, edge_vector = saved[:6]
        constants, (N, M, H) = {**ctx.flags, **edges.constants(B, grad.dtype)}, (len(key), len(query), edges.width)
        groups = -(-B // constants["BB"])
        means, rests = torch.empty_like(saved[-1]), torch.empty_like(saved[-1])
        d_query, d_vector, d_edge_vector = (means.new_empty(groups, M, H) for _ in range(3))
        d_key, d_key_delta = means.new_empty(groups, N, H), torch.empty_like(key_delta)
        d_query_delta = torch.empty_like(query_delta)
        run = compiled.strains_to_destinations[M, edges.heads, groups]
        outputs = (means, rests, d_query, d_query_delta, d_vector, d_edge_vector)
        run(*edges.tensors(transposed=False), *saved, grad, *outputs, B, M, H, edges.head, **constants)
        run = compiled.strains_to_sources[N, edges.heads, groups]
        of_sources = (means, rests, d_key, d_key_delta)
        run(*edges.tensors(transposed=True), *saved, grad, *of_sources, B, N, H, edges.head, **constants)
        return (
            d_key.sum(0).to(key.dtype),
            d_key_delta if ctx.flags["HAS_KEYS"] else None,
            d_query.sum(0).to(query.dtype),
            d_query_delta if ctx.flags["HAS_QUERIES"] else None,
            d_vector.sum((0, 1)).to(vector.dtype),
            d_edge_vector.sum((0, 1)).to(edge_vector.dtype) if edges.weighted else None,
            None,
            None,
            None,
            None,
        )
