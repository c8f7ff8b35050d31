"""Small layers on rows, forward and backward, for numba code."""

from __future__ import annotations

import numpy as np

from dglcell.kernels import math_numba
from dglcell.kernels.blas_numba import gemm
from dglcell.kernels.jit_numba import jit


@jit
def matrix(flat, rows, columns):
    """[rows, columns] the first numbers of ``flat``."""
    return flat[: rows * columns].reshape(rows, columns)


@jit
def activate(kind, values, slopes):
    """Replace values by their activations; write the slopes there unless ``slopes`` is empty."""
    if len(slopes) > 0:
        math_numba.activate_with_slopes(kind, values.reshape(values.size), slopes)
    else:
        math_numba.activate(kind, values.reshape(values.size))


@jit
def affine(blas, a, weights, bias, out):
    """``out = a · weights + bias``."""
    for i in range(len(out)):
        for k in range(len(bias)):
            out[i, k] = bias[k]
    gemm(blas, False, False, True, len(out), len(bias), a.shape[1], a, weights, out)


@jit
def affine_gradients(blas, a, weights, grad, of_weights, of_bias, of_a, add):
    """The gradients of ``affine``; those of weights and bias are added, that of ``a`` is where ``add``."""
    n, entry, width = len(grad), a.shape[1], len(of_bias)
    gemm(blas, False, False, True, 1, width, n, np.ones(n, grad.dtype), grad, of_bias)
    gemm(blas, True, False, True, entry, width, n, a, grad, of_weights)
    gemm(blas, False, True, add, n, entry, width, grad, weights, of_a)


@jit
def scale_rows(values, by, out):
    """``out[i] = by[i] · values[i]`` for every row."""
    for i in range(len(values)):
        for k in range(values.shape[1]):
            out[i, k] = values[i, k] * by[i]


@jit
def multiply(matrix, by):
    """``matrix *= by`` number by number, ``by`` laid out flat."""
    values = matrix.reshape(matrix.size)
    for i in range(len(values)):
        values[i] *= by[i]


@jit
def softmax(logits):
    """[O, n] over the O options, in place."""
    options, n = logits.shape
    top, total = logits[0].copy(), np.zeros(n, logits.dtype)
    for p in range(1, options):
        for i in range(n):
            top[i] = max(top[i], logits[p, i])
    for p in range(options):
        for i in range(n):
            logits[p, i] = math_numba.exp(logits[p, i] - top[i])
        for i in range(n):
            total[i] += logits[p, i]
    for p in range(options):
        for i in range(n):
            logits[p, i] /= total[i]


@jit
def softmax_gradients(share, grad):
    """Replace the gradient of shares by that of the logits."""
    options, n = share.shape
    total = np.zeros(n, share.dtype)
    for p in range(options):
        for i in range(n):
            total[i] += share[p, i] * grad[p, i]
    for p in range(options):
        for i in range(n):
            grad[p, i] = share[p, i] * (grad[p, i] - total[i])
