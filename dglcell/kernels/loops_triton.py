"""Write the loops of Triton's kernels: sums along edges, and rows of layers and of pairs of relations.

They are kept apart because Triton is not on every machine. Under ``TRITON_INTERPRET=1`` they run on a CPU, slowly.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16}

# Sums along edges, in the order of the edges, so that they are the same every time. A product is of x [N, B, H] with an
# adjacency: B strains side by side, or one where the columns have no strains. A program sums a piece of a row, for a
# tile of strains and columns. What lost nodes receive is taken into account while rows are written.


@triton.jit
def _load_row(x, keep, node, strains, columns, there, B, H, MASKED: tl.constexpr, SUM: tl.constexpr):
    """Load the row of a node, [BB, H]; zero in strains that have lost it."""
    node = node.to(tl.int64)
    if MASKED:
        kept = tl.load(keep + node * B + strains, mask=strains < B, other=0)[:, None] != 0
        there = there & kept
    return tl.load(x + (node * B + strains)[:, None] * H + columns[None, :], mask=there, other=0).to(SUM)


@triton.jit
def _store_received(total, received, keep, out, node, strains, columns, there, B, H, MASKED: tl.constexpr):
    """Write what a node receives, or minus what the base's node receives in strains that have lost it."""
    node = node.to(tl.int64)
    if MASKED:
        kept = tl.load(keep + node * B + strains, mask=strains < B, other=1)[:, None] != 0
        row = received + node * H + tl.zeros_like(strains)[:, None] + columns[None, :]
        total = tl.where(kept, total, -tl.load(row, mask=there & ~kept, other=0).to(total.dtype))
    tl.store(out + (node * B + strains)[:, None] * H + columns[None, :], total.to(out.dtype.element_ty), mask=there)


