"""Compile the loops of ``pair_error`` on a CPU over the edges of some rows.

They are kept apart because importing numba takes a good part of a second, which only this error should pay.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dglcell.kernels.jit_numba import reduction

# Row numbers are unsigned: a signed one might be negative, and the check for that costs time.
_row = np.uint64


@lru_cache(maxsize=8)
def edge_errors_of_width(H: int) -> Any:
    """Return the loops for rows H wide; a width known to the compiler makes them about twice as fast."""

    def edge_errors(
        part: int,
        first_row: int,
        last_row: int,
        p: Any,
        q: Any,
        rows: Any,
        row_bias: Any,
        columns: Any,
        column_bias: Any,
        starts: Any,
        neighbours: Any,
        gradient: Any,
        bias_gradient: Any,
        losses: Any,
    ) -> None:
        """Add up errors on the edges of some rows, and their gradients with respect to these rows.

        For a row r and a column c the guess is ``rows[r] · columns[c]`` plus both biases, and the error
        ``p (guess − 1)² − q guess²``.

        Args:
            part: the place in ``losses`` that is written.
            first_row, last_row: the range of rows.
            p, q: weights, float32 or float64, like all floats but ``losses``.
            rows, columns: [M, H] and [N, H].
            row_bias, column_bias: [M] and [N].
            starts: [M + 1] int64, edges of each row.
            neighbours: [E] columns, any integer type.
            gradient: [M, H] is added to.
            bias_gradient: [M] is added to.
            losses: [parts] float64 is written.
        """
        total, mine = np.empty(H, rows.dtype), np.empty(H, rows.dtype)
        one, two, loss = rows.dtype.type(1), rows.dtype.type(2), 0.0
        for r in range(first_row, last_row):
            for h in range(H):
                mine[h] = rows[r, h]
                total[h] = 0
            bias, half_bias = row_bias[r], rows.dtype.type(0)
            first, end = starts[r], starts[r + 1]
            singles = end - (end - first) % 4
            # Four edges are taken at once: a row's sums are read and written a quarter as often, and products overlap.
            for e in range(first, singles, 4):
                i, j = _row(neighbours[e]), _row(neighbours[e + 1])
                k, m = _row(neighbours[e + 2]), _row(neighbours[e + 3])
                x0, x1 = bias + column_bias[i], bias + column_bias[j]
                x2, x3 = bias + column_bias[k], bias + column_bias[m]
                for h in range(H):
                    x = mine[h]
                    x0 += x * columns[i, h]
                    x1 += x * columns[j, h]
                    x2 += x * columns[k, h]
                    x3 += x * columns[m, h]
                y0, y1, y2, y3 = x0 - one, x1 - one, x2 - one, x3 - one
                g0, z0 = p * y0, q * x0
                g1, z1 = p * y1, q * x1
                g2, z2 = p * y2, q * x2
                g3, z3 = p * y3, q * x3
                loss += g0 * y0 - z0 * x0 + (g1 * y1 - z1 * x1) + (g2 * y2 - z2 * x2) + (g3 * y3 - z3 * x3)
                g0, g1, g2, g3 = g0 - z0, g1 - z1, g2 - z2, g3 - z3
                half_bias += g0 + g1 + g2 + g3
                for h in range(H):
                    total[h] += g0 * columns[i, h] + g1 * columns[j, h] + g2 * columns[k, h] + g3 * columns[m, h]
            for e in range(singles, end):
                i = _row(neighbours[e])
                x0 = bias + column_bias[i]
                for h in range(H):
                    x0 += mine[h] * columns[i, h]
                y0 = x0 - one
                g0, z0 = p * y0, q * x0
                loss += g0 * y0 - z0 * x0
                g0 -= z0
                half_bias += g0
                for h in range(H):
                    total[h] += g0 * columns[i, h]
            for h in range(H):
                gradient[r, h] += two * total[h]
            bias_gradient[r] += two * half_bias
        losses[part] = loss

    return reduction(edge_errors)
