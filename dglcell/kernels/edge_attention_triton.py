"""Compute GATv2 attention along edges in Triton's loops, without a tensor of edges, with sums in a fixed order.

A program has one head of one node, and some strains; it goes through the node's edges a few at a time, in a single pass
where that is enough. Gradients of sources are summed by sources, and those of destinations by destinations, so that no
two programs write to one place.

With l the base's logit of an edge and Λ the logarithm of how much a strain's sum of exponentials grows, a strain's
shares are ``p' = p e^(Δ − Λ)``. Both Δ and Λ are computed as differences, and never subtracted from whole logits.
"""

from __future__ import annotations

import triton
import triton.language as tl

NOTHING: tl.constexpr = tl.constexpr(-1e30)
"""Logit of an edge that is gone: finite, so that a node without edges gives no NaN."""


# Functions of numbers.


@triton.jit
def _leaky(x, SLOPE: tl.constexpr):
    return tl.where(x > 0, x, x * SLOPE)


@triton.jit
def _gradient_of_leaky(x, SLOPE: tl.constexpr):
    return tl.where(x > 0, tl.full(x.shape, 1, x.dtype), tl.full(x.shape, SLOPE, x.dtype))


@triton.jit
def _leaky_difference(delta, x, SLOPE: tl.constexpr):
    """Compute ``leaky(x + δ) − leaky(x)`` without cancellation."""
    rise = tl.maximum(delta + tl.minimum(x, 0.0), -tl.maximum(x, 0.0))
    return rise * (1 - SLOPE) + delta * SLOPE


@triton.jit
def _expm1(z):
    """Compute ``e^z − 1``, by its series where the subtraction would cancel."""
    series = tl.full(z.shape, 1, z.dtype)
    for i in tl.static_range(10, 1, -1):
        series = series * z / i + 1
    return tl.where(tl.abs(z) < 0.25, series * z, tl.exp(tl.minimum(z, 60.0)) - 1)


@triton.jit
def _log1p(s):
    """Compute ``log(1 + s)`` for |s| < 1 / 4, by the series of the inverse hyperbolic tangent."""
    t = s / (2 + s)
    series = tl.zeros_like(s)
    for i in tl.static_range(15, 0, -2):
        series = series * t * t + 1.0 / i
    return 2 * t * series


# Rows of memory.


@triton.jit
def _rows(x, nodes, columns, there, H, SUM: tl.constexpr):
    """Load columns of some nodes, [n, D]."""
    return tl.load(x + nodes[:, None] * H + columns[None, :], mask=there, other=0).to(SUM)


@triton.jit
def _strain_rows(x, nodes, strains, columns, there, B, H, SUM: tl.constexpr):
    """Load columns of some nodes in some strains, [n, BB, D]."""
    rows = nodes[:, None] * B + strains[None, :]
    return tl.load(x + rows[:, :, None] * H + columns[None, None, :], mask=there, other=0).to(SUM)


@triton.jit
def _kept(keep, nodes, strains, B):
    """Load whether strains keep nodes, [n, BB]."""
    return tl.load(keep + nodes[:, None] * B + strains[None, :], mask=(strains < B)[None, :], other=0) != 0


@triton.jit
def _edges(neighbours, weights, first, last, WEIGHTED: tl.constexpr, SUM: tl.constexpr, BE: tl.constexpr):
    """Load the next edges, [BE]: which exist, the nodes at their other ends, and their weights."""
    edge = first + tl.arange(0, BE)
    there = edge < last
    nodes = tl.load(neighbours + edge, mask=there, other=0).to(tl.int64)
    weight = tl.zeros((BE,), SUM)
    if WEIGHTED:
        weight = tl.load(weights + edge, mask=there, other=0).to(SUM)
    return there, nodes, weight


@triton.jit
def _sum_of(key, query, weight, edge_vector, WEIGHTED: tl.constexpr):
    """Return the sum that LeakyReLU is applied to, [BE, D]."""
    x = key + query
    if WEIGHTED:
        x += weight[:, None] * edge_vector[None, :]
    return x


