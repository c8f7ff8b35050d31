"""The compiled loops of the ``tiled`` kernel.

Kept apart because importing numba takes a good part of a second, which only a product with this kernel should pay.
"""

from __future__ import annotations

import numpy as np

from dglcell.kernels.jit_numba import jit

# Columns are counted in unsigned integers: a signed index might be negative, and the question keeps the compiler from
# handling many columns with one instruction.
_column = np.uint64
_HALF, _ONE, _NAN = np.uint32(16), np.uint32(1), np.uint32(0x7FC0)


@jit
def pack(x, column, tile):
    """Copy the columns of ``x`` [N, C] from ``column`` on to ``tile`` [N, W]; zeros beyond the last."""
    width, column = _column(min(tile.shape[1], x.shape[1] - column)), _column(column)
    for u in range(tile.shape[0]):
        for c in range(width):
            tile[u, c] = x[u, column + c]
        tile[u, width:] = 0


@jit
def pack_bfloat16(x, column, tile):
    """``pack`` from the bits of bfloat16, which numba has no type for, to those of float32: they are its upper half."""
    width, column = _column(min(tile.shape[1], x.shape[1] - column)), _column(column)
    for u in range(tile.shape[0]):
        for c in range(width):
            tile[u, c] = np.uint32(x[u, column + c]) << _HALF
        tile[u, width:] = 0


@jit
def unpack_bfloat16(tile, column, y):
    """Round bits of float32 to bits of bfloat16: from ``tile`` [M, W] to ``y`` [M, C] from ``column`` on."""
    width, column = _column(min(tile.shape[1], y.shape[1] - column)), _column(column)
    for v in range(tile.shape[0]):
        for c in range(width):
            bits = tile[v, c]
            rounded = (bits + np.uint32(0x7FFF) + (bits >> _HALF & _ONE)) >> _HALF  # to the nearest, halves to even
            is_nan = bits & np.uint32(0x7FFFFFFF) > np.uint32(0x7F800000)
            y[v, column + c] = _NAN if is_nan else rounded


@jit
def sum_rows(source, stride, offset, width, starts, indices, weights, y, column):
    """For every row v the sum over its edges e: ``y[v, column + c] = Σ weights[e] · source[indices[e], offset + c]``.

    In the order of the edges.

    Args:
        source: matrix laid out flat, float32 or float64.
        stride: its row length.
        offset: of the first column to be read.
        width: number of columns to be read; loops over a multiple of 64 bytes are fast.
        starts: [M + 1] int64.
        indices: [E], any integer type.
        weights: [E] in the type of ``source``, or None for ones.
        y: [M, C] in the type of ``source``.
        column: the first to be written; columns beyond the last are left out.
    """
    written = _column(min(width, y.shape[1] - column))
    stride, offset, width, column = _column(stride), _column(offset), _column(width), _column(column)
    total = np.empty(width, source.dtype)
    for v in range(len(y)):
        for c in range(width):
            total[c] = 0
        # Four edges at once, so that the totals are read and written a quarter as often.
        first, end = starts[v], starts[v + 1]
        singles = end - (end - first) % 4
        for e in range(first, singles, 4):
            i = offset + stride * _column(indices[e])
            j = offset + stride * _column(indices[e + 1])
            k = offset + stride * _column(indices[e + 2])
            m = offset + stride * _column(indices[e + 3])
            if weights is None:
                for c in range(width):
                    total[c] = total[c] + source[i + c] + source[j + c] + source[k + c] + source[m + c]
            else:
                p, q, r, s = weights[e], weights[e + 1], weights[e + 2], weights[e + 3]
                for c in range(width):
                    total[c] = total[c] + p * source[i + c] + q * source[j + c] + r * source[k + c] + s * source[m + c]
        for e in range(singles, end):
            i = offset + stride * _column(indices[e])
            if weights is None:
                for c in range(width):
                    total[c] += source[i + c]
            else:
                p = weights[e]
                for c in range(width):
                    total[c] += p * source[i + c]
        for c in range(written):
            y[v, column + c] = total[c]
