"""Compile the loops of sparse products: row by row, and in tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dglcell.kernels.jit_numba import jit

# Sums of rows over edges, held in vector registers from the first edge to the last, for numba code.
#
# They are written out as vector instructions: from a loop over columns the compiler makes sums that go through memory
# at every edge, at a third of the speed.


VECTOR_BYTES = 64
"""The widest registers have so many bytes; narrower ones are used in pairs."""

VECTORS = 4
"""This many vectors are summed at once: they fit into the registers and hide how long an addition takes."""


def _sum_edges(
    typingctx: Any,
    vectors: Any,
    source: Any,
    offset: Any,
    stride: Any,
    indices: Any,
    weights: Any,
    first: Any,
    last: Any,
    total: Any,
) -> Any:
    """Compute ``total[c] = Σ over edges e of weights[e] · source[indices[e] · stride + offset + c]``.

    The sum is in the order of edges.

    Args:
        vectors: a literal number; c goes from 0 to as many elements as this number of vectors has.
        source: 1-D float32 or float64.
        offset, stride: int64.
        indices: 1-D, unsigned or not negative.
        weights: 1-D in the type of ``source``, or None for ones.
        first, last: int64, the range of edges, without the last.
        total: 1-D in the type of ``source``.
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
    """Return the vector whose elements all equal the scalar."""
    nothing = vector(ir.Undefined)
    one = builder.insert_element(nothing, scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(one, nothing, ir.VectorType(ir.IntType(32), vector.count)(None))


sum_edges: Any = intrinsic(prefer_literal=True)(_sum_edges)


# The compiled loops of the ``tiled`` kernel.
#
# They are kept apart because importing numba takes a good part of a second, which only a product with this kernel
# should pay.


# Columns are counted in unsigned integers: a signed index might be negative, and the check for that keeps the compiler
# from handling many columns with one instruction.
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
    """Do what ``pack`` does from bits of bfloat16, which numba lacks, to float32, whose upper half they are."""
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
    """Compute for every row v the sum over its edges e, in their order.

    ``y[v, column + c] = Σ weights[e] · source[indices[e], offset + c]``.

    Args:
        source: a matrix laid out flat, float32 or float64.
        stride: length of its rows.
        offset: the first column to be read.
        width: number of columns to be read, a multiple of 64 bytes.
        starts: [M + 1] int64.
        indices: [E], any integer type.
        weights: [E] in the type of ``source``, or None for ones.
        y: [M, C] in the type of ``source``.
        column: the first column to be written; columns beyond the last are left out.
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