@triton.jit
def _place(H, D, BD: tl.constexpr):
    """Return the node and the columns of a program, and which of these columns exist."""
    inner = tl.arange(0, BD)
    return tl.program_id(0).to(tl.int64), tl.program_id(1) * D + inner, inner < D


# The base.


@triton.jit
def attend_base(
    starts, neighbours, weights, key, query, vector, edge_vector, keep_from, keep_to, out, lse, H, D,
    WEIGHTED: tl.constexpr, SLOPE: tl.constexpr, SUM: tl.constexpr, BE: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Compute the attention of a node to its in-edges, by an online softmax.

    Args:
        starts: [M + 1] starts of the in-edges; neighbours, weights: [E] sources, and weights that take part in the
        score.
        key, query: [N, H] and [M, H] keys and queries.
        vector, edge_vector: [H] vectors of the score.
        keep_from, keep_to: [N] and [M] bytes, zero for lost nodes.
        out: [M, H] attention, written.
        lse: [M, A] logarithms of the sums of exponentials.
        H, D: the width, and the width of a head.
    """
    node, columns, inside = _place(H, D, BD)
    a = tl.load(vector + columns, mask=inside, other=0).to(SUM)
    c = tl.load(edge_vector + columns, mask=inside & WEIGHTED, other=0).to(SUM)
    q = tl.load(query + node * H + columns, mask=inside, other=0).to(SUM)[None, :]
    first, last = tl.load(starts + node), tl.load(starts + node + 1)
    last = tl.where(tl.load(keep_to + node) != 0, last, first)
    top, total = tl.full((), NOTHING, SUM), tl.zeros((), SUM)
    sums = tl.zeros((BD,), SUM)
    for start in range(first, last, BE):
        there, source, weight = _edges(neighbours, weights, start, last, WEIGHTED, SUM, BE)
        alive = there & (tl.load(keep_from + source, mask=there, other=0) != 0)
        k = _rows(key, source, columns, alive[:, None] & inside[None, :], H, SUM)
        logit = tl.sum(_leaky(_sum_of(k, q, weight, c, WEIGHTED), SLOPE) * a[None, :], 1)
        above = tl.maximum(top, tl.max(tl.where(alive, logit, NOTHING), 0))
        part = tl.where(alive, tl.exp(logit - above), 0.0)
        shrink = tl.exp(top - above)
        total, sums, top = total * shrink + tl.sum(part, 0), sums * shrink + tl.sum(part[:, None] * k, 0), above
    any_alive = total > 0
    safe = tl.where(any_alive, total, 1.0)
    tl.store(out + node * H + columns, (sums / safe).to(out.dtype.element_ty), mask=inside)
    tl.store(lse + node * tl.num_programs(1) + tl.program_id(1), tl.where(any_alive, top + tl.log(safe), 0.0))


@triton.jit
def _base_gradient(k, x, a, share, grad, product, SLOPE: tl.constexpr):
    """Return the gradient of what LeakyReLU is applied to, [BE, D], and that of the logit, [BE]."""
    d_logit = share * (tl.sum(grad * k, 1) - product)
    return d_logit[:, None] * a[None, :] * _gradient_of_leaky(x, SLOPE), d_logit


@triton.jit
def base_to_destinations(
    starts, neighbours, weights, key, query, vector, edge_vector, keep_from, keep_to, out, lse, grad,
    d_query, d_vector, d_edge_vector, H, D,
    WEIGHTED: tl.constexpr, SLOPE: tl.constexpr, SUM: tl.constexpr, BE: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a node's query, and its part of the gradients of the score; see ``attend_base``.

    Args:
        out, grad: [M, H] the result, and its gradient.
        d_query, d_vector, d_edge_vector: [M, H] written.
    """
    node, columns, inside = _place(H, D, BD)
    head = tl.program_id(1)
    a = tl.load(vector + columns, mask=inside, other=0).to(SUM)
    c = tl.load(edge_vector + columns, mask=inside & WEIGHTED, other=0).to(SUM)
    q = tl.load(query + node * H + columns, mask=inside, other=0).to(SUM)[None, :]
    g = tl.load(grad + node * H + columns, mask=inside, other=0).to(SUM)
    product = tl.sum(g * tl.load(out + node * H + columns, mask=inside, other=0).to(SUM), 0)
    level = tl.load(lse + node * tl.num_programs(1) + head)
    first, last = tl.load(starts + node), tl.load(starts + node + 1)
    last = tl.where(tl.load(keep_to + node) != 0, last, first)
    dq, da, dc = tl.zeros((BD,), SUM), tl.zeros((BD,), SUM), tl.zeros((BD,), SUM)
    for start in range(first, last, BE):
        there, source, weight = _edges(neighbours, weights, start, last, WEIGHTED, SUM, BE)
        alive = there & (tl.load(keep_from + source, mask=there, other=0) != 0)
        k = _rows(key, source, columns, alive[:, None] & inside[None, :], H, SUM)
        x = _sum_of(k, q, weight, c, WEIGHTED)
        share = tl.where(alive, tl.exp(tl.sum(_leaky(x, SLOPE) * a[None, :], 1) - level), 0.0)
        dx, d_logit = _base_gradient(k, x, a, share, g[None, :], product, SLOPE)
        dq += tl.sum(dx, 0)
        da += tl.sum(d_logit[:, None] * _leaky(x, SLOPE), 0)
        if WEIGHTED:
            dc += tl.sum(weight[:, None] * dx, 0)
    tl.store(d_query + node * H + columns, dq, mask=inside)
    tl.store(d_vector + node * H + columns, da, mask=inside)
    if WEIGHTED:
        tl.store(d_edge_vector + node * H + columns, dc, mask=inside)


@triton.jit
def base_to_sources(
    starts, neighbours, weights, key, query, vector, edge_vector, keep_from, keep_to, out, lse, grad, d_key, H, D,
    WEIGHTED: tl.constexpr, SLOPE: tl.constexpr, SUM: tl.constexpr, BE: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a node's key, over its out-edges; see ``base_to_destinations``.

    Args:
        starts, neighbours, weights: the out-edges.
        d_key: [N, H] written.
    """
    node, columns, inside = _place(H, D, BD)
    heads, head = tl.num_programs(1), tl.program_id(1)
    a = tl.load(vector + columns, mask=inside, other=0).to(SUM)
    c = tl.load(edge_vector + columns, mask=inside & WEIGHTED, other=0).to(SUM)
    k = tl.load(key + node * H + columns, mask=inside, other=0).to(SUM)[None, :]
    first, last = tl.load(starts + node), tl.load(starts + node + 1)
    last = tl.where(tl.load(keep_from + node) != 0, last, first)
    dk = tl.zeros((BD,), SUM)
    for start in range(first, last, BE):
        there, target, weight = _edges(neighbours, weights, start, last, WEIGHTED, SUM, BE)
        alive = there & (tl.load(keep_to + target, mask=there, other=0) != 0)
        mask = alive[:, None] & inside[None, :]
        x = _sum_of(k, _rows(query, target, columns, mask, H, SUM), weight, c, WEIGHTED)
        g = _rows(grad, target, columns, mask, H, SUM)
        product = tl.sum(g * _rows(out, target, columns, mask, H, SUM), 1)
        level = tl.load(lse + target * heads + head, mask=alive, other=0)
        share = tl.where(alive, tl.exp(tl.sum(_leaky(x, SLOPE) * a[None, :], 1) - level), 0.0)
        dx, _ = _base_gradient(k, x, a, share, g, product, SLOPE)
        dk += tl.sum(dx + share[:, None] * g, 0)
    tl.store(d_key + node * H + columns, dk, mask=inside)


# Differences of strains. Numbers in [BE, BB] belong to edges and strains.


@triton.jit
def _logits(x, moved, a, SLOPE: tl.constexpr):
    """Return the logits of the base, [BE], and by how much those of strains differ, [BE, BB]."""
    logit = tl.sum(_leaky(x, SLOPE) * a[None, :], 1)
    return logit, tl.sum(_leaky_difference(moved, x[:, None, :], SLOPE) * a[None, None, :], 2)


@triton.jit
def _shares(logit, delta, level, growth, alive_base, alive):
    """Return shares of the base, [BE, 1], those of strains, [BE, BB], and by how much they differ."""
    below = (logit - level)[:, None]
    base = tl.where(alive_base, tl.exp(below), 0.0)
    share = tl.where(alive, tl.exp(tl.minimum(below + delta - growth, 0.0)), 0.0)
    z = delta - growth
    change = tl.where(tl.abs(z) < 0.25, base * _expm1(z), share - base)
    return base, share, tl.where(alive, change, -base)


@triton.jit
def _arriving(
    start, last, neighbours, weights, key, key_delta, base_from, keep_from, kept_here, strains, columns, inside,
    mine, dq, B, H, HAS_KEYS: tl.constexpr, WEIGHTED: tl.constexpr, SUM: tl.constexpr,
    BE: tl.constexpr, BB: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Load some in-edges of a node: weights, which are alive, keys, their differences, and those of key plus query."""
    there, source, weight = _edges(neighbours, weights, start, last, WEIGHTED, SUM, BE)
    alive_base = (there & (tl.load(base_from + source, mask=there, other=0) != 0))[:, None]
    alive = alive_base & _kept(keep_from, source, strains, B) & kept_here
    k = _rows(key, source, columns, alive_base & inside[None, :], H, SUM)
    moved, dk = dq, tl.zeros((BE, BB, BD), SUM)
    if HAS_KEYS:
        dk = _strain_rows(key_delta, source, strains, columns, alive[:, :, None] & mine, B, H, SUM)
        moved = dq + dk
    return weight, alive_base, alive, k, dk, moved


@triton.jit
def attend_strains(
    starts, neighbours, weights, key, key_delta, query, query_delta, vector, edge_vector,
    base_from, base_to, keep_from, keep_to, lse, out, growth, B, H, D,
    HAS_KEYS: tl.constexpr, HAS_QUERIES: tl.constexpr, WEIGHTED: tl.constexpr, SLOPE: tl.constexpr, SUM: tl.constexpr,
    BE: tl.constexpr, BB: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Compute by how much the attention of strains differs from the base's, in two passes over the edges.

    Args:
        key_delta, query_delta: [N, B, H] and [M, B, H] differences, where ``HAS_KEYS`` and ``HAS_QUERIES``.
        base_from, base_to: [N] and [M] bytes of the base; keep_from, keep_to: [N, B] and [M, B] of the strains.
        lse: [M, A] logarithms of the base's sums of exponentials.
        out: [M, B, H] written.
        growth: [M, B, A] written, Λ.
        others: as for ``attend_base``.
    """
    node, columns, inside = _place(H, D, BD)
    heads, head = tl.num_programs(1), tl.program_id(1)
    strains = tl.program_id(2) * BB + tl.arange(0, BB)
    a = tl.load(vector + columns, mask=inside, other=0).to(SUM)
    c = tl.load(edge_vector + columns, mask=inside & WEIGHTED, other=0).to(SUM)
    nodes = node + tl.zeros((1,), tl.int64)
    q = tl.load(query + node * H + columns, mask=inside, other=0).to(SUM)[None, :]
    mine = (strains < B)[None, :, None] & inside[None, None, :]
    dq = tl.zeros((1, BB, BD), SUM)
    if HAS_QUERIES:
        dq = _strain_rows(query_delta, nodes, strains, columns, mine, B, H, SUM)
    kept_here = _kept(keep_to, nodes, strains, B)
    level = tl.load(lse + node * heads + head)
    first, last = tl.load(starts + node), tl.load(starts + node + 1)
    last = tl.where(tl.load(base_to + node) != 0, last, first)
    top, total, change = tl.full((BB,), NOTHING, SUM), tl.zeros((BB,), SUM), tl.zeros((BB,), SUM)
    for start in range(first, last, BE):
        weight, alive_base, alive, k, _, moved = _arriving(
            start, last, neighbours, weights, key, key_delta, base_from, keep_from, kept_here, strains, columns, inside,
            mine, dq, B, H, HAS_KEYS, WEIGHTED, SUM, BE, BB, BD,
        )  # fmt: skip
        logit, delta = _logits(_sum_of(k, q, weight, c, WEIGHTED), moved, a, SLOPE)
        below = (logit - level)[:, None]
        share = tl.where(alive_base, tl.exp(below), 0.0)
        change += tl.sum(share * tl.where(alive, _expm1(delta), -1.0), 0)
        above = tl.maximum(top, tl.max(tl.where(alive, below + delta, NOTHING), 0))
        part = tl.where(alive, tl.exp(below + delta - above[None, :]), 0.0)
        total, top = total * tl.exp(top - above) + tl.sum(part, 0), above
    small = tl.abs(change) < 0.25
    direct = tl.where(total > 0, top + tl.log(tl.where(total > 0, total, 1.0)), 0.0)
    grows = tl.where(small, _log1p(tl.where(small, change, 0.0)), direct)
    tl.store(growth + (node * B + strains) * heads + head, grows, mask=strains < B)
    sums = tl.zeros((BB, BD), SUM)
    for start in range(first, last, BE):
        weight, alive_base, alive, k, dk, moved = _arriving(
            start, last, neighbours, weights, key, key_delta, base_from, keep_from, kept_here, strains, columns, inside,
            mine, dq, B, H, HAS_KEYS, WEIGHTED, SUM, BE, BB, BD,
        )  # fmt: skip
        logit, delta = _logits(_sum_of(k, q, weight, c, WEIGHTED), moved, a, SLOPE)
        _, share, moves = _shares(logit, delta, level, grows[None, :], alive_base, alive)
        sums += tl.sum(moves[:, :, None] * k[:, None, :], 0)
        if HAS_KEYS:
            sums += tl.sum(share[:, :, None] * dk, 0)
    rows = out + (node * B + strains)[:, None] * H + columns[None, :]
    tl.store(rows, sums.to(out.dtype.element_ty), mask=(strains < B)[:, None] & inside[None, :])


@triton.jit
def _upstream(k, dk, g):
    """Return gradients of the shares' changes, [BE, BB]: by the base's keys and differences, and by differences."""
    by_delta = tl.sum(dk * g, 2)
    return tl.sum(k[:, None, :] * g, 2) + by_delta, by_delta


@triton.jit
def _strain_gradient(x, moved, a, base, share, change, d_change, by_delta, mean, rest, SLOPE: tl.constexpr):
    """Return gradients of what LeakyReLU is applied to in the base, [BE, D], and of its difference, [BE, BB, D].

    The gradients of both logits follow.
    """
    d_delta = share * (d_change - mean)
    d_logit = change * (d_change - mean) + base * (by_delta - rest)
    here = _gradient_of_leaky(x, SLOPE)
    there = _gradient_of_leaky(x[:, None, :] + moved, SLOPE)
    d_moved = d_delta[:, :, None] * a[None, None, :] * there
    turned = tl.sum(d_delta[:, :, None] * (there - here[:, None, :]), 1)
    return (tl.sum(d_logit, 1)[:, None] * here + turned) * a[None, :], d_moved, d_logit, d_delta


@triton.jit
def strains_to_destinations(
    starts, neighbours, weights, key, key_delta, query, query_delta, vector, edge_vector,
    base_from, base_to, keep_from, keep_to, lse, growth, grad,
    means, rests, d_query, d_query_delta, d_vector, d_edge_vector, B, M, H, D,
    HAS_KEYS: tl.constexpr, HAS_QUERIES: tl.constexpr, WEIGHTED: tl.constexpr, SLOPE: tl.constexpr, SUM: tl.constexpr,
    BE: tl.constexpr, BB: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Compute gradients of a node's query and of its differences, and its part of the gradients of the score.

    Args:
        grad: [M, B, H] gradient of the result.
        means, rests: [M, B, A] written: sums over edges that ``strains_to_sources`` needs.
        d_query, d_vector, d_edge_vector: [T, M, H] written, for each of T groups of strains.
        d_query_delta: [M, B, H] written, where ``HAS_QUERIES``.
        others: as for ``attend_strains``.
    """
    node, columns, inside = _place(H, D, BD)
    heads, head = tl.num_programs(1), tl.program_id(1)
    strains = tl.program_id(2) * BB + tl.arange(0, BB)
    a = tl.load(vector + columns, mask=inside, other=0).to(SUM)
    c = tl.load(edge_vector + columns, mask=inside & WEIGHTED, other=0).to(SUM)
    nodes = node + tl.zeros((1,), tl.int64)
    q = tl.load(query + node * H + columns, mask=inside, other=0).to(SUM)[None, :]
    mine = (strains < B)[None, :, None] & inside[None, None, :]
    g = _strain_rows(grad, nodes, strains, columns, mine, B, H, SUM)
    dq = tl.zeros((1, BB, BD), SUM)
    if HAS_QUERIES:
        dq = _strain_rows(query_delta, nodes, strains, columns, mine, B, H, SUM)
    kept_here = _kept(keep_to, nodes, strains, B)
    level = tl.load(lse + node * heads + head)
    statistic = (node * B + strains) * heads + head
    grows = tl.load(growth + statistic, mask=strains < B, other=0)[None, :]
    first, last = tl.load(starts + node), tl.load(starts + node + 1)
    last = tl.where(tl.load(base_to + node) != 0, last, first)
    mean, rest = tl.zeros((BB,), SUM), tl.zeros((BB,), SUM)
    for start in range(first, last, BE):
        weight, alive_base, alive, k, dk, moved = _arriving(
            start, last, neighbours, weights, key, key_delta, base_from, keep_from, kept_here, strains, columns, inside,
            mine, dq, B, H, HAS_KEYS, WEIGHTED, SUM, BE, BB, BD,
        )  # fmt: skip
        logit, delta = _logits(_sum_of(k, q, weight, c, WEIGHTED), moved, a, SLOPE)
        base, share, change = _shares(logit, delta, level, grows, alive_base, alive)
        d_change, by_delta = _upstream(k, dk, g)
        mean += tl.sum(share * d_change, 0)
        rest += tl.sum(change * d_change + base * by_delta, 0)
    tl.store(means + statistic, mean, mask=strains < B)
    tl.store(rests + statistic, rest, mask=strains < B)
    d_q, d_a, d_c = tl.zeros((BD,), SUM), tl.zeros((BD,), SUM), tl.zeros((BD,), SUM)
    d_dq = tl.zeros((BB, BD), SUM)
    for start in range(first, last, BE):
        weight, alive_base, alive, k, dk, moved = _arriving(
            start, last, neighbours, weights, key, key_delta, base_from, keep_from, kept_here, strains, columns, inside,
            mine, dq, B, H, HAS_KEYS, WEIGHTED, SUM, BE, BB, BD,
        )  # fmt: skip
        x = _sum_of(k, q, weight, c, WEIGHTED)
        logit, delta = _logits(x, moved, a, SLOPE)
        base, share, change = _shares(logit, delta, level, grows, alive_base, alive)
        d_change, by_delta = _upstream(k, dk, g)
        dx, d_moved, d_logit, d_delta = _strain_gradient(
            x, moved, a, base, share, change, d_change, by_delta, mean[None, :], rest[None, :], SLOPE
        )
        d_q += tl.sum(dx, 0)
        d_dq += tl.sum(d_moved, 0)
        rise = tl.sum(d_delta[:, :, None] * _leaky_difference(moved, x[:, None, :], SLOPE), 1)
        d_a += tl.sum(tl.sum(d_logit, 1)[:, None] * _leaky(x, SLOPE) + rise, 0)
        if WEIGHTED:
            d_c += tl.sum(weight[:, None] * dx, 0)
    part = (tl.program_id(2) * M + node) * H + columns
    tl.store(d_query + part, d_q, mask=inside)
    tl.store(d_vector + part, d_a, mask=inside)
    if WEIGHTED:
        tl.store(d_edge_vector + part, d_c, mask=inside)
    if HAS_QUERIES:
        rows = d_query_delta + (node * B + strains)[:, None] * H + columns[None, :]
        tl.store(rows, d_dq.to(d_query_delta.dtype.element_ty), mask=(strains < B)[:, None] & inside[None, :])


@triton.jit
def strains_to_sources(
    starts, neighbours, weights, key, key_delta, query, query_delta, vector, edge_vector,
    base_from, base_to, keep_from, keep_to, lse, growth, grad, means, rests, d_key, d_key_delta, B, N, H, D,
    HAS_KEYS: tl.constexpr, HAS_QUERIES: tl.constexpr, WEIGHTED: tl.constexpr, SLOPE: tl.constexpr, SUM: tl.constexpr,
    BE: tl.constexpr, BB: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Compute gradients of a node's key and of its differences, over its out-edges.

    Args:
        starts, neighbours, weights: the out-edges.
        d_key: [T, N, H] written, for each of T groups of strains.
        d_key_delta: [N, B, H] written, where ``HAS_KEYS``.
        others: as for ``strains_to_destinations``.
    """
    node, columns, inside = _place(H, D, BD)
    heads, head = tl.num_programs(1), tl.program_id(1)
    strains = tl.program_id(2) * BB + tl.arange(0, BB)
    a = tl.load(vector + columns, mask=inside, other=0).to(SUM)
    c = tl.load(edge_vector + columns, mask=inside & WEIGHTED, other=0).to(SUM)
    nodes = node + tl.zeros((1,), tl.int64)
    k = tl.load(key + node * H + columns, mask=inside, other=0).to(SUM)[None, :]
    mine = (strains < B)[None, :, None] & inside[None, None, :]
    kept_here = _kept(keep_from, nodes, strains, B)
    dk = tl.zeros((1, BB, BD), SUM)
    if HAS_KEYS:
        dk = _strain_rows(key_delta, nodes, strains, columns, mine & kept_here[:, :, None], B, H, SUM)
    first, last = tl.load(starts + node), tl.load(starts + node + 1)
    last = tl.where(tl.load(base_from + node) != 0, last, first)
    d_k, d_dk = tl.zeros((BD,), SUM), tl.zeros((BB, BD), SUM)
    for start in range(first, last, BE):
        there, target, weight = _edges(neighbours, weights, start, last, WEIGHTED, SUM, BE)
        alive_base = (there & (tl.load(base_to + target, mask=there, other=0) != 0))[:, None]
        alive = alive_base & _kept(keep_to, target, strains, B) & kept_here
        q = _rows(query, target, columns, alive_base & inside[None, :], H, SUM)
        theirs = alive_base[:, :, None] & mine
        g = _strain_rows(grad, target, strains, columns, theirs, B, H, SUM)
        moved = dk
        if HAS_QUERIES:
            moved = dk + _strain_rows(query_delta, target, strains, columns, theirs, B, H, SUM)
        statistic = (target[:, None] * B + strains[None, :]) * heads + head
        known = alive_base & (strains < B)[None, :]
        grows = tl.load(growth + statistic, mask=known, other=0)
        mean, rest = tl.load(means + statistic, mask=known, other=0), tl.load(rests + statistic, mask=known, other=0)
        level = tl.load(lse + target * heads + head, mask=there, other=0)
        x = _sum_of(k, q, weight, c, WEIGHTED)
        logit, delta = _logits(x, moved, a, SLOPE)
        base, share, change = _shares(logit, delta, level, grows, alive_base, alive)
        d_change, by_delta = _upstream(k, dk, g)
        dx, d_moved, _, _ = _strain_gradient(x, moved, a, base, share, change, d_change, by_delta, mean, rest, SLOPE)
        d_k += tl.sum(dx + tl.sum(change[:, :, None] * g, 1), 0)
        d_dk += tl.sum(d_moved + share[:, :, None] * g, 0)
    tl.store(d_key + (tl.program_id(2) * N + node) * H + columns, d_k, mask=inside)
    if HAS_KEYS:
        rows = d_key_delta + (node * B + strains)[:, None] * H + columns[None, :]
        tl.store(rows, d_dk.to(d_key_delta.dtype.element_ty), mask=(strains < B)[:, None] & inside[None, :])
