"""Compile the loops of sparse products and of single rows with numba, at the first call with each set of types.

They are kept apart because importing numba takes half a second, which only the first call pays. Any number of threads
may call them at once. Compiled code is kept beside this file for later processes, or in the user's cache folder where
the installation is read-only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def jit(function: Callable[..., Any]) -> Any:
    """Compile a function; multiplying and adding in one instruction is allowed, summing in another order is not."""
    dispatcher = numba.njit(nogil=True, fastmath={"contract"}, error_model="numpy")(function)
    with suppress(RuntimeError):  # neither folder can be written: every process compiles for itself
        dispatcher.enable_caching()
    return dispatcher


VECTOR_BYTES = 64
"""Bytes of the widest registers; narrower ones are used in pairs."""

VECTORS = 4
"""This many vectors are summed at once: they fit into the registers and hide how long an addition takes."""


@intrinsic(prefer_literal=True)
def sum_edges(
    typingctx: Any, vectors: Any, source: Any, offset: Any, stride: Any,
    indices: Any, weights: Any, first: Any, last: Any, total: Any,
) -> Any:  # fmt: skip
    """Compute ``total[c] = Σ over edges e of weights[e] · source[indices[e] · stride + offset + c]``, in their order.

    Sums are held in vector registers from the first edge to the last. They are written out as vector instructions: from
    a loop over columns the compiler makes sums that go through memory at every edge, at a third of the speed.

    Args:
        vectors: a literal number; c goes from 0 to as many elements as this number of vectors has.
        source, total: 1-D float32 or float64.
        indices: 1-D, unsigned or not negative.
        weights: 1-D in the type of ``source``, or None for ones.
        first, last: int64, the range of edges, without the last.
    """
    element = source.dtype
    lanes = VECTOR_BYTES // (element.bitwidth // 8)
    weighted = not isinstance(weights, types.NoneType)
    size = types.int64
    signature = types.void(vectors, source, size, size, indices, weights, size, size, total)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, source_, offset_, stride_, indices_, weights_, first_, last_, total_ = args
        scalar, word = context.get_value_type(element), ir.IntType(64)
        vector = ir.VectorType(scalar, lanes)
        align = element.bitwidth // 8

        def data(kind: Any, value: Any) -> Any:
            return context.make_array(kind)(context, builder, value).data

        start = builder.gep(data(source, source_), [offset_])
        edges, out = data(indices, indices_), builder.bitcast(data(total, total_), vector.as_pointer())
        entry = builder.basic_block
        loop, body, done = (builder.append_basic_block(name) for name in ("edges", "edge", "sums"))
        builder.branch(loop)
        builder.position_at_end(loop)
        edge = builder.phi(word)
        sums = [builder.phi(vector) for _ in range(vectors.literal_value)]
        builder.cbranch(builder.icmp_signed("<", edge, last_), body, done)
        builder.position_at_end(body)
        index = builder.load(builder.gep(edges, [edge]))
        if index.type.width < word.width:
            index = builder.zext(index, word)
        row = builder.bitcast(builder.gep(start, [builder.mul(index, stride_)]), vector.as_pointer())
        weight = _spread(builder, builder.load(builder.gep(data(weights, weights_), [edge])), vector) if weighted else 0
        new = []
        for k, known in enumerate(sums):
            value = builder.load(builder.gep(row, [word(k)]), align=align)
            if weighted:
                value = builder.fmul(value, weight, flags=("contract",))
            new.append(builder.fadd(known, value, flags=("contract",)))
        following = builder.add(edge, word(1))
        builder.branch(loop)
        for phi, before, after in zip(
            (edge, *sums), (first_, *[vector(None)] * len(sums)), (following, *new), strict=True
        ):
            phi.add_incoming(before, entry)
            phi.add_incoming(after, body)
        builder.position_at_end(done)
        for k, value in enumerate(sums):
            builder.store(value, builder.gep(out, [word(k)]), align=align)
        return context.get_dummy_value()

    return signature, generate


def _spread(builder: Any, scalar: Any, vector: Any) -> Any:
    nothing = vector(ir.Undefined)
    one = builder.insert_element(nothing, scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(one, nothing, ir.VectorType(ir.IntType(32), vector.count)(None))


# The loops of the ``tiled`` kernel.

# Columns are counted in unsigned integers: a signed index might be negative, and the check for that keeps the compiler
# from handling many columns with one instruction.
_column = np.uint64


@jit
def sum_rows(source, stride, offset, width, starts, indices, weights, y, column):
    """Compute ``y[v, column + c] = Σ weights[e] · source[indices[e], offset + c]`` over the edges e of every row v.

    ``source`` is a matrix laid out flat, in rows of ``stride``, of which ``width`` columns are read, a multiple of 64
    bytes. Columns beyond the last of ``y`` [M, C] are left out.
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
            for k in range(written):
                y[v, at + k] = total[k]


# The loops of ``dglcell.kernels.rows``.

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
    """Set ``mask[neighbours[e], strains[i]]`` to true for all edges e of nodes[i]."""
    for i in range(len(nodes)):
        strain = strains[i]
        for edge in range(starts[nodes[i]], starts[nodes[i] + 1]):
            mask[neighbours[edge], strain] = True


@jit
def by_strain(strains, number):
    """Return the order of pairs by strain, stable, and where each strain begins; a sort takes ten times as long."""
    starts = np.zeros(number + 1, np.int64)
    for strain in strains:
        starts[strain + 1] += 1
    starts = np.cumsum(starts)
    following, order = starts.copy(), np.empty(len(strains), np.int64)
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
            starts, neighbours, weights: edges by node; weights in the type of ``source``, or None.
            nodes, strains: [K].
            order: [K] the order in which pairs are taken, from ``row`` to ``stop``.
            table: [B, N'] rows of ``source`` [S, H].
            out: [K, H].
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

        This is the transpose of ``pull``, with its arguments; calls that run at once must have different strains.
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
