"""The compiled part of ``dglcell.kernels.relation_attention``: kept apart because importing numba takes half a second.

Between the two matrix products, numbers of one feature of some rows lie side by side: every loop over rows is vector
instructions, however few relations and features of a head there are.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from dglcell.kernels.blas_numba import gemm
from dglcell.kernels.jit_numba import jit
from dglcell.kernels.small_numba import matrix, softmax, softmax_gradients

ROWS = 128
"""Rows computed at a time."""

# numba takes named tuples, but no dataclasses.
Weights = namedtuple("Weights", "project bias out out_bias")
"""For K relations, H wide: ``project`` [3H, H] to queries, keys and values, ``bias`` [K, 3H], ``out`` [H, H] and
``out_bias`` [H].
"""

Space = namedtuple("Space", "projected shares mean_shares mixed")
"""What lies between, for n rows: [K, 3H · n] queries, keys and values, [A, K, K · n] shares of A heads, their mean over
queries [A, K · n], and [H · n] weighted sums of values.
"""


@jit
def _space(heads, h):
    relations, _, width = h.shape
    return Space(
        np.empty((relations, 3 * width * ROWS), h.dtype),
        np.empty((heads, relations, relations * ROWS), h.dtype),
        np.empty((heads, relations * ROWS), h.dtype),
        np.empty(width * ROWS, h.dtype),
    )


@jit
def _add_product(a, first_a, b, first_b, number, scale, out):
    """``out[i] += scale · Σ_d a[first_a + d, i] · b[first_b + d, i]``."""
    for d in range(number):
        for i in range(len(out)):
            out[i] += scale * a[first_a + d, i] * b[first_b + d, i]


@jit
def _add_scaled(by, b, first_b, number, scale, out, first_out):
    """``out[first_out + d, i] += scale · by[i] · b[first_b + d, i]``."""
    for d in range(number):
        for i in range(len(by)):
            out[first_out + d, i] += scale * by[i] * b[first_b + d, i]


@jit
def _attend(blas, heads, w, h, start, n, space):
    """Queries, keys and values, shares, and the mean of what relations take."""
    relations, _, width = h.shape
    depth, one = width // heads, h.dtype.type(1)
    scale, part = one / np.sqrt(h.dtype.type(depth)), one / h.dtype.type(relations)
    for k in range(relations):
        projected = matrix(space.projected[k], 3 * width, n)
        for c in range(3 * width):
            projected[c, :] = w.bias[k, c]
        gemm(blas, False, True, True, 3 * width, n, width, w.project, h[k, start:], projected)
    mixed = matrix(space.mixed, width, n)
    mixed[:] = 0
    for a in range(heads):
        mean_shares = matrix(space.mean_shares[a], relations, n)
        mean_shares[:] = 0
        for k in range(relations):
            shares = matrix(space.shares[a, k], relations, n)
            shares[:] = 0
            queries = matrix(space.projected[k], 3 * width, n)
            for m in range(relations):
                keys = matrix(space.projected[m], 3 * width, n)
                _add_product(queries, a * depth, keys, width + a * depth, depth, scale, shares[m])
            softmax(shares)
            for m in range(relations):
                for i in range(n):
                    mean_shares[m, i] += shares[m, i] * part
        for m in range(relations):
            values = matrix(space.projected[m], 3 * width, n)
            _add_scaled(mean_shares[m], values, 2 * width + a * depth, depth, one, mixed, a * depth)


@jit
def _head_gradients(heads, a, relations, n, space, of_mixed, of_projected, grads):
    """The gradients of one head's queries, keys and values, added."""
    width = len(of_mixed)
    depth, one = width // heads, of_mixed.dtype.type(1)
    scale, part = one / np.sqrt(of_mixed.dtype.type(depth)), one / of_mixed.dtype.type(relations)
    mean_shares = matrix(space.mean_shares[a], relations, n)
    query, key, value = a * depth, width + a * depth, 2 * width + a * depth
    # The gradient of the mean shares is that of every query's.
    of_shares, of_logits = matrix(grads[0], relations, n), matrix(grads[1], relations, n)
    of_shares[:] = 0
    for m in range(relations):
        projected, of_m = matrix(space.projected[m], 3 * width, n), matrix(of_projected[m], 3 * width, n)
        _add_product(of_mixed, query, projected, value, depth, part, of_shares[m])
        _add_scaled(mean_shares[m], of_mixed, query, depth, one, of_m, value)
    for k in range(relations):
        of_logits[:] = of_shares
        softmax_gradients(matrix(space.shares[a, k], relations, n), of_logits)
        projected, of_k = matrix(space.projected[k], 3 * width, n), matrix(of_projected[k], 3 * width, n)
        for m in range(relations):
            other, of_other = matrix(space.projected[m], 3 * width, n), matrix(of_projected[m], 3 * width, n)
            _add_scaled(of_logits[m], other, key, depth, scale, of_k, query)
            _add_scaled(of_logits[m], projected, query, depth, scale, of_other, key)


@jit
def forward(blas, heads, w, h, number, out):
    """Attention among relations, then their mean.

    Args:
        blas: address of the matrix product.
        heads: A.
        w: ``Weights``.
        h: [K, N, H] rows of every relation, of which the first ``number`` count.
        number: of rows.
        out: [N, H], written.
    """
    width, space = h.shape[2], _space(heads, h)
    for start in range(0, number, ROWS):
        n = min(ROWS, number - start)
        _attend(blas, heads, w, h, start, n, space)
        rows = out[start : start + n]
        for i in range(n):
            rows[i, :] = w.out_bias
        gemm(blas, True, True, True, n, width, width, space.mixed, w.out, rows)


@jit
def backward(blas, heads, w, h, number, grad, of_w, of_h):
    """Add the gradients of weights and rows; what lies between is computed once more.

    Args:
        blas, heads, w, h, number: as for ``forward``.
        grad: [N, H] gradient of its result.
        of_w: ``Weights``.
        of_h: [K, N, H].
    """
    relations, _, width = h.shape
    space, of_projected = _space(heads, h), np.empty((relations, 3 * width * ROWS), h.dtype)
    of_mixed_flat, grads = np.empty(width * ROWS, h.dtype), np.empty((2, relations * ROWS), h.dtype)
    ones = np.ones(ROWS, h.dtype)
    for start in range(0, number, ROWS):
        n = min(ROWS, number - start)
        g, of_mixed = grad[start : start + n], matrix(of_mixed_flat, width, n)
        _attend(blas, heads, w, h, start, n, space)
        gemm(blas, False, False, True, 1, width, n, ones, g, of_w.out_bias)
        gemm(blas, True, True, True, width, width, n, g, space.mixed, of_w.out)
        gemm(blas, True, True, False, width, n, width, w.out, g, of_mixed)
        of_projected[:] = 0
        for a in range(heads):
            _head_gradients(heads, a, relations, n, space, of_mixed, of_projected, grads)
        for k in range(relations):
            of_k, x = of_projected[k], h[k, start : start + n]
            gemm(blas, False, False, True, 3 * width, 1, n, of_k, ones, of_w.bias[k])
            gemm(blas, False, False, True, 3 * width, width, n, of_k, x, of_w.project)
            gemm(blas, True, False, True, n, width, 3 * width, of_k, w.project, of_h[k, start : start + n])
