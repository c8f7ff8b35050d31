"""Compute attention along edges with any score, without a tensor as large as edges × strains.

A score is a function ``score(keys, queries, weights) -> logits``. It gets the ends of some edges row by row: keys and
queries of shape [rows, H], and the fixed weights of the edges of shape [rows], or None where the relation has none. It
returns [rows, A] logits, one for each of A heads. It is written for tensors, row by row; ``attend_differences`` and
``attend_pairs`` call it with a ``PerturbedTensor`` in place of each tensor, so that it gives differences of logits
without subtracting two nearly equal numbers. The values that are averaged are the keys, split into A heads side by
side.

Edges are taken in blocks (``edge_blocks``). Gradients reach keys, queries and all that a score refers to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.graph.resident import ResidentRelation, rectangles
from dglcell.perturbation.curves import share_changes
from dglcell.perturbation.edge_blocks import Table, block_rows, cut, in_blocks, in_edges
from dglcell.perturbation.rules import PerturbedTensor

Score = Callable[[Any, Any, Any], Any]
"""A score gives the logits of edges; the module's docstring defines it."""

Keep = tuple[Tensor, Tensor]
"""[N, C] and [M, C] bool: which sources and which destinations there are; an edge is alive iff both its ends are."""


def attend(
    edges: ResidentRelation,
    keys_NCH: Tensor,
    queries_MCH: Tensor,
    keep: Keep,
    score: Score,
) -> Tensor:
    r"""Compute the attention of destination nodes to the sources of their surviving in-edges, column by column.

    .. math::
        y_v = \sum_{u} \mathrm{softmax}_u(\mathrm{score}(k_u, q_v, w_{uv}))\; k_u

    Args:
        edges: from N source to M destination nodes; parallel edges count each.
        keys_NCH: [N, C, H] keys of the sources.
        queries_MCH: [M, C, H] queries of the destinations.
        keep: [N, C] and [M, C] bool.
        score: see the module's docstring.

    Returns:
        [M, C, H] in the type of the keys; zero for lost nodes and those without surviving in-edges.

    Raises:
        RuntimeError: the score's number of heads does not divide H.
    """
    dtype = torch.promote_types(torch.promote_types(keys_NCH.dtype, queries_MCH.dtype), torch.float32)
    keys, queries = Table(keys_NCH, dtype), Table(queries_MCH, dtype)
    nodes, shapes = edges.by_in_degree

    def block(node: Tensor, width: int, columns: slice) -> Tensor:
        edge, present = in_edges(edges, node, width)
        source = edges.src[edge]
        alive = _both(keep, source, node, columns) & present.unsqueeze(-1)
        key = keys.take(source, columns)
        query = queries.take(node, columns).unsqueeze(1).expand(key.shape)
        weight = _weights(edges, edge, dtype)
        if weight is not None:
            weight = weight.unsqueeze(-1).expand(alive.shape).flatten()
        logits = score(key.flatten(0, 2), query.flatten(0, 2), weight).unflatten(0, alive.shape)
        return _weighted(_shares(logits, alive), key)

    blocks = cut(shapes, keys_NCH.shape[1], block_rows(keys_NCH))
    return in_blocks(block, nodes, blocks, keys_NCH.new_zeros(queries_MCH.shape))


def attend_differences(
    edges: ResidentRelation,
    keys: tuple[Tensor, Tensor | None],
    queries: tuple[Tensor, Tensor | None],
    base_keep: Keep,
    keep: Keep,
    score: Score,
    log_strengths: Tensor | None = None,
) -> Tensor:
    """Compute by how much every strain's attention differs from that of the base, without cancellation.

    Args:
        edges: from N source to M destination nodes; parallel edges count each.
        keys: [N, H] the base's keys, and [N, B, H] differences of B strains from them, None for none.
        queries: [M, H] the base's queries, and [M, B, H] differences, None for none.
        base_keep: [N, 1] and [M, 1] bool of the base.
        keep: [N, B] and [M, B] bool of the strains.
        score: see the module's docstring.
        log_strengths: [N, B] what strains add to the logits of their sources; None for nothing.

    Returns:
        [M, B, H] in the type of the keys' differences (else of the queries' differences, else of the base). It is
        minus the base's attention for nodes that are lost or have no surviving in-edge. Sums are float32 at least.

    Raises:
        RuntimeError: the score's number of heads does not divide H.
    """
    tables = _Tables(keys, queries)
    nodes, shapes = edges.by_in_degree

    def block(node: Tensor, width: int, columns: slice) -> Tensor:
        edge, present = in_edges(edges, node, width)
        source = edges.src[edge]
        alive_base = _both(base_keep, source, node, slice(None)) & present.unsqueeze(-1)
        alive = _both(keep, source, node, columns) & present.unsqueeze(-1)
        key_delta = None if tables.key_delta is None else tables.key_delta.take(source, columns)
        query_delta = None if tables.query_delta is None else tables.query_delta.take(node, columns)
        weight = _weights(edges, edge, tables.dtype)
        key, query = tables.key.take(source), tables.query.take(node)
        added = None if log_strengths is None else log_strengths[:, columns][source]
        return _difference((key, key_delta), (query, query_delta), weight, alive_base, alive, score, added)

    blocks = cut(shapes, keep[1].shape[1], block_rows(keys[0]))
    return in_blocks(block, nodes, blocks, tables.like.new_zeros(*keep[1].shape, keys[0].shape[1]))


