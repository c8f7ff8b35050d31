"""Compile the loops of ``dglcell.kernels.rows``.

They are kept apart because importing numba takes half a second, which only the first call pays.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from dglcell.kernels.jit_numba import jit

FIXED_WIDTHS = (32, 64, 128, 256)
"""Widths with compiled code of their own: a loop of known length takes half the time."""


@cache
def compiled(loops: str, width: int) -> Any:
    """Return ``pull`` or ``push`` for rows of a width; those of other widths than ``FIXED_WIDTHS`` share one."""
    if width not in (0, *FIXED_WIDTHS):
        return compiled(loops, 0)
    return {"pull": _pull, "push": _push}[loops](width)


@jit
def mark(starts, neighbours, nodes, strains, mask):
    """Set ``mask[neighbours[e], strains[i]]`` to true for all edges e of nodes[i].

    Args:
        starts, neighbours: as for ``pull``.
        nodes, strains: [D].
        mask: [M, B] bool.
    """
    for i in range(len(nodes)):
        strain = strains[i]
        for edge in range(starts[nodes[i]], starts[nodes[i] + 1]):
            mask[neighbours[edge], strain] = True


@jit
def by_strain(strains, number):
    """Return positions of the pairs by strain, [D], in their order otherwise, and where each strain begins, [B + 1]."""
    starts = np.zeros(number + 1, np.int64)
    for i in range(len(strains)):
        starts[strains[i] + 1] += 1
    for b in range(number):
        starts[b + 1] += starts[b]
    following = starts.copy()
    order = np.empty(len(strains), np.int64)
    for i in range(len(strains)):
        order[following[strains[i]]] = i
        following[strains[i]] += 1
    return order, starts


def _pull(fixed):
    @jit
    def pull(starts, neighbours, weights, nodes, strains, order, table, source, out, row, stop):
        """Add ``weights[e] · source[table[strains[i], neighbours[e]]]`` to ``out[i]`` for all edges e of nodes[i].

        Negative rows are left out. Eight edges are taken at a time, so that the sum is read and written once for them.

        Args:
            starts: [N + 1] edges of node u are ``starts[u]:starts[u + 1]``.
            neighbours: [E] the other ends.
            weights: [E] in the type of ``source``, or None.
            nodes, strains: [K].
            order: [K] the order in which pairs are taken.
            table: [B, N'] rows of ``source``.
            source: [S, H].
            out: [K, H].
            row, stop: the range of places of ``order``.
        """
        width = fixed or source.shape[1]
        for place in range(row, stop):
            i = order[place]
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
    def push(starts, neighbours, weights, nodes, strains, order, table, source, out, row, stop):
        """Add ``weights[e] · source[i]`` to ``out[table[strains[i], neighbours[e]]]`` for all edges e of nodes[i].

        This is the transpose of ``pull``; calls that run at once must have different strains.

        Args:
            starts, neighbours, weights: as for ``pull``.
            nodes, strains: [D].
            order: [D] the order in which pairs are taken.
            table: [B, M] rows of ``out``; negative for none.
            source: [D, H].
            out: [K, H].
            row, stop: the range of places of ``order``.
        """
        width = fixed or source.shape[1]
        for place in range(row, stop):
            i = order[place]
            rows = table[strains[i]]
            for edge in range(starts[nodes[i]], starts[nodes[i] + 1]):
                row_there = rows[neighbours[edge]]
                if row_there < 0:
                    continue
                if weights is None:
                    for k in range(width):
                        out[row_there, k] += source[i, k]
                else:
                    for k in range(width):
                        out[row_there, k] += weights[edge] * source[i, k]

    return push
