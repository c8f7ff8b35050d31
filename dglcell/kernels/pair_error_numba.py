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
        rows: Any,
        row_scalars: Any,
        columns: Any,
        column_scalars: Any,
        starts: Any,
        neighbours: Any,
        targets: Any,
        gradient: Any,
        bias_gradient: Any,
        losses: Any,
    ) -> None:
        """Add up errors on the edges of some rows, and their gradients with respect to these rows.

        For a row r and a column c with scalars (bias, p, q) each, the guess is ``rows[r] · columns[c]`` plus both
        biases, and the error ``p p' (guess − target)² − q q' guess²``.

        Args:
            part: the place in ``losses`` that is written.
            first_row, last_row: the range of rows.
            rows, columns: [M, H] and [N, H], float32 or float64; the type of all that follows but ``losses``.
            row_scalars, column_scalars: [M, 3] and [N, 3].
            starts: [M + 1] int64, edges of each row.
            neighbours: [E] columns, any integer type.
            targets: [E], or None for ones.
            gradient: [M, H] is added to.
            bias_gradient: [M] is added to.
            losses: [parts] float64 is written.
        """
        total, mine = np.empty(H, rows.dtype), np.empty(H, rows.dtype)
        two, loss = rows.dtype.type(2), 0.0
        a0 = a1 = a2 = a3 = rows.dtype.type(1)
        for r in range(first_row, last_row):
            for h in range(H):
                mine[h] = rows[r, h]
                total[h] = 0
            bias, p, q = row_scalars[r, 0], row_scalars[r, 1], row_scalars[r, 2]
            half_bias = rows.dtype.type(0)
            first, end = starts[r], starts[r + 1]
            singles = end - (end - first) % 4
            # Four edges are taken at once: a row's sums are read and written a quarter as often, and products overlap.
            for e in range(first, singles, 4):
                i, j = _row(neighbours[e]), _row(neighbours[e + 1])
                k, m = _row(neighbours[e + 2]), _row(neighbours[e + 3])
                x0, x1 = bias + column_scalars[i, 0], bias + column_scalars[j, 0]
                x2, x3 = bias + column_scalars[k, 0], bias + column_scalars[m, 0]
                for h in range(H):
                    x = mine[h]
                    x0 += x * columns[i, h]
                    x1 += x * columns[j, h]
                    x2 += x * columns[k, h]
                    x3 += x * columns[m, h]
                if targets is not None:
                    a0, a1, a2, a3 = targets[e], targets[e + 1], targets[e + 2], targets[e + 3]
                y0, y1, y2, y3 = x0 - a0, x1 - a1, x2 - a2, x3 - a3
                g0, z0 = p * column_scalars[i, 1] * y0, q * column_scalars[i, 2] * x0
                g1, z1 = p * column_scalars[j, 1] * y1, q * column_scalars[j, 2] * x1
                g2, z2 = p * column_scalars[k, 1] * y2, q * column_scalars[k, 2] * x2
                g3, z3 = p * column_scalars[m, 1] * y3, q * column_scalars[m, 2] * x3
                loss += g0 * y0 - z0 * x0 + (g1 * y1 - z1 * x1) + (g2 * y2 - z2 * x2) + (g3 * y3 - z3 * x3)
                g0, g1, g2, g3 = g0 - z0, g1 - z1, g2 - z2, g3 - z3
                half_bias += g0 + g1 + g2 + g3
                for h in range(H):
                    total[h] += g0 * columns[i, h] + g1 * columns[j, h] + g2 * columns[k, h] + g3 * columns[m, h]
            for e in range(singles, end):
                i = _row(neighbours[e])
                x0 = bias + column_scalars[i, 0]
                for h in range(H):
                    x0 += mine[h] * columns[i, h]
                if targets is not None:
                    a0 = targets[e]
                y0 = x0 - a0
                g0, z0 = p * column_scalars[i, 1] * y0, q * column_scalars[i, 2] * x0
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
