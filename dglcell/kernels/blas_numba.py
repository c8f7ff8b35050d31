"""Matrix products inside numba code, by the BLAS that torch itself uses.

``numpy.dot`` in numba code goes to scipy's OpenBLAS, whose threads would compete with those of the caller; torch's
obeys ``torch.set_num_threads``, and can add to its result.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic


@cache
def gemm_address(double: bool) -> int:
    """Where ``sgemm`` (``dgemm`` for float64) is: torch's, or scipy's where torch's library does not show it."""
    name = "dgemm" if double else "sgemm"
    for library in sorted(Path(torch.__file__).parent.glob("lib/libtorch_cpu.*")):
        # The library is loaded already; this finds the symbol in it or in the BLAS that it is linked with.
        function = getattr(ctypes.CDLL(str(library)), f"{name}_", None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    address: int = get_cython_function_address("scipy.linalg.cython_blas", name)
    return address


def _gemm(
    typingctx: Any, address: Any, flip_a: Any, flip_b: Any, add: Any, m: Any, n: Any, k: Any, a: Any, b: Any, c: Any
) -> Any:
    """``C = op(A) · op(B)`` for row-major contiguous matrices, op transposing where ``flip_…`` is true.

    Args:
        address: of the function, see ``gemm_address``.
        flip_a, flip_b: bool.
        add: bool, to what is in C.
        m, n, k: op(A) is [m, k], op(B) [k, n], C [m, n].
        a, b, c: arrays of the same type that begin with the matrices.
    """
    element = c.dtype
    size = types.intp
    signature = types.void(size, types.boolean, types.boolean, types.boolean, size, size, size, a, b, c)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, flip_a, flip_b, add, m, n, k, *arrays = args
        byte, word = ir.IntType(8), ir.IntType(32)
        pointer = byte.as_pointer()

        def slot(value: Any) -> Any:
            return builder.bitcast(cgutils.alloca_once_value(builder, value), pointer)

        def choose(condition: Any, one: Any, other: Any) -> Any:
            return builder.select(builder.trunc(condition, ir.IntType(1)), one, other)

        def letter(flip: Any) -> Any:
            return slot(choose(flip, byte(ord("T")), byte(ord("N"))))

        def stride(flip: Any, flipped: Any, plain: Any) -> Any:
            return slot(builder.trunc(choose(flip, flipped, plain), word))

        data = [
            builder.bitcast(context.make_array(t)(context, builder, x).data, pointer)
            for t, x in zip(signature.args[7:], arrays, strict=True)
        ]
        one, beta = context.get_constant(element, 1), context.get_constant(element, 0)
        alpha, beta = slot(one), slot(choose(add, one, beta))
        rows, columns, inner = (slot(builder.trunc(x, word)) for x in (m, n, k))
        # BLAS is column-major, and sees every matrix transposed: Cᵀ += op(B)ᵀ · op(A)ᵀ.
        values = [letter(flip_b), letter(flip_a), columns, rows, inner, alpha, data[1], stride(flip_b, k, n)]
        values += [data[0], stride(flip_a, m, k), beta, data[2], columns]
        function = ir.FunctionType(ir.VoidType(), [pointer] * len(values)).as_pointer()
        builder.call(builder.inttoptr(address, function), values)
        return context.get_dummy_value()

    return signature, generate


gemm: Any = intrinsic(_gemm)
