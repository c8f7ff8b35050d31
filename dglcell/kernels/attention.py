"""GATv2 attention without a tensor as large as edges × strains: in blocks recomputed in the backward pass.

Blocks run on any device; where there are compiled loops, those take their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.graph.rectangles import Rectangle
from dglcell.graph.resident import ResidentRelation
from dglcell.kernels.attention_cpu import gatv2_cpu

BLOCK_BYTES = {"cpu": 2**21, "cuda": 2**29}
"""Size of the largest tensors of a block, by device: in cache on a CPU, few launches on a GPU."""

COMPILED_DEVICES = ("cpu",)
"""Where compiled loops take the place of blocks."""


@dataclass(frozen=True)
class GATv2Score:
    """What scores a pair: ``aᵀ LeakyReLU(key + query + weight · edge_vector)``, for every head apart.

    Attributes:
        vector: [A, H / A] a of each of A heads.
        edge_vector: [H], times the weight of the edge (1 where the relation has none); optional.
        slope: of LeakyReLU for negative numbers, 0 or more.
    """

    vector: Tensor
    edge_vector: Tensor | None = None
    slope: float = 0.2


@dataclass(frozen=True)
class Block:
    """n queries with K slots for keys each, in b strains.

    Attributes:
        queries: [n] rows of the queries, each in one block only for any of the columns.
        keys: [n, K] rows of the keys; any row where a slot is empty.
        alive: [n, K, b] bool, false for empty slots and edges that are gone.
        weight: [n, K] of the edges, or None.
        columns: the b strains.
    """

    queries: Tensor
    keys: Tensor
    alive: Tensor
    weight: Tensor | None
    columns: slice


Blocks = Callable[[], Iterator[Block]]


def gatv2(
    edges: ResidentRelation, keys_NBH: Tensor, queries_MBH: Tensor, keep: tuple[Tensor, Tensor], score: GATv2Score
) -> Tensor:
    r"""Attention of destination nodes to the sources of their surviving in-edges, in every strain.

    .. math::
        e_{uv} = a^\top \mathrm{LeakyReLU}(k_u + q_v + w_{uv}\,c), \quad
        y_v = \sum_{u} \mathrm{softmax}_u(e_{uv})\; k_u

    Brody, Alon & Yahav 2022, *How attentive are graph attention networks?*, eq. 7; heads side by side. Differentiable
    in keys, queries and the tensors of ``score``.

    Args:
        edges: E edges from N source to M destination nodes; parallel edges count each.
        keys_NBH: [N, B, H] transformed source states.
        queries_MBH: [M, B, H] transformed destination states.
        keep: [N, B] and [M, B] bool; an edge survives iff both its ends are kept.
        score: of a pair.

    Returns:
        [M, B, H]; zero for lost nodes and those without surviving in-edges.
    """

    if keys_NBH.device.type in COMPILED_DEVICES:
        return gatv2_cpu(edges, keys_NBH, queries_MBH, keep, score.vector, score.edge_vector, score.slope)
    weighted, limit = score.edge_vector is not None, block_rows(keys_NBH)

    def blocks() -> Iterator[Block]:
        nodes, shapes = edges.by_in_degree
        for rows, width, columns in cut(shapes, keep[0].shape[1], limit):
            node = nodes[rows]
            edge, present = in_edges(edges, node, width)
            source = edges.src[edge]
            alive = keep[0][:, columns][source] & keep[1][:, columns][node].unsqueeze(1) & present.unsqueeze(-1)
            yield Block(node, source, alive, edge_weights(edges, edge) if weighted else None, columns)

    return attend_blocks(keys_NBH, queries_MBH, score, blocks)


def in_edges(edges: ResidentRelation, nodes: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """[n, width] in-edges of nodes that have 1 … ``width`` of them (the last one repeated), and which are real."""
    first, degree = edges.in_starts[nodes].unsqueeze(1), edges.in_degrees[nodes].unsqueeze(1)
    slots = torch.arange(width, device=nodes.device)
    return first + torch.minimum(slots, degree - 1), slots < degree


def edge_weights(edges: ResidentRelation, edge: Tensor) -> Tensor:
    """Weights of some edges, of their shape; 1 where the relation has none."""
    return torch.ones((), device=edge.device).expand(edge.shape) if edges.weight is None else edges.weight[edge]


def block_rows(x: Tensor) -> int:
    """How many rows as wide as those of ``x`` a block may have."""
    row_bytes = x.shape[-1] * compute_dtype(x).itemsize
    return BLOCK_BYTES.get(x.device.type, BLOCK_BYTES["cpu"]) // row_bytes


def cut(shapes: list[Rectangle], num_strains: int, limit: int) -> Iterator[tuple[slice, int, slice]]:
    """Cut rectangles so that rows × width × strains is no more than ``limit``.

    A node with so many in-edges that they are too many even alone is computed a few strains at a time; those of one
    node in one strain are never cut.

    Yields:
        Rows, width, strains.
    """
    for shape in shapes:
        strains = min(num_strains, max(1, limit // shape.width))
        step = max(1, limit // (shape.width * strains))
        for row in range(shape.first, shape.last, step):
            rows = slice(row, min(row + step, shape.last))
            for strain in range(0, num_strains, strains):
                yield rows, shape.width, slice(strain, min(strain + strains, num_strains))


def attend_blocks(keys: Tensor, queries: Tensor, score: GATv2Score, blocks: Blocks) -> Tensor:
    """Attention of [m, B, H] queries to [k, B, H] keys, as ``blocks`` pair them.

    Args:
        keys: also the values.
        queries: of the same width and number of strains.
        score: of a pair.
        blocks: makes the blocks, the same ones whenever it is called.

    Returns:
        [m, B, H]; zero for queries in no block or without anything alive.
    """
    out: Tensor = _Attention.apply(keys, queries, score.vector, score.edge_vector, score.slope, blocks)
    return out


def compute_dtype(x: Tensor) -> torch.dtype:
    """Half precisions are computed in float32."""
    return torch.promote_types(x.dtype, torch.float32)


class _Attention(torch.autograd.Function):
    """Keeps its inputs only: what lies between them and the result is made anew for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        keys: Tensor,
        queries: Tensor,
        vector: Tensor,
        edge_vector: Tensor | None,
        slope: float,
        blocks: Blocks,
    ) -> Tensor:
        ctx.save_for_backward(keys, queries, vector, edge_vector)
        ctx.slope, ctx.blocks = slope, blocks
        out = torch.zeros(queries.shape, dtype=keys.dtype, device=keys.device)
        with torch.autocast(keys.device.type, enabled=False):
            pairs = _Pairs(keys, queries, vector, edge_vector, slope)
            for block in blocks():
                key, hidden, share = pairs.shares(block)
                torch.mul(pairs.split(key), share.unsqueeze(-1), out=pairs.split(hidden))
                out[:, block.columns].index_copy_(0, block.queries, hidden.sum(1).to(out.dtype))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        keys, queries, vector, edge_vector = ctx.saved_tensors
        with torch.autocast(grad.device.type, enabled=False):
            pairs = _Pairs(keys, queries, vector, edge_vector, ctx.slope)
            gradients = _Gradients(pairs)
            for block in ctx.blocks():
                gradients.add(block, grad)
        d_edge_vector = None if edge_vector is None else gradients.edge_vector.to(edge_vector.dtype)
        return (
            gradients.keys.to(keys.dtype),
            gradients.queries.to(queries.dtype),
            gradients.vector.to(vector.dtype),
            d_edge_vector,
            None,
            None,
        )


