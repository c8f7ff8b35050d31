"""Say in Triton what the modules of a chain do to rows and to differences of rows, forward and backward.

With ``a`` [H] the base's row, ``d`` [BB, H] the differences of a tile of strains and ``g`` their gradients, a module's
``_difference`` is f(a + d) − f(a), and its ``_gradient`` gives the gradients of ``d`` and of ``a``. The formulas are
those of ``dglcell.perturbation.curves``; tests compare the two. ``row_chain`` joins these functions to one kernel.
"""

from __future__ import annotations

import triton
import triton.language as tl

PRECISION = tl.constexpr("tf32x3")  # of float32 on matrix units: three products, as exact as single precision
NEAR = tl.constexpr(0.03)
LOG2_DENSITY = tl.constexpr(-1.3257480647361593)  # of the normal distribution at zero
HALF_LOG2_E = tl.constexpr(0.7213475204444817)


@triton.jit
def load_rows(x, node, strains, columns, there, B, H: tl.constexpr):
    """Load the rows of a node in a tile of strains, [BB, H], in single precision."""
    rows = x + (node.to(tl.int64) * B + strains)[:, None] * H + columns[None, :]
    return tl.load(rows, mask=there[:, None], other=0).to(tl.float32)


@triton.jit
def product(d, weight):
    """Return ``d`` times a matrix of its type, in single precision."""
    return tl.dot(d, weight, input_precision=PRECISION)


@triton.jit
def weight_gradient(d, g, total):
    """Add the gradient of a weight [out, in] to ``total``."""
    return tl.dot(tl.trans(g), d, acc=total, input_precision=PRECISION)


@triton.jit
def _normal(x):
    """Return Φ(x) and φ(x) of the normal distribution, from one exponential.

    Φ is formula 26.2.17 of Abramowitz and Stegun, *Handbook of Mathematical Functions*, whose error is below 7.5e-8.
    """
    pdf = tl.exp2(x * x * -HALF_LOG2_E + LOG2_DENSITY)
    root = tl.rsqrt(1 + tl.abs(x) * 0.2316419)  # a division would be seven instructions
    t = root * root
    tail = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = tail * pdf
    return tl.where(x < 0, tail, 1 - tail), pdf


@triton.jit
def gelu_rows(a):
    """Return GELU of rows."""
    return a * _normal(a)[0]


@triton.jit
def gelu_rows_gradient(a, g):
    """Return the gradient of rows before GELU."""
    cdf, pdf = _normal(a)
    return g * (cdf + a * pdf)


@triton.jit
def gelu_difference(d, a):
    """Return how much GELU changes: a Taylor sum where that is closer than the subtraction of two values."""
    cdf, pdf = _normal(a)
    square = a * a
    first, second = cdf + a * pdf, pdf * (1 - 0.5 * square)
    third = a * pdf * (square - 4) * (1 / 6)
    series = d * (first[None, :] + d * (second[None, :] + d * third[None, :]))
    x = a[None, :] + d
    return tl.where(tl.abs(d) > NEAR, x * _normal(x)[0] - (a * cdf)[None, :], series)


@triton.jit
def gelu_gradient(d, a, g):
    """Return the gradients of the differences, [BB, H], and of the base, [H]."""
    x = a[None, :] + d
    cdf, pdf = _normal(x)
    base_cdf, base_pdf = _normal(a)
    of_d = g * (cdf + x * pdf)
    return of_d, tl.sum(of_d - g * (base_cdf + a * base_pdf)[None, :], 0)


@triton.jit
def relu_rows(a):
    """Return ReLU of rows."""
    return tl.maximum(a, 0)


@triton.jit
def relu_rows_gradient(a, g):
    """Return the gradient of rows before ReLU."""
    return tl.where(a > 0, g, 0)


@triton.jit
def relu_difference(d, a):
    """Return how much ReLU changes, without a sum of nearly equal numbers."""
    return tl.maximum(d + tl.minimum(a, 0)[None, :], -tl.maximum(a, 0)[None, :])


@triton.jit
def relu_gradient(d, a, g):
    """Return the gradients of the differences, [BB, H], and of the base, [H]."""
    of_d = tl.where(a[None, :] + d > 0, g, 0)
    return of_d, tl.sum(of_d - tl.where(a[None, :] > 0, g, 0), 0)


@triton.jit
def norm_rows(a, eps, H: tl.constexpr):
    """Return rows after a norm, before its weight."""
    c = a - (tl.sum(a, 1) * (1 / H))[:, None]
    return c * tl.rsqrt(tl.sum(c * c, 1) * (1 / H) + eps)[:, None]


@triton.jit
def norm_rows_gradient(a, g, eps, H: tl.constexpr):
    """Return the gradient of rows before a norm."""
    c = a - (tl.sum(a, 1) * (1 / H))[:, None]
    r = tl.rsqrt(tl.sum(c * c, 1) * (1 / H) + eps)[:, None]
    along = (tl.sum(g * c, 1) * (1 / H))[:, None] * r * r
    return r * (g - (tl.sum(g, 1) * (1 / H))[:, None] - c * along)


@triton.jit
def _normed(d, a, eps, H: tl.constexpr):
    """Return c, 1 / √v, e and 1 / √v' of a norm, as in ``curves``, and the change of v."""
    c = a - tl.sum(a, 0) * (1 / H)
    v = tl.sum(c * c, 0) * (1 / H) + eps
    e = d - (tl.sum(d, 1) * (1 / H))[:, None]
    change = tl.sum(e * (e + 2 * c[None, :]), 1) * (1 / H)
    return c, tl.rsqrt(v), e, tl.rsqrt(tl.maximum(v + change, eps)), change


@triton.jit
def norm_difference(d, a, eps, H: tl.constexpr):
    """Return how much a norm changes, before its weight."""
    c, r, e, r_new, change = _normed(d, a, eps, H)
    less = change * (r * r_new) * (r * r_new) / (r + r_new)
    return e * r_new[:, None] - c[None, :] * less[:, None]


@triton.jit
def norm_gradient(d, a, g, eps, H: tl.constexpr):
    """Return the gradients of the differences, [BB, H], and of the base, [H]."""
    c, r, e, r_new, _ = _normed(d, a, eps, H)
    unit = (c[None, :] + e) * r_new[:, None]
    along = tl.sum(g * unit, 1) * (1 / H)
    of_d = r_new[:, None] * (g - (tl.sum(g, 1) * (1 / H))[:, None] - unit * along[:, None])
    # The base's own norm does the opposite to the sum of the gradients, because it is linear in them.
    total, own = tl.sum(g, 0), c * r
    of_base = r * (total - tl.sum(total, 0) * (1 / H) - own * (tl.sum(total * own, 0) * (1 / H)))
    return of_d, tl.sum(of_d, 0) - of_base


@triton.jit
def weighted_sum(x, weight, out, number, count, R: tl.constexpr, BLOCK: tl.constexpr):
    """Sum R tensors of ``count`` numbers, each times its weight, in order."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for r in tl.static_range(R):
        total += tl.load(weight + r) * tl.load(x + r * count + at, mask=at < number, other=0).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < number)
