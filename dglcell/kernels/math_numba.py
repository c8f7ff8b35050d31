"""Activations that the compiler turns into vector instructions, for numba code; with their slopes.

The error function and the exponential of the C library are calls, one number at a time, and would cost more than the
matrix products. In float32 they are branch-free formulas here; float64 keeps the library's.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

inlined = numba.njit(inline="always", fastmath={"contract"}, error_model="numpy")

IDENTITY, RELU, GELU, SILU = range(4)

_F = np.float32
_ZERO, _HALF, _ONE = _F(0), _F(0.5), _F(1)

# x · P(x²) / Q(x²), as in Eigen (`generic_fast_erf_float`) and XLA (`ErfImpl32`); beyond the limit float32 has but 1.
_ERF_LIMIT = _F(3.832506856900711)
_P0, _P1, _P2, _P3, _P4 = map(
    _F, (1.128379143519084, 0.18520832239976145, 0.050955695062380861, 0.0034082910107109506, 0.00022905065861350646)
)
_Q1, _Q2, _Q3, _Q4, _Q5, _Q6 = map(
    _F,
    (
        0.49746925110067538,
        0.11098505178285362,
        0.014070470171167667,
        0.0010179625278914885,
        0.000023547966471313185,
        -1.1791602954361697e-7,
    ),
)

# exp(x) = 2ⁿ exp(x - n ln 2), the latter by the polynomial of Cephes `expf`.
_LOWEST, _HIGHEST = _F(-87.3), _F(88.3)
_LOG2_E, _LN2_HIGH, _LN2_LOW = _F(1.44269504088896341), _F(0.693359375), _F(-2.12194440e-4)
_E2, _E3, _E4, _E5, _E6, _E7 = map(
    _F, (5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4)
)
_ROUNDER = _F(1.5 * 2**23)
"""Adding it rounds to an integer, which is then in the lowest bits of the sum."""


def _make_times_power(typingctx: Any, value: Any, rounded: Any) -> Any:
    """``value · 2ⁿ`` for ``rounded = n + _ROUNDER``, by adding n to the exponent's bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = ir.IntType(32)
        number, exponent = (builder.bitcast(x, bits) for x in args)
        return builder.bitcast(builder.add(number, builder.shl(exponent, bits(23))), ir.FloatType())

    return types.float32(types.float32, types.float32), generate


_times_power: Any = intrinsic(_make_times_power)


def exp(x):
    """e to the power x; in float32 0 below -87.3, and e^88.3 above 88.3."""


def erf(x):
    """The error function."""


@overload(exp, inline="always")
def _exp(x):
    def single(x):
        bounded = _HIGHEST if x > _HIGHEST else (_LOWEST if x < _LOWEST else x)
        rounded = bounded * _LOG2_E + _ROUNDER
        n = rounded - _ROUNDER
        r = (bounded - n * _LN2_HIGH) - n * _LN2_LOW
        p = ((((_E7 * r + _E6) * r + _E5) * r + _E4) * r + _E3) * r + _E2
        value = _times_power(p * (r * r) + r + _ONE, rounded)
        return _ZERO if x < _LOWEST else value

    return single if x == types.float32 else lambda x: math.exp(x)


@overload(erf, inline="always")
def _erf(x):
    def single(x):
        z = _ERF_LIMIT if x > _ERF_LIMIT else (-_ERF_LIMIT if x < -_ERF_LIMIT else x)
        s = z * z
        p = (((_P4 * s + _P3) * s + _P2) * s + _P1) * s + _P0
        q = (((((_Q6 * s + _Q5) * s + _Q4) * s + _Q3) * s + _Q2) * s + _Q1) * s + _ONE
        return _ONE if x > _ERF_LIMIT else (-_ONE if x < -_ERF_LIMIT else z * p / q)

    return single if x == types.float32 else lambda x: math.erf(x)


def gelu(x):
    """``x · Φ(x)`` and its slope ``Φ(x) + x · φ(x)``, Φ and φ the normal distribution and its density."""


def silu(x):
    """``x · σ(x)`` and its slope, σ the logistic function."""


@overload(gelu, inline="always")
def _gelu(x):
    half, root_half, density_at_0, one = _typed(x, _HALF, math.sqrt(0.5), 1 / math.sqrt(2 * math.pi), _ONE)

    def both(x):
        below = half * (one + erf(x * root_half))
        return x * below, below + x * (density_at_0 * exp(-half * (x * x)))

    return both


@overload(silu, inline="always")
def _silu(x):
    (one,) = _typed(x, _ONE)

    def both(x):
        logistic = one / (one + exp(-x))
        return x * logistic, logistic * (one + x * (one - logistic))

    return both


def _typed(x: Any, *constants: Any) -> list[Any]:
    """Constants in the type of x: numba would compute a product with any other in float64."""
    return [(np.float32 if x == types.float32 else np.float64)(c) for c in constants]


@inlined
def activate(kind, values):
    """Replace values by those of the activation.

    Args:
        kind: ``IDENTITY``, ``RELU``, ``GELU`` or ``SILU``.
        values: [n] float32 or float64.
    """
    zero = values.dtype.type(0)
    if kind == RELU:
        for i in range(len(values)):
            v = values[i]
            values[i] = zero if v <= zero else v
    elif kind == GELU:
        for i in range(len(values)):
            values[i] = gelu(values[i])[0]
    elif kind == SILU:
        for i in range(len(values)):
            values[i] = silu(values[i])[0]


@inlined
def activate_with_slopes(kind, values, slopes):
    """``activate``, and the activation's slopes there.

    Args:
        kind: as for ``activate``.
        values: [n].
        slopes: [n], written; apart from ``values``, or the loops would not be vectorised.
    """
    zero, one = values.dtype.type(0), values.dtype.type(1)
    if kind == GELU:
        for i in range(len(values)):
            value, slope = gelu(values[i])
            values[i] = value
            slopes[i] = slope
    elif kind == SILU:
        for i in range(len(values)):
            value, slope = silu(values[i])
            values[i] = value
            slopes[i] = slope
    else:
        for i in range(len(values)):
            slopes[i] = zero if kind == RELU and values[i] <= zero else one
        activate(kind, values)


@inlined
def to_slopes(kind, values):
    """Replace values by the activation's slopes there."""
    zero, one = values.dtype.type(0), values.dtype.type(1)
    if kind == GELU:
        for i in range(len(values)):
            values[i] = gelu(values[i])[1]
    elif kind == SILU:
        for i in range(len(values)):
            values[i] = silu(values[i])[1]
    else:
        for i in range(len(values)):
            values[i] = zero if kind == RELU and values[i] <= zero else one