def attend_pairs(
    edges: ResidentRelation,
    pairs: tuple[Tensor, Tensor],
    keys: tuple[Tensor, Tensor | None],
    table_NB: Tensor,
    queries: tuple[Tensor, Tensor | None],
    base_keep: Keep,
    keep: Keep,
    score: Score,
    log_strengths: Tensor | None = None,
) -> Tensor:
    """Compute ``attend_differences`` for some (destination, strain) pairs only, with differences of keys in a list.

    Args:
        edges: from N source to M destination nodes; parallel edges count each.
        pairs: [K] int64 destination nodes and [K] int64 strains.
        keys: [N, H] the base's keys, and [S, H] differences from them, None for none.
        table_NB: [N, B] int32 row of the keys' differences for every source and strain; negative for none.
        queries: [M, H] the base's queries, and [K, H] differences of the pairs, None for none.
        base_keep: [N, 1] and [M, 1] bool of the base.
        keep: [N, B] and [M, B] bool of the strains.
        score: see the module's docstring.
        log_strengths: [N, B] what strains add to the logits of their sources; None for nothing.

    Returns:
        The differences of the pairs, [K, H], as in ``attend_differences``.

    Raises:
        RuntimeError: the score's number of heads does not divide H.
    """
    nodes, strains = pairs
    if keys[1] is not None:
        # Sources without a difference take a row of zeros.
        keys = keys[0], torch.nn.functional.pad(keys[1], (0, 0, 0, 1))
    tables = _Tables(keys, queries)
    degrees, order = torch.sort(edges.in_degrees[nodes], descending=True, stable=True)

    def block(place: Tensor, width: int, columns: slice) -> Tensor:
        node, strain = nodes[place], strains[place].unsqueeze(1)
        edge, present = in_edges(edges, node, width)
        source = edges.src[edge]
        alive_base = _both(base_keep, source, node, slice(None)) & present.unsqueeze(-1)
        alive = (keep[0][source, strain] & keep[1][node.unsqueeze(1), strain] & present).unsqueeze(-1)
        key_delta = query_delta = None
        if tables.key_delta is not None:
            row = table_NB[source, strain].long()
            row = torch.where(row < 0, len(tables.key_delta.x) - 1, row)
            key_delta = tables.key_delta.take(row).unsqueeze(2)
        if tables.query_delta is not None:
            query_delta = tables.query_delta.take(place).unsqueeze(1)
        weight = _weights(edges, edge, tables.dtype)
        key, query = tables.key.take(source), tables.query.take(node)
        added = None if log_strengths is None else log_strengths[source, strain].unsqueeze(-1)
        return _difference((key, key_delta), (query, query_delta), weight, alive_base, alive, score, added)

    blocks = cut(rectangles(degrees.cpu().numpy()), 1, block_rows(keys[0]))
    return in_blocks(block, order, blocks, tables.like.new_zeros(len(nodes), 1, keys[0].shape[1])).squeeze(1)


def _difference(
    keys: tuple[Tensor, Tensor | None],
    queries: tuple[Tensor, Tensor | None],
    weight: Tensor | None,
    alive_base: Tensor,
    alive: Tensor,
    score: Score,
    added: Tensor | None,
) -> Tensor:
    """Compute the differences of q nodes with K slots for in-edges each, in b strains.

    Args:
        keys: [q, K, H] of the base, and [q, K, b, H].
        queries: [q, H] of the base, and [q, b, H].
        weight: [q, K] of the edges, or None.
        alive_base, alive: [q, K, 1] and [q, K, b] bool, false for empty slots.
        score: see the module's docstring.
        added: [q, K, b] what strains add to all logits of a slot, or None.

    Returns:
        [q, b, H].
    """
    (key, key_delta), (query, query_delta), shape = keys, queries, alive.shape
    query = query.unsqueeze(1).expand(key.shape)
    if query_delta is not None:
        query_delta = query_delta.unsqueeze(1).expand(*shape, -1).flatten(0, 2)
    logits = score(
        PerturbedTensor(key.flatten(0, 1), None if key_delta is None else key_delta.flatten(0, 2), shape[2]),
        PerturbedTensor(query.flatten(0, 1), query_delta, shape[2]),
        # A perturbation of zero is added, so that products with perturbed keys know which row belongs to which.
        None if weight is None else PerturbedTensor(weight.flatten(), None, shape[2]),
    )
    # A score that looks at neither keys nor queries gives plain logits.
    base, delta = (logits.base, logits.delta) if isinstance(logits, PerturbedTensor) else (logits, None)
    base = base.unflatten(0, (*shape[:2], 1))
    delta = None if delta is None else delta.unflatten(0, shape)
    if added is not None:
        added = added.to(base.dtype).unsqueeze(-1)
    if added is not None:
        delta = added.expand(*shape, base.shape[-1]) if delta is None else delta + added
    out: Tensor = _Averages.apply(base, delta, key, key_delta, alive_base, alive)
    return out


