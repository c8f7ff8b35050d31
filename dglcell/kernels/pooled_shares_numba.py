"""Compile the loops of ``dglcell.kernels.pooled_shares``, apart from it because importing numba takes half a second."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from dglcell.kernels.jit_numba import jit, reduction

# exp(x) = 2ⁿ exp(x - n ln 2), the latter by the polynomial of Cephes `expf`. It has no branches and becomes vector
# instructions, whereas the C library's function would be called for one number at a time.
_F = np.float32
_LOWEST, _HIGHEST = _F(-87.3), _F(88.3)
_LOG2_E, _LN2_HIGH, _LN2_LOW = _F(1.44269504088896341), _F(0.693359375), _F(-2.12194440e-4)
_E2, _E3, _E4, _E5, _E6, _E7 = map(
    _F, (5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4)
)
_ZERO, _ONE = _F(0), _F(1)
_ROUNDER = _F(1.5 * 2**23)
"""Adding it rounds to an integer, which is then in the lowest bits of the sum."""


def _make_times_power(typingctx: Any, value: Any, rounded: Any) -> Any:
    """Compute ``value · 2ⁿ`` for ``rounded = n + _ROUNDER``, by adding n to the exponent's bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = ir.IntType(32)
        number, exponent = (builder.bitcast(x, bits) for x in args)
        return builder.bitcast(builder.add(number, builder.shl(exponent, bits(23))), ir.FloatType())

    return types.float32(types.float32, types.float32), generate


_times_power: Any = intrinsic(_make_times_power)


def exp(x):
    """Return e to the power x; in float32 it is 0 below -87.3, and e^88.3 above 88.3."""


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


@reduction
def _dot(x, y):
    """Return ``Σ_i x[i] · y[i]``."""
    total = x.dtype.type(0)
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@jit
def _exponentials(values, largest, out, total):
    """Set ``out[i] = exp(values[i] − largest[i])``, and add it to ``total``."""
    for i in range(len(out)):
        out[i] = exp(values[i] - largest[i])
    for i in range(len(out)):
        total[i] += out[i]


@jit
def _shares(logits, slots, present, first, stop, largest, share, scale):
    """Compute exponentials ``share[k] = exp(l_k − m)`` of one strain and head, and ``scale``.

    The scale is ``1 / (exp(−m) + Σ_k share[k])``.

    m is the largest of 0 and the logits, so that no exponential overflows. One of the last rows of ``share`` takes
    exp(−m), and one is all zeros.
    """
    zero, one = share.dtype.type(0), share.dtype.type(1)
    largest[:] = zero
    for k in range(len(slots)):
        if present[k]:
            row = logits[slots[k], first:stop]
            for i in range(len(largest)):
                largest[i] = row[i] if row[i] > largest[i] else largest[i]
    scale[:] = zero
    _exponentials(share[-1], largest, share[-2], scale)
    for k in range(len(slots)):
        if present[k]:
            _exponentials(logits[slots[k], first:stop], largest, share[k], scale)
    for i in range(len(largest)):
        scale[i] = one / scale[i]


@jit
def forward(logits, slots, present, weight, out, begin, end):
    """Add to ``out[b, h, k]`` the sum over nodes n of ``weight[b, n]`` times the share that n gives to k.

    Args:
        logits: [heads, G, n] logits of every query and key.
        slots: [B, K] which keys a strain has.
        present: [B, K] bool.
        weight: [B, n] weights of the nodes.
        out: [B, heads, K], added to.
        begin, end: the range of strains.
    """
    heads, _, number = logits.shape
    largest, scale = np.empty(number, logits.dtype), np.empty(number, logits.dtype)
    share = np.zeros((slots.shape[1] + 2, number), logits.dtype)
    for b in range(begin, end):
        weights = weight[b]
        for h in range(heads):
            _shares(logits[h], slots[b], present[b], 0, number, largest, share, scale)
            for i in range(number):
                scale[i] *= weights[i]
            for k in range(slots.shape[1]):
                if present[b, k]:
                    out[b, h, k] += _dot(share[k], scale)


@jit
def backward(logits, slots, present, weight, grad, of_logits, of_weight, first, stop):
    """Add the gradients of logits and weights, for the nodes from ``first`` to ``stop``.

    Args:
        logits, slots, present, weight: as for ``forward``.
        grad: [B, heads, K] gradient of the result of ``forward``.
        of_logits: [heads, G, n] gradient of the logits, added to.
        of_weight: [B, n] gradient of the weights, added to.
        first, stop: the range of nodes.
    """
    heads, number = len(logits), stop - first
    largest, scale = np.empty(number, logits.dtype), np.empty(number, logits.dtype)
    share, mean = np.zeros((slots.shape[1] + 2, number), logits.dtype), np.empty(number, logits.dtype)
    for b in range(len(slots)):
        weights, of_weights = weight[b, first:stop], of_weight[b, first:stop]
        for h in range(heads):
            _shares(logits[h], slots[b], present[b], first, stop, largest, share, scale)
            mean[:] = 0
            for k in range(slots.shape[1]):
                if present[b, k]:
                    g, mine = grad[b, h, k], share[k]
                    for i in range(number):
                        mine[i] *= scale[i]
                        mean[i] += g * mine[i]
            for i in range(number):
                of_weights[i] += mean[i]
            for k in range(slots.shape[1]):
                if present[b, k]:
                    g, mine, of_row = grad[b, h, k], share[k], of_logits[h, slots[b, k], first:stop]
                    for i in range(number):
                        of_row[i] += weights[i] * mine[i] * (g - mean[i])