class _Pairs:
    """Scores and softmaxes of (query, key) pairs."""

    def __init__(self, keys: Tensor, queries: Tensor, vector: Tensor, edge_vector: Tensor | None, slope: float) -> None:
        self.keys, self.queries, self.slope = keys, queries, slope
        self.dtype = compute_dtype(keys)
        self.vector = vector.to(self.dtype)
        self.edge_vector = None if edge_vector is None else edge_vector.to(self.dtype)

    def split(self, x: Tensor) -> Tensor:
        """[…, H] as [..., A, H / A]."""
        return x.unflatten(-1, self.vector.shape)

    def dot(self, x: Tensor, vector: Tensor) -> Tensor:
        """[…, A] products of [..., H] with every head's vector."""
        # A matrix-vector product per head: several times faster than reducing products, or one product for all heads.
        heads = zip(x.flatten(0, -2).split(vector.shape[1], dim=1), vector, strict=True)
        return torch.stack([part @ a for part, a in heads], dim=1).view(*x.shape[:-1], -1)

    def shares(self, block: Block) -> tuple[Tensor, Tensor, Tensor]:
        """[n, K, b, H] keys, [n, K, b, H] outputs of LeakyReLU, and [n, K, b, A] softmaxes."""
        key = self.gather(self.keys, block, block.keys.flatten()).unflatten(0, block.keys.shape)
        hidden = key + self.gather(self.queries, block, block.queries).unsqueeze(1)
        if block.weight is not None and self.edge_vector is not None:
            hidden += block.weight.to(self.dtype)[..., None, None] * self.edge_vector
        F.leaky_relu_(hidden, self.slope)
        gone = ~block.alive.unsqueeze(-1)
        # A finite floor keeps queries without any key free of NaN; then all slots have a share, which is taken away.
        logits = self.dot(hidden, self.vector).masked_fill_(gone, torch.finfo(self.dtype).min)
        return key, hidden, torch.softmax(logits, dim=1).masked_fill_(gone, 0)

    def gather(self, x: Tensor, block: Block, rows: Tensor) -> Tensor:
        """[r, b, H] some rows of the block's strains."""
        return x[:, block.columns].index_select(0, rows).to(self.dtype)


