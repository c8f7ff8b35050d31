"""The compiled part of ``dglcell.kernels.pairs``: kept apart because importing numba takes half a second.

Pair after pair for a few rows at a time: what lies between the layers of a pair stays in the first-level cache, and
what one sweep over the pairs leaves to the next in the second-level cache. No option is ever stored: scores and sums
are taken through its last layer.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from dglcell.kernels.blas_numba import gemm
from dglcell.kernels.jit_numba import jit
from dglcell.kernels.small_numba import (
    activate,
    affine,
    affine_gradients,
    matrix,
    multiply,
    scale_rows,
    softmax,
    softmax_gradients,
)
from dglcell.kernels.update_numba import dot

ROWS = 128
"""Rows computed at a time."""

# numba takes named tuples, but no dataclasses.
Weights = namedtuple(
    "Weights", "first first_bias middle middle_bias last last_bias scored scored_bias mean mean_bias score score_bias"
)
"""For P pairs of K relations, H wide, b wide inside: ``first`` [P, 2H, b] and ``first_bias`` [P, b], ``middle``
[D, P, b, b] and ``middle_bias`` [D, P, b], ``last`` [P, b, H] and ``last_bias`` [P, H]; ``scored`` [P, b, b] and
``scored_bias`` [P, b], a pair's last layer and then the scorer's first; ``mean`` [H, b] and ``mean_bias`` [b], the
scorer's first layer, for the mean; ``score`` [1, b] and ``score_bias`` [1], its second.
"""

Space = namedtuple("Space", "a t down between slopes mean of_mean shares of_logits")
"""What lies between, for some rows at a time: activations of every layer and pair, their slopes, gradients of the last
of them, two arrays for what is between two layers, the relations' mean, the options' shares, and gradients of both.
"""


@jit
def _space(w, h, gradients):
    """Empty arrays; those that are for gradients alone have no elements unless ``gradients``."""
    depth, pairs, hidden = w.middle_bias.shape
    only = ROWS if gradients else 0
    return Space(
        np.empty((depth + 1, pairs, ROWS * hidden), h.dtype),
        np.empty((depth + 1, pairs, only * hidden), h.dtype),
        np.empty((pairs, only * hidden), h.dtype),
        np.empty(ROWS * hidden, h.dtype),
        np.empty(only * hidden, h.dtype),
        np.empty(ROWS * h.shape[2], h.dtype),
        np.empty(only * h.shape[2], h.dtype),
        np.empty((pairs + 1) * ROWS, h.dtype),
        np.empty((pairs + 1) * only, h.dtype),
    )


@jit
def _mean(h, start, out):
    one = h.dtype.type(1) / h.dtype.type(len(h))
    out[:] = 0
    for k in range(len(h)):
        for i in range(len(out)):
            for c in range(out.shape[1]):
                out[i, c] += h[k, start + i, c] * one


@jit
def _score(blas, kind, w, a, weights, bias, between, out):
    """The scorer on rows whose way to its hidden layer is given; ``between`` is that layer."""
    affine(blas, a, weights, bias, between)
    activate(kind, between, between[0, :0])
    out[:] = w.score_bias[0]
    gemm(blas, False, True, True, len(a), 1, len(bias), between, w.score, out)


@jit
def _score_gradients(blas, kind, w, a, weights, bias, grad, space, of_weights, of_bias, of_w, of_a):
    """The gradients of ``_score``, all added."""
    n, hidden = len(a), len(bias)
    between, slopes = matrix(space.between, n, hidden), matrix(space.slopes, n, hidden)
    affine(blas, a, weights, bias, between)
    activate(kind, between, space.slopes[: n * hidden])
    of_w.score_bias[0] += grad.sum()
    gemm(blas, False, False, True, 1, hidden, n, grad, between, of_w.score)
    for i in range(n):
        for k in range(hidden):
            slopes[i, k] *= grad[i] * w.score[0, k]
    affine_gradients(blas, a, weights, slopes, of_weights, of_bias, of_a, True)


@jit
def _evaluate(blas, kind, w, h, start, n, space):
    """Activations of all layers and pairs, slopes where there is space for them, and the shares of all options."""
    relations, width = len(h), h.shape[2]
    depth, pairs, hidden = w.middle_bias.shape
    between, shares = matrix(space.between, n, hidden), matrix(space.shares, pairs + 1, n)
    p = 0
    for i in range(relations):
        for j in range(i, relations):
            x = matrix(space.a[0, p], n, hidden)
            affine(blas, h[i, start : start + n], w.first[p], w.first_bias[p], x)
            gemm(blas, False, False, True, n, hidden, width, h[j, start:], w.first[p, width:], x)
            activate(kind, x, space.t[0, p])
            for d in range(depth):
                y = matrix(space.a[d + 1, p], n, hidden)
                affine(blas, x, w.middle[d, p], w.middle_bias[d, p], y)
                activate(kind, y, space.t[d + 1, p])
                x = y
            _score(blas, kind, w, x, w.scored[p], w.scored_bias[p], between, shares[p])
            p += 1
    mean = matrix(space.mean, n, width)
    _mean(h, start, mean)
    _score(blas, kind, w, mean, w.mean, w.mean_bias, between, shares[pairs])
    softmax(shares)


@jit
def _sum_options(blas, w, space, out):
    """``out`` = Σ over options of share · option."""
    n, width = out.shape
    depth, pairs, hidden = w.middle_bias.shape
    between, shares = matrix(space.between, n, hidden), matrix(space.shares, pairs + 1, n)
    scale_rows(matrix(space.mean, n, width), shares[pairs], out)
    gemm(blas, True, False, True, n, width, pairs, shares, w.last_bias, out)
    for p in range(pairs):
        scale_rows(matrix(space.a[depth, p], n, hidden), shares[p], between)
        gemm(blas, False, False, True, n, width, hidden, between, w.last[p], out)


@jit
def _share_gradients(blas, w, g, space, of_w):
    """``down`` = g · lastᵀ of every pair, from which those of all logits, and of the last biases."""
    n, width = g.shape
    depth, pairs, hidden = w.middle_bias.shape
    shares, of_logits = matrix(space.shares, pairs + 1, n), matrix(space.of_logits, pairs + 1, n)
    gemm(blas, False, True, False, pairs, n, width, w.last_bias, g, of_logits)
    for p in range(pairs):
        a, down = matrix(space.a[depth, p], n, hidden), matrix(space.down[p], n, hidden)
        gemm(blas, False, True, False, n, hidden, width, g, w.last[p], down)
        for i in range(n):
            of_logits[p, i] += dot(down, i, a, i, hidden)
    mean = matrix(space.mean, n, width)
    for i in range(n):
        of_logits[pairs, i] = dot(g, i, mean, i, width)
    gemm(blas, False, False, True, pairs, width, n, shares, g, of_w.last_bias)
    softmax_gradients(shares, of_logits)


@jit
def _mean_gradients(blas, kind, w, h, start, g, space, of_w, of_h):
    """Those of the last option."""
    n, width = g.shape
    pairs = len(w.last)
    shares, of_logits = matrix(space.shares, pairs + 1, n), matrix(space.of_logits, pairs + 1, n)
    mean, of_mean = matrix(space.mean, n, width), matrix(space.of_mean, n, width)
    scale_rows(g, shares[pairs], of_mean)
    _score_gradients(
        blas, kind, w, mean, w.mean, w.mean_bias, of_logits[pairs], space, of_w.mean, of_w.mean_bias, of_w, of_mean
    )
    one = h.dtype.type(1) / h.dtype.type(len(h))
    for k in range(len(h)):
        for i in range(n):
            for c in range(width):
                of_h[k, start + i, c] += of_mean[i, c] * one


@jit
def _pair_gradients(blas, kind, w, x, y, p, g, space, of_w, of_x, of_y):
    """Those of pair p of rows x and y."""
    n, width = g.shape
    depth, pairs, hidden = w.middle_bias.shape
    share, of_logit = matrix(space.shares, pairs + 1, n)[p], matrix(space.of_logits, pairs + 1, n)[p]
    a, down = matrix(space.a[depth, p], n, hidden), matrix(space.down[p], n, hidden)
    between = matrix(space.between, n, hidden)
    scale_rows(a, share, between)
    gemm(blas, True, False, True, hidden, width, n, between, g, of_w.last[p])
    scale_rows(down, share, down)
    _score_gradients(
        blas,
        kind,
        w,
        a,
        w.scored[p],
        w.scored_bias[p],
        of_logit,
        space,
        of_w.scored[p],
        of_w.scored_bias[p],
        of_w,
        down,
    )
    for d in range(depth - 1, -1, -1):
        multiply(down, space.t[d + 1, p])
        before = matrix(space.a[d, p], n, hidden)
        of_weights, of_bias = of_w.middle[d, p], of_w.middle_bias[d, p]
        affine_gradients(blas, before, w.middle[d, p], down, of_weights, of_bias, between, False)
        down[:] = between
    multiply(down, space.t[0, p])
    affine_gradients(blas, x, w.first[p], down, of_w.first[p], of_w.first_bias[p], of_x, True)
    gemm(blas, True, False, True, width, hidden, n, y, down, of_w.first[p, width:])
    gemm(blas, False, True, True, n, width, hidden, down, w.first[p, width:], of_y)


@jit
def forward(blas, kind, w, h, number, out):
    """Weighted sums of options.

    Args:
        blas: address of the matrix product.
        kind: code of the activation.
        w: ``Weights``.
        h: [K, N, H] rows of every relation, of which the first ``number`` count.
        number: of rows.
        out: [N, H], written.
    """
    space = _space(w, h, False)
    for start in range(0, number, ROWS):
        n = min(ROWS, number - start)
        _evaluate(blas, kind, w, h, start, n, space)
        _sum_options(blas, w, space, out[start : start + n])


@jit
def backward(blas, kind, w, h, number, grad, of_w, of_h):
    """Add the gradients of weights and rows; what lies between is computed once more.

    Args:
        blas, kind, w, h, number: as for ``forward``.
        grad: [N, H] gradient of its result.
        of_w: ``Weights``.
        of_h: [K, N, H].
    """
    space = _space(w, h, True)
    for start in range(0, number, ROWS):
        n = min(ROWS, number - start)
        g, end = grad[start : start + n], start + n
        _evaluate(blas, kind, w, h, start, n, space)
        _share_gradients(blas, w, g, space, of_w)
        _mean_gradients(blas, kind, w, h, start, g, space, of_w, of_h)
        p = 0
        for i in range(len(h)):
            for j in range(i, len(h)):
                x, y, of_x, of_y = h[i, start:end], h[j, start:end], of_h[i, start:end], of_h[j, start:end]
                _pair_gradients(blas, kind, w, x, y, p, g, space, of_w, of_x, of_y)
                p += 1
