"""The compiled part of ``dglcell.kernels.pooled_shares``: kept apart because importing numba takes half a second."""

from __future__ import annotations

import numpy as np

from dglcell.kernels.jit_numba import jit, reduction
from dglcell.kernels.math_numba import exp


@reduction
def _dot(x, y):
    """``Σ_i x[i] · y[i]``."""
    total = x.dtype.type(0)
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@jit
def _exponentials(values, largest, out, total):
    """``out[i] = exp(values[i] − largest[i])``, and added to ``total``."""
    for i in range(len(out)):
        out[i] = exp(values[i] - largest[i])
    for i in range(len(out)):
        total[i] += out[i]


@jit
def _shares(logits, slots, present, first, stop, largest, share, scale):
    """Exponentials ``share[k] = exp(l_k − m)`` of one strain and head, and ``scale = 1 / (exp(−m) + Σ_k share[k])``.

    m is the largest of 0 and the logits, so that no exponential overflows. Of the last rows of ``share`` one takes
    exp(−m), and one is of zeros.
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
        logits: [heads, G, n] of every query and key.
        slots: [B, K] which keys a strain has.
        present: [B, K] bool.
        weight: [B, n].
        out: [B, heads, K], added to.
        begin, end: which strains.
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
        grad: [B, heads, K] of its result.
        of_logits: [heads, G, n], added to.
        of_weight: [B, n], added to.
        first, stop: which nodes.
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