class _Averages(torch.autograd.Function):
    """Compute differences of averages of keys from those of logits, in a few passes over memory forward and backward.

    With p the base's shares, p' = p + c a strain's, b the base's keys and δ differences of keys: ``Σ c b + Σ p' δ``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        delta: Tensor | None,
        key: Tensor,
        key_delta: Tensor | None,
        alive_base: Tensor,
        alive: Tensor,
    ) -> Tensor:
        """Take [q, K, 1, A], [q, K, b, A], [q, K, H], [q, K, b, H], [q, K, 1] and [q, K, b]; return [q, b, H]."""
        share = _shares(logits, alive_base)
        # Spread over heads and strains, because memory in one piece is several times faster to read.
        none = share.new_zeros(1, 1, 1, 1)
        change = share_changes(share, logits, none if delta is None else delta, -3, alive.unsqueeze(-1))
        out = torch.einsum("qkba,qkad->qbad", change, _split(key, change)).flatten(2)
        if key_delta is not None:
            out += _weighted(share + change, key_delta)
        ctx.save_for_backward(share, change, key, key_delta)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        share, change, key, key_delta = ctx.saved_tensors
        grad = _split(grad, share)
        d_key = torch.einsum("qkba,qbad->qkad", change, grad).flatten(2)
        # How the results depend on c, and on the part of p, which is also a part of p'.
        d_change, d_share, d_key_delta = torch.einsum("qkad,qbad->qkba", _split(key, share), grad), None, None
        new_share = share + change
        if key_delta is not None:
            upstream = grad.unsqueeze(1)
            product = _split(key_delta, share) * upstream
            d_share = product.sum(-1)
            d_change += d_share
            d_key_delta = torch.mul(new_share.unsqueeze(-1), upstream, out=product).flatten(3)
        # A softmax's gradient is p (g − Σ p g). That of c is the difference of two of them, again without cancellation.
        rest = d_change - (new_share * d_change).sum(1, keepdim=True)
        d_delta = new_share * rest
        moved = (change * d_change).sum(1, keepdim=True).sum(2, keepdim=True)
        d_logits = (change * rest).sum(2, keepdim=True) - share * moved
        if d_share is not None:
            d_share = d_share.sum(2, keepdim=True)
            d_logits += share * (d_share - (share * d_share).sum(1, keepdim=True))
        return d_logits, d_delta if ctx.needs_input_grad[1] else None, d_key, d_key_delta, None, None


def _shares(logits: Tensor, alive: Tensor) -> Tensor:
    """Return the softmax over the slots that are alive, [q, K, b, A]; it is zero for the others."""
    gone = ~alive.unsqueeze(-1)
    # A finite floor keeps nodes without any edge free of NaN. All slots then have a share, which is removed below.
    return torch.softmax(logits.masked_fill(gone, torch.finfo(logits.dtype).min), dim=1).masked_fill(gone, 0)


def _weighted(share: Tensor, x: Tensor) -> Tensor:
    """Return the sums over slots of x [q, K, b, H], [q, b, H], each head with its own shares [q, K, b, A]."""
    return (share.unsqueeze(-1) * _split(x, share)).sum(1).flatten(2)


def _split(x: Tensor, share: Tensor) -> Tensor:
    """Reshape [..., H] to [..., A, H / A], for as many heads as the shares have."""
    return x.unflatten(-1, (share.shape[-1], -1))


class _Tables:
    """Hold keys and queries of the base, and their differences, as tables of one precision.

    Attributes:
        dtype: type of the tables, float32 at least.
        like: a tensor of the type that the result has.
    """

    def __init__(self, keys: tuple[Tensor, Tensor | None], queries: tuple[Tensor, Tensor | None]) -> None:
        self.dtype = torch.float32
        for x in (*keys, *queries):
            self.dtype = self.dtype if x is None else torch.promote_types(self.dtype, x.dtype)
        self.like = next(x for x in (keys[1], queries[1], keys[0]) if x is not None)
        self.key, self.query = Table(keys[0], self.dtype), Table(queries[0], self.dtype)
        self.key_delta = None if keys[1] is None else Table(keys[1], self.dtype)
        self.query_delta = None if queries[1] is None else Table(queries[1], self.dtype)


def _both(keep: Keep, source: Tensor, node: Tensor, columns: slice) -> Tensor:
    """Return whether both ends of edges are kept, [q, K, b] bool."""
    there = keep[0][:, columns].index_select(0, source.flatten()).unflatten(0, source.shape)
    return there & keep[1][:, columns].index_select(0, node).unsqueeze(1)


def _weights(edges: ResidentRelation, edge: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Return the weights of some edges, [q, K]; None where the relation has none."""
    return None if edges.weight is None else edges.weight[edge].to(dtype)
