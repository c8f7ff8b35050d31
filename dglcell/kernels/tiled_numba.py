"""The compiled loops of the ``tiled`` kernel.

Kept apart because importing numba takes a good part of a second, which only a product with this kernel should pay.
"""

from __future__ import annotations

import numpy as np

from dglcell.kernels.edge_sum_numba import VECTOR_BYTES, VECTORS, sum_edges
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
def sum_rows(source, stride, offset, width, starts, indices, weights, y, column, add):
    """For every row v the sum over its edges e: ``y[v, column + c] = Σ weights[e] · source[indices[e], offset + c]``.

    In the order of the edges.

    Args:
        source: matrix laid out flat, float32 or float64.
        stride: its row length.
        offset: of the first column to be read.
        width: number of columns to be read, a multiple of 64 bytes.
        starts: [M + 1] int64.
        indices: [E], any integer type.
        weights: [E] in the type of ``source``, or None for ones.
        y: [M, C] in the type of ``source``.
        column: the first to be written; columns beyond the last are left out.
        add: to what is there.
    """
    lanes = VECTOR_BYTES // source.itemsize
    block = VECTORS * lanes
    total = np.empty(block, source.dtype)
    for v in range(len(y)):
        first, last = starts[v], starts[v + 1]
        for c in range(0, width, block):
            here = min(block, width - c)
            if here == block:
                sum_edges(VECTORS, source, offset + c, stride, indices, weights, first, last, total)
            else:
                for k in range(0, here, lanes):
                    sum_edges(1, source, offset + c + k, stride, indices, weights, first, last, total[k:])
            written = _column(min(here, y.shape[1] - column - c))
            at = _column(column + c)
            if add:
                for k in range(written):
                    y[v, at + k] += total[k]
            else:
                for k in range(written):
                    y[v, at + k] = total[k]