class _Gradients:
    """Sums of the blocks' gradients."""

    def __init__(self, pairs: _Pairs) -> None:
        self.pairs = pairs
        self.keys = torch.zeros(pairs.keys.shape, dtype=pairs.dtype, device=pairs.keys.device)
        self.queries = torch.zeros(pairs.queries.shape, dtype=pairs.dtype, device=pairs.keys.device)
        self.edge_vector = self.keys.new_zeros(self.keys.shape[-1])
        self.vector = torch.zeros_like(pairs.vector)

    def add(self, block: Block, grad: Tensor) -> None:
        """Add those of one block, given the gradient [m, B, H] of the result."""
        pairs = self.pairs
        key, hidden, share = pairs.shares(block)
        upstream = pairs.gather(grad, block, block.queries).unsqueeze(1)
        d_share = pairs.dot(key.mul_(upstream), torch.ones_like(pairs.vector))
        d_logit = (share * (d_share - (share * d_share).sum(1, keepdim=True))).unsqueeze(-1)
        self.vector += torch.mul(pairs.split(hidden), d_logit, out=pairs.split(key)).sum((0, 1, 2))
        d_hidden = torch.mul(d_logit, pairs.vector, out=pairs.split(key)).flatten(-2)
        d_sum = torch.ops.aten.leaky_relu_backward(d_hidden, hidden, pairs.slope, True)
        self.queries[:, block.columns].index_copy_(0, block.queries, d_sum.sum(1))
        if block.weight is not None:
            weighted = block.weight.to(pairs.dtype).flatten() @ d_sum.flatten(0, 1).flatten(1)
            self.edge_vector += weighted.view(-1, d_sum.shape[-1]).sum(0)
        pairs.split(d_sum).addcmul_(share.unsqueeze(-1), pairs.split(upstream))
        self.keys[:, block.columns].index_add_(0, block.keys.flatten(), d_sum.flatten(0, 1))
