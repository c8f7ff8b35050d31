"""Say in Triton what pairs of relations do to differences of rows, forward and backward.

A pair (i, j) has a hidden layer act(h_i U + h_j V), and its score is t · last with t = act(hidden S). ``pair_mix`` has
the shapes; the formulas of activations are those of ``row_chain_triton``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dglcell.kernels.row_chain_triton import (
    gelu_difference,
    gelu_gradient,
    product,
    relu_difference,
    relu_gradient,
    weight_gradient,
)


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