@triton.jit
def sum_pieces(
    pieces, neighbours, weights, x, keep_in, received, keep_out, out, partial, B, H,
    WEIGHTED: tl.constexpr, MASKED_IN: tl.constexpr, MASKED_OUT: tl.constexpr, ONLY_LOST: tl.constexpr,
    SUM: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Sum the edges of a piece of a row; write the row, or a partial sum where it has several pieces.

    Args:
        pieces: [P, 4] int32: row, first edge, last edge + 1, and place among the partial sums or -1.
        neighbours, weights: [E] nodes at the other ends, and weights of the edges.
        x: [N, B, H] rows of the strains.
        keep_in, keep_out: [N, B] and [M, B] bytes, zero for lost nodes: rows of the former are left out.
        received: [M, H] what the base receives; nodes that ``keep_out`` has lost receive minus this.
        out, partial: [M, B, H] results and [S, B, H] partial sums, in the type of the sums; written.
        ONLY_LOST: whether only nodes that ``keep_out`` has lost are needed; the rows of others are not summed.
        SUM: type of the sums.
        BB, BH, UNROLL: strains and columns of a tile, and edges whose rows are read at once.
    """
    piece = tl.program_id(0)
    tiles = tl.cdiv(H, BH)
    strains = tl.program_id(1) // tiles * BB + tl.arange(0, BB)
    columns = tl.program_id(1) % tiles * BH + tl.arange(0, BH)
    there = (strains < B)[:, None] & (columns < H)[None, :]
    row, first, last = tl.load(pieces + 4 * piece), tl.load(pieces + 4 * piece + 1), tl.load(pieces + 4 * piece + 2)
    place = tl.load(pieces + 4 * piece + 3)
    if ONLY_LOST:
        kept = tl.load(keep_out + row.to(tl.int64) * B + strains, mask=strains < B, other=1) != 0
        last = tl.where(tl.min(kept.to(tl.int32), 0) == 0, last, first)
    total = tl.zeros((BB, BH), SUM)
    for edge in tl.range(first, last, loop_unroll_factor=UNROLL):
        node = tl.load(neighbours + edge).to(tl.int32)
        value = _load_row(x, keep_in, node, strains, columns, there, B, H, MASKED_IN, SUM)
        if WEIGHTED:
            value = value * tl.load(weights + edge).to(SUM)
        total += value
    if place >= 0:
        at = (place.to(tl.int64) * B + strains)[:, None] * H + columns[None, :]
        tl.store(partial + at, total, mask=there)
    else:
        _store_received(total, received, keep_out, out, row, strains, columns, there, B, H, MASKED_OUT)


@triton.jit
def add_pieces(
    rows, partial, received, keep_out, out, B, H,
    MASKED_OUT: tl.constexpr, SUM: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr,
):  # fmt: skip
    """Add the partial sums of a row, in order; ``rows`` [R, 3] int32: row, its first partial sum, its last one + 1."""
    number = tl.program_id(0)
    tiles = tl.cdiv(H, BH)
    strains = tl.program_id(1) // tiles * BB + tl.arange(0, BB)
    columns = tl.program_id(1) % tiles * BH + tl.arange(0, BH)
    there = (strains < B)[:, None] & (columns < H)[None, :]
    row = tl.load(rows + 3 * number)
    total = tl.zeros((BB, BH), SUM)
    first, last = tl.load(rows + 3 * number + 1).to(tl.int64), tl.load(rows + 3 * number + 2).to(tl.int64)
    for place in range(first, last):
        at = (place * B + strains)[:, None] * H + columns[None, :]
        total += tl.load(partial + at, mask=there, other=0)
    _store_received(total, received, keep_out, out, row, strains, columns, there, B, H, MASKED_OUT)


@triton.jit
def send(x, base, keep, out, B, H, HAS_X: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr):
    """Write what a node sends: its rows, zeros if not HAS_X, or minus the base's row in strains that have lost it."""
    node = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BH + tl.arange(0, BH)
    instead = -tl.load(base + node * H + columns, mask=columns < H, other=0).to(out.dtype.element_ty)
    for start in range(0, B, BB):
        strains = start + tl.arange(0, BB)
        kept = tl.load(keep + node * B + strains, mask=strains < B, other=1)[:, None] != 0
        there = (strains < B)[:, None] & (columns < H)[None, :]
        rows = (node * B + strains)[:, None] * H + columns[None, :]
        value = tl.zeros((BB, BH), out.dtype.element_ty)
        if HAS_X:
            value = tl.load(x + rows, mask=there & kept, other=0)
        tl.store(out + rows, tl.where(kept, value, instead[None, :]), mask=there)


@triton.jit
def sum_slots(gone, rows, received, keep_out, out, B, K, H, SUM: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr):
    """Write minus what a strain's lost sources sent to a node, or minus what the node received where it is lost.

    ``gone`` [M, B, K] has the weights of the edges from the K lost sources of each strain, ``rows`` [B, K, H] the rows
    of the base's sources.
    """
    node = tl.program_id(0).to(tl.int64)
    tiles = tl.cdiv(H, BH)
    strains = tl.program_id(1) // tiles * BB + tl.arange(0, BB)
    columns = tl.program_id(1) % tiles * BH + tl.arange(0, BH)
    there = (strains < B)[:, None] & (columns < H)[None, :]
    total = tl.zeros((BB, BH), SUM)
    for slot in range(K):
        weight = tl.load(gone + (node * B + strains) * K + slot, mask=strains < B, other=0).to(SUM)
        row = tl.load(rows + (strains * K + slot)[:, None] * H + columns[None, :], mask=there, other=0).to(SUM)
        total -= weight[:, None] * row
    _store_received(total, received, keep_out, out, node, strains, columns, there, B, H, True)


@triton.jit
def sum_lost(x, keep, out, B, H, CLEAR: tl.constexpr, SUM: tl.constexpr, BB: tl.constexpr, BH: tl.constexpr):
    """Compute minus the sum of a node's rows, [N, H], over the strains that have lost it; CLEAR sets them to zero."""
    node = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BH + tl.arange(0, BH)
    total = tl.zeros((BB, BH), SUM)
    for start in range(0, B, BB):
        strains = start + tl.arange(0, BB)
        lost = tl.load(keep + node * B + strains, mask=strains < B, other=1)[:, None] == 0
        there = lost & (columns < H)[None, :]
        rows = x + (node * B + strains)[:, None] * H + columns[None, :]
        total += tl.load(rows, mask=there, other=0).to(SUM)
        if CLEAR:
            tl.store(rows, tl.zeros((BB, BH), x.dtype.element_ty), mask=there)
    tl.store(out + node * H + columns, -tl.sum(total, 0), mask=columns < H)


# Rows of layers. With ``a`` [H] the base's row, ``d`` [BB, H] the differences of a tile of strains and ``g`` their
# gradients, a module's ``_difference`` is f(a + d) − f(a), and its ``_gradient`` gives the gradients of ``d`` and of
# ``a``. The formulas are those of ``dglcell.perturbation.curves``; tests compare the two. ``row_chain`` joins these
# functions to one kernel.

PRECISION = tl.constexpr("tf32x3")  # of float32 on matrix units: three products, as exact as single precision
NEAR = tl.constexpr(0.03)
LOG2_DENSITY = tl.constexpr(-1.3257480647361593)  # of the normal distribution at zero
HALF_LOG2_E = tl.constexpr(0.7213475204444817)


@triton.jit
def load_rows(x, node, strains, columns, there, B, H: tl.constexpr):
    """Load the rows of a node in a tile of strains, [BB, H], in single precision."""
    rows = x + (node.to(tl.int64) * B + strains)[:, None] * H + columns[None, :]
    return tl.load(rows, mask=there[:, None], other=0).to(tl.float32)


@triton.jit
def product(d, weight):
    """Return ``d`` times a matrix of its type, in single precision."""
    return tl.dot(d, weight, input_precision=PRECISION)


@triton.jit
def weight_gradient(d, g, total):
    """Add the gradient of a weight [out, in] to ``total``."""
    return tl.dot(tl.trans(g), d, acc=total, input_precision=PRECISION)


@triton.jit
def _normal(x):
    """Return Φ(x) and φ(x) of the normal distribution, from one exponential.

    Φ is formula 26.2.17 of Abramowitz and Stegun, *Handbook of Mathematical Functions*, whose error is below 7.5e-8.
    """
    pdf = tl.exp2(x * x * -HALF_LOG2_E + LOG2_DENSITY)
    root = tl.rsqrt(1 + tl.abs(x) * 0.2316419)  # a division would be seven instructions
    t = root * root
    tail = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = tail * pdf
    return tl.where(x < 0, tail, 1 - tail), pdf


@triton.jit
def gelu_rows(a):
    """Return GELU of rows."""
    return a * _normal(a)[0]


@triton.jit
def gelu_rows_gradient(a, g):
    """Return the gradient of rows before GELU."""
    cdf, pdf = _normal(a)
    return g * (cdf + a * pdf)


@triton.jit
def gelu_difference(d, a):
    """Return how much GELU changes: a Taylor sum where that is closer than the subtraction of two values."""
    cdf, pdf = _normal(a)
    square = a * a
    first, second = cdf + a * pdf, pdf * (1 - 0.5 * square)
    third = a * pdf * (square - 4) * (1 / 6)
    series = d * (first[None, :] + d * (second[None, :] + d * third[None, :]))
    x = a[None, :] + d
    return tl.where(tl.abs(d) > NEAR, x * _normal(x)[0] - (a * cdf)[None, :], series)


@triton.jit
def gelu_gradient(d, a, g):
    """Return the gradients of the differences, [BB, H], and of the base, [H]."""
    x = a[None, :] + d
    cdf, pdf = _normal(x)
    base_cdf, base_pdf = _normal(a)
    of_d = g * (cdf + x * pdf)
    return of_d, tl.sum(of_d - g * (base_cdf + a * base_pdf)[None, :], 0)


@triton.jit
def relu_rows(a):
    """Return ReLU of rows."""
    return tl.maximum(a, 0)


@triton.jit
def relu_rows_gradient(a, g):
    """Return the gradient of rows before ReLU."""
    return tl.where(a > 0, g, 0)


@triton.jit
def relu_difference(d, a):
    """Return how much ReLU changes, without a sum of nearly equal numbers."""
    return tl.maximum(d + tl.minimum(a, 0)[None, :], -tl.maximum(a, 0)[None, :])


@triton.jit
def relu_gradient(d, a, g):
    """Return the gradients of the differences, [BB, H], and of the base, [H]."""
    of_d = tl.where(a[None, :] + d > 0, g, 0)
    return of_d, tl.sum(of_d - tl.where(a[None, :] > 0, g, 0), 0)


@triton.jit
def norm_rows(a, eps, H: tl.constexpr):
    """Return rows after a norm, before its weight."""
    c = a - (tl.sum(a, 1) * (1 / H))[:, None]
    return c * tl.rsqrt(tl.sum(c * c, 1) * (1 / H) + eps)[:, None]


@triton.jit
def norm_rows_gradient(a, g, eps, H: tl.constexpr):
    """Return the gradient of rows before a norm."""
    c = a - (tl.sum(a, 1) * (1 / H))[:, None]
    r = tl.rsqrt(tl.sum(c * c, 1) * (1 / H) + eps)[:, None]
    along = (tl.sum(g * c, 1) * (1 / H))[:, None] * r * r
    return r * (g - (tl.sum(g, 1) * (1 / H))[:, None] - c * along)


@triton.jit
def _normed(d, a, eps, H: tl.constexpr):
    """Return c, 1 / √v, e and 1 / √v' of a norm, as in ``curves``, and the change of v."""
    c = a - tl.sum(a, 0) * (1 / H)
    v = tl.sum(c * c, 0) * (1 / H) + eps
    e = d - (tl.sum(d, 1) * (1 / H))[:, None]
    change = tl.sum(e * (e + 2 * c[None, :]), 1) * (1 / H)
    return c, tl.rsqrt(v), e, tl.rsqrt(tl.maximum(v + change, eps)), change


@triton.jit
def norm_difference(d, a, eps, H: tl.constexpr):
    """Return how much a norm changes, before its weight."""
    c, r, e, r_new, change = _normed(d, a, eps, H)
    less = change * (r * r_new) * (r * r_new) / (r + r_new)
    return e * r_new[:, None] - c[None, :] * less[:, None]


@triton.jit
def norm_gradient(d, a, g, eps, H: tl.constexpr):
    """Return the gradients of the differences, [BB, H], and of the base, [H]."""
    c, r, e, r_new, _ = _normed(d, a, eps, H)
    unit = (c[None, :] + e) * r_new[:, None]
    along = tl.sum(g * unit, 1) * (1 / H)
    of_d = r_new[:, None] * (g - (tl.sum(g, 1) * (1 / H))[:, None] - unit * along[:, None])
    # The base's own norm does the opposite to the sum of the gradients, because it is linear in them.
    total, own = tl.sum(g, 0), c * r
    of_base = r * (total - tl.sum(total, 0) * (1 / H) - own * (tl.sum(total * own, 0) * (1 / H)))
    return of_d, tl.sum(of_d, 0) - of_base


@triton.jit
def weighted_sum(x, weight, out, number, count, R: tl.constexpr, BLOCK: tl.constexpr):
    """Sum R tensors of ``count`` numbers, each times its weight, in order."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for r in tl.static_range(R):
        total += tl.load(weight + r) * tl.load(x + r * count + at, mask=at < number, other=0).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < number)


# A pair (i, j) of relations has a hidden layer act(h_i U + h_j V), and its score is t · last with t = act(hidden S).
# ``pair_mix`` has the shapes.


@triton.jit
def _difference(d, a, GELU: tl.constexpr):
    return gelu_difference(d, a) if GELU else relu_difference(d, a)


@triton.jit
def _gradient(d, a, g, GELU: tl.constexpr):
    return gelu_gradient(d, a, g) if GELU else relu_gradient(d, a, g)


@triton.jit
def _square(matrix, rows, columns, WIDTH: tl.constexpr):
    """Return pointers to a matrix with rows of ``WIDTH``."""
    return matrix + rows[:, None] * WIDTH + columns[None, :]


@triton.jit
def _load(matrix, rows, columns, there, WIDTH: tl.constexpr):
    """Load rows of a matrix; where indices have 32 bits, addresses are computed once."""
    return tl.load(_square(matrix, rows, columns, WIDTH), mask=there[:, None], other=0)


@triton.jit
def pair_forward(
    rows, members, first, scorer, score, before, scored, hidden, logits,
    N, B, P, GELU: tl.constexpr, TYPE: tl.constexpr, BB: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Compute the hidden rows of a pair and by how much its logits differ, for a part of the nodes."""
    part, p, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    strains, wide, narrow = tile * BB + tl.arange(0, BB), tl.arange(0, H), tl.arange(0, W)
    there = strains < B
    i, j = tl.load(members + 2 * p), tl.load(members + 2 * p + 1)
    u = tl.load(_square(first + 2 * p * H * W, wide, narrow, W))
    v = tl.load(_square(first + (2 * p + 1) * H * W, wide, narrow, W))
    s, weight = tl.load(_square(scorer + p * W * W, narrow, narrow, W)), tl.load(score + narrow)
    for number in range(part, N, tl.num_programs(0)):
        node = number + 0 * i  # of 64 bits
        x = _load(rows + (i * N + node) * B * H, strains, wide, there, H)
        y = _load(rows + (j * N + node) * B * H, strains, wide, there, H)
        a = tl.load(before + (p * N + node) * W + narrow)
        h = _difference(product(x, u) + product(y, v), a, GELU).to(TYPE)
        tl.store(_square(hidden + (p * N + node) * B * W, strains, narrow, W), h, mask=there[:, None])
        t = _difference(product(h, s), tl.load(scored + (p * N + node) * W + narrow), GELU)
        tl.store(logits + (node * (P + 1) + p) * B + strains, tl.sum(t * weight[None, :], 1), mask=there)


@triton.jit
def pair_backward(
    rows, members, first, scorer, score, before, scored, last, grad, share, slope,
    along, of_hidden, of_first, of_scorer, of_score, of_last, of_before, of_scored,
    N, B, P, GELU: tl.constexpr, TYPE: tl.constexpr, BB: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Compute a pair's gradients for a part of the nodes.

    ``slope`` has the gradients of shares as far as they do not depend on the pair's rows. ``along`` gets the rest, the
    products of ``grad`` with the pair's rows.
    """
    part, p, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    place = (tile * tl.num_programs(0) + part).to(tl.int64) * P + p
    strains, wide, narrow = tile * BB + tl.arange(0, BB), tl.arange(0, H), tl.arange(0, W)
    there = strains < B
    i, j = tl.load(members + 2 * p), tl.load(members + 2 * p + 1)
    u = tl.load(_square(first + 2 * p * H * W, wide, narrow, W))
    v = tl.load(_square(first + (2 * p + 1) * H * W, wide, narrow, W))
    s, weight = tl.load(_square(scorer + p * W * W, narrow, narrow, W)), tl.load(score + narrow)
    out = tl.load(_square(last + p * W * H, narrow, wide, H))
    of_u, of_v = tl.zeros((W, H), tl.float32), tl.zeros((W, H), tl.float32)
    of_s, of_out = tl.zeros((W, W), tl.float32), tl.zeros((W, H), tl.float32)
    of_weight, plane = tl.zeros((BB, W), tl.float32), (tile + 0 * i) * N * P * W
    for number in range(part, N, tl.num_programs(0)):
        node = number + 0 * i  # of 64 bits
        at, here = (p * N + node) * W + narrow, (node * (P + 1) + p) * B + strains
        x = _load(rows + (i * N + node) * B * H, strains, wide, there, H)
        y = _load(rows + (j * N + node) * B * H, strains, wide, there, H)
        d, a = product(x, u) + product(y, v), tl.load(before + at)
        h = _difference(d, a, GELU)
        e, b = product(h.to(TYPE), s), tl.load(scored + at)
        g = _load(grad + node * B * H, strains, wide, there, H)
        of_row = product(g, tl.trans(out))
        along_row = tl.sum(h * of_row, 1)
        tl.store(along + here, along_row, mask=there)
        portion = tl.load(share + here, mask=there, other=0)
        of_logit = portion * (tl.load(slope + here, mask=there, other=0) + along_row)
        of_weight += of_logit[:, None] * _difference(e, b, GELU)
        of_e, of_b = _gradient(e, b, of_logit[:, None] * weight[None, :], GELU)
        tl.store(of_scored + plane + at, of_b)
        of_e = of_e.to(TYPE)
        of_s = weight_gradient(h.to(TYPE), of_e, of_s)
        of_out = tl.dot(tl.trans((portion[:, None] * h).to(TYPE)), g, acc=of_out, input_precision="tf32x3")
        of_d, of_a = _gradient(d, a, product(of_e, tl.trans(s)) + portion[:, None] * of_row, GELU)
        tl.store(of_before + plane + at, of_a)
        of_d = of_d.to(TYPE)
        tl.store(_square(of_hidden + (p * N + node) * B * W, strains, narrow, W), of_d, mask=there[:, None])
        of_u, of_v = weight_gradient(x, of_d, of_u), weight_gradient(y, of_d, of_v)
    tl.store(_square(of_first + 2 * place * H * W, wide, narrow, W), tl.trans(of_u))
    tl.store(_square(of_first + (2 * place + 1) * H * W, wide, narrow, W), tl.trans(of_v))
    tl.store(_square(of_scorer + place * W * W, narrow, narrow, W), tl.trans(of_s))
    tl.store(_square(of_last + place * W * H, narrow, wide, H), of_out)
    tl.store(of_score + place * W + narrow, tl.sum(of_weight, 0))


@triton.jit
def row_sums(grad, out, mean, share, of_out, of_mean, along, count, B, P, BLOCK: tl.constexpr, H: tl.constexpr):
    """Multiply gradients of rows with the rows, and with the differences of the mean and its share."""
    at, wide = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, H)
    there, place = at < count, (at // B * (P + 1) + P) * B + at % B
    g = _load(grad, at, wide, there, H).to(tl.float32)
    tl.store(of_out + at, tl.sum(g * _load(out, at, wide, there, H), 1), mask=there)
    tl.store(along + place, tl.sum(g * _load(mean, at, wide, there, H), 1), mask=there)
    of_rows = tl.load(share + place, mask=there, other=0)[:, None] * g
    tl.store(_square(of_mean, at, wide, H), of_rows.to(of_mean.dtype.element_ty), mask=there[:, None])


@triton.jit
def sum_of_products(
    x, which, weight, share, start, mean, out, count, B, K,
    SHARED: tl.constexpr, TYPE: tl.constexpr, BLOCK: tl.constexpr, W: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Sum K products of rows, x[which[i, k]] with weight[i, k], in order.

    Where they are ``SHARED``, each has its share, and so has ``mean``, and all are added to ``start``.
    """
    at, i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1).to(tl.int64)
    there, wide, narrow = at < count, tl.arange(0, H), tl.arange(0, W)
    if SHARED:
        shares = share + at // B * (K + 1) * B + at % B
        portion = tl.load(shares + K * B, mask=there, other=0)
        total = _load(start, at, wide, there, H) + portion[:, None] * _load(mean, at, wide, there, H)
    else:
        total = tl.zeros((BLOCK, H), tl.float32)
    for k in range(K):
        p = tl.load(which + i * K + k).to(tl.int64)
        one = _load(x + p * count * W, at, narrow, there, W)
        if SHARED:
            portion = tl.load(shares + k * B, mask=there, other=0)
            one = (one * portion[:, None]).to(TYPE)
        total += product(one, tl.load(_square(weight + (i * K + k) * W * H, narrow, wide, H)))
    tl.store(_square(out + i * count * H, at, wide, H), total.to(out.dtype.element_ty), mask=there[:, None])
