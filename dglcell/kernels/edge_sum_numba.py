"""Sums of rows over edges, held in vector registers from the first edge to the last, for numba code.

Written out as vector instructions: from a loop over columns the compiler makes sums that go through memory at every
edge, at a third of the speed.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

VECTOR_BYTES = 64
"""The widest registers; narrower ones are used in pairs."""

VECTORS = 4
"""Summed at once: few enough for the registers, enough to hide how long an addition takes."""


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
    """``total[c] = Σ over edges e of weights[e] · source[indices[e] · stride + offset + c]``, in the order of edges.

    Args:
        vectors: a number in the code; c goes from 0 to as many elements as so many vectors have.
        source: 1-D float32 or float64.
        offset, stride: int64.
        indices: 1-D, unsigned or not negative.
        weights: 1-D in the type of ``source``, or None for ones.
        first, last: int64, edges from the first to before the last.
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
    """The vector all of whose elements are the scalar."""
    nothing = vector(ir.Undefined)
    one = builder.insert_element(nothing, scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(one, nothing, ir.VectorType(ir.IntType(32), vector.count)(None))


sum_edges: Any = intrinsic(prefer_literal=True)(_sum_edges)
