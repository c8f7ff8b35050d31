"""The compiled loops of the ``tiled`` kernel.

Kept apart because importing numba takes a good part of a second, which only a product with this kernel should pay.
Compiled code is kept beside this file, or in the user's cache folder where the installation is read-only.
"""

from __future__ import annotations

from contextlib import suppress

import numba
import numpy as np


def _compiled(function):
    """Compile at the first call with each set of types; threads may run it at once."""
    # Multiplying and adding in one instruction is allowed, summing in another order is not: a row is summed in the
    # order of its edges.
    dispatcher = numba.njit(nogil=True, fastmath={"contract"}, error_model="numpy")(function)
    with suppress(RuntimeError):  # neither folder can be written: every process compiles for itself
        dispatcher.enable_caching()
    return dispatcher


@_compiled
def pack(x, column, tile):
    """Copy the columns of ``x`` [N, C] from ``column`` on to ``tile`` [N, W]."""
    for u in range(tile.shape[0]):
        for c in range(tile.shape[1]):
            tile[u, c] = x[u, column + c]


@_compiled
def pack_bfloat16(x, column, tile):
    """``pack`` from the bits of bfloat16, which numba has no type for, to those of float32: they are its upper half."""
    for u in range(tile.shape[0]):
        for c in range(tile.shape[1]):
            tile[u, c] = np.uint32(x[u, column + c]) << np.uint32(16)


@_compiled
def unpack_bfloat16(tile, column, y):
    """Round ``tile`` [M, W], bits of float32, to bits of bfloat16 in the columns of ``y`` [M, C] from ``column`` on."""
    infinity, one = np.uint32(0x7F800000), np.uint32(1)
    for v in range(tile.shape[0]):
        for c in range(tile.shape[1]):
            bits = tile[v, c]
            if bits & np.uint32(0x7FFFFFFF) > infinity:
                y[v, column + c] = 0x7FC0  # a NaN, whose bits rounding could turn into a number's
            else:
                # Rounded to the nearest; halfway to the even one.
                y[v, column + c] = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & one)) >> np.uint32(16)


@_compiled
def sum_rows(source, stride, offset, width, starts, indices, weights, y, column):
    """For every row v the sum over its edges e: ``y[v, column + c] = Σ weights[e] · source[indices[e], offset + c]``.

    Args:
        source: matrix laid out flat, float32 or float64.
        stride: its row length.
        offset: of the first column to be read.
        width: number of columns to be read.
        starts: [M + 1] int64.
        indices: [E], any integer type.
        weights: [E] in the type of ``source``, or None for ones.
        y: [M, C] in the type of ``source``.
        column: the first to be written.
    """
    # Unsigned throughout: a signed index might be negative, and to ask so at every element costs a third.
    stride, offset, width = np.uint64(stride), np.uint64(offset), np.uint64(width)
    total = np.empty(width, source.dtype)
    for v in range(len(y)):
        for c in range(width):
            total[c] = 0
        # Four edges at once, so that the totals are read and written a quarter as often.
        first, end = starts[v], starts[v + 1]
        singles = end - (end - first) % 4
        for e in range(first, singles, 4):
            i = offset + stride * np.uint64(indices[e])
            j = offset + stride * np.uint64(indices[e + 1])
            k = offset + stride * np.uint64(indices[e + 2])
            m = offset + stride * np.uint64(indices[e + 3])
            if weights is None:
                for c in range(width):
                    total[c] = total[c] + source[i + c] + source[j + c] + source[k + c] + source[m + c]
            else:
                p, q, r, s = weights[e], weights[e + 1], weights[e + 2], weights[e + 3]
                for c in range(width):
                    total[c] = total[c] + p * source[i + c] + q * source[j + c] + r * source[k + c] + s * source[m + c]
        for e in range(singles, end):
            i = offset + stride * np.uint64(indices[e])
            if weights is None:
                for c in range(width):
                    total[c] += source[i + c]
            else:
                p = weights[e]
                for c in range(width):
                    total[c] += p * source[i + c]
        for c in range(width):
            y[v, column + c] = total[c]
