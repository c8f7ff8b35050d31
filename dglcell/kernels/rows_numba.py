"""The compiled part of ``dglcell.kernels.rows``.

Kept apart because importing numba takes half a second: only the first call pays it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dglcell.kernels.jit_numba import jit

FIXED_WIDTHS = (32, 64, 128, 256)
"""Widths with compiled code of their own: a loop of known length takes half the time."""


@dataclass(frozen=True)
class Kernels:
    """Compiled functions for one width."""

    pull: Any
    push: Any
    add_rows: Any
    add_split: Any
    sum_strains: Any


def compiled(width: int) -> Kernels:
    """The functions for rows of a width."""
    return _make(width if width in FIXED_WIDTHS else 0)


@cache
def _make(fixed: int) -> Kernels:
    """Functions that see ``fixed`` as a constant; 0 for any width."""
    return Kernels(_pull(fixed), _push(fixed), _add_rows(fixed), _add_split(fixed), _sum_strains(fixed))


@jit
def mark(starts, neighbours, nodes, strains, mask):
    """``mask[strains[i], neighbours[e]] = True`` for all edges e of nodes[i].

    Args:
        starts, neighbours: as for ``pull``.
        nodes, strains: [D].
        mask: [B, M] bool.
    """
    for i in range(len(nodes)):
        row = mask[strains[i]]
        for edge in range(starts[nodes[i]], starts[nodes[i] + 1]):
            row[neighbours[edge]] = True


def _pull(fixed):
    @jit
    def pull(starts, neighbours, weights, nodes, strains, table, source, out, row, stop):
        """``out[i] += Σ over edges e of nodes[i] of weights[e] · source[table[strains[i], neighbours[e]]]``.

        Negative rows are left out. Eight edges at a time, so that the sum is read and written once for all of them.

        Args:
            starts: [N + 1] edges of node u are ``starts[u]:starts[u + 1]``.
            neighbours: [E] the other ends.
            weights: [E] in the type of ``source``, or None.
            nodes, strains: [K].
            table: [B, N'] rows of ``source``.
            source: [S, H].
            out: [K, H].
            row, stop: which i.
        """
        width = fixed or source.shape[1]
        for i in range(row, stop):
            rows = table[strains[i]]
            edge, last = starts[nodes[i]], starts[nodes[i] + 1]
            while edge < last:
                eight = edge + 8 <= last
                if eight:
                    p, q = rows[neighbours[edge]], rows[neighbours[edge + 1]]
                    r, s = rows[neighbours[edge + 2]], rows[neighbours[edge + 3]]
                    t, u = rows[neighbours[edge + 4]], rows[neighbours[edge + 5]]
                    v, w = rows[neighbours[edge + 6]], rows[neighbours[edge + 7]]
                    # The sign bit of the union: whether any of them is negative.
                    eight = (p | q | r | s | t | u | v | w) >= 0
                if not eight:
                    row_here = rows[neighbours[edge]]
                    if row_here >= 0:
                        if weights is None:
                            for k in range(width):
                                out[i, k] += source[row_here, k]
                        else:
                            for k in range(width):
                                out[i, k] += weights[edge] * source[row_here, k]
                    edge += 1
                elif weights is None:
                    for k in range(width):
                        out[i, k] += ((source[p, k] + source[q, k]) + (source[r, k] + source[s, k])) + (
                            (source[t, k] + source[u, k]) + (source[v, k] + source[w, k])
                        )
                    edge += 8
                else:
                    z = weights[edge : edge + 8]
                    for k in range(width):
                        out[i, k] += (
                            (z[0] * source[p, k] + z[1] * source[q, k]) + (z[2] * source[r, k] + z[3] * source[s, k])
                        ) + ((z[4] * source[t, k] + z[5] * source[u, k]) + (z[6] * source[v, k] + z[7] * source[w, k]))
                    edge += 8

    return pull


def _push(fixed):
    @jit
    def push(starts, neighbours, weights, nodes, strains, table, source, out, row, stop):
        """``out[table[strains[i], neighbours[e]]] += weights[e] · source[i]`` for all edges e of nodes[i].

        The transpose of ``pull``; calls that run at once must have different strains.

        Args:
            starts, neighbours, weights: as for ``pull``.
            nodes, strains: [D].
            table: [B, M] rows of ``out``; K for none.
            source: [D, H].
            out: [K, H].
            row, stop: which i.
        """
        width = fixed or source.shape[1]
        for i in range(row, stop):
            rows = table[strains[i]]
            for edge in range(starts[nodes[i]], starts[nodes[i] + 1]):
                row_there = rows[neighbours[edge]]
                if row_there >= len(out):
                    continue
                if weights is None:
                    for k in range(width):
                        out[row_there, k] += source[i, k]
                else:
                    for k in range(width):
                        out[row_there, k] += weights[edge] * source[i, k]

    return push


def _add_rows(fixed):
    @jit
    def add_rows(out, rows, values, first):
        """``out[rows[i], first:first + width] += values[i, first:first + width]``, in order."""
        width = fixed or out.shape[1]
        for i in range(len(rows)):
            row = rows[i]
            for k in range(width):
                out[row, first + k] += values[i, first + k]

    return add_rows


def _add_split(fixed):
    @jit
    def add_split(shared, out, rows, values):
        """``add_rows``, where rows below ``len(shared)`` are those of ``shared``."""
        width = fixed or out.shape[1]
        for i in range(len(rows)):
            row = rows[i]
            if row < len(shared):
                for k in range(width):
                    shared[row, k] += values[i, k]
            else:
                for k in range(width):
                    out[row, k] += values[i, k]

    return add_split


def _sum_strains(fixed):
    @jit
    def sum_strains(table, source, out, node, stop):
        """``out[v] += Σ over strains b of source[table[b, v]]`` for nodes v in [node, stop); negative rows left out."""
        width = fixed or out.shape[1]
        total = np.empty(width, out.dtype)
        for v in range(node, stop):
            for k in range(width):
                total[k] = out[v, k]
            for b in range(len(table)):
                row = table[b, v]
                if row >= 0:
                    for k in range(width):
                        total[k] += source[row, k]
            for k in range(width):
                out[v, k] = total[k]

    return sum_strains
