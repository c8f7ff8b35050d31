"""The compiled part of ``dglcell.kernels.update``: kept apart because importing numba takes half a second."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dglcell.kernels.blas_numba import gemm
from dglcell.kernels.jit_numba import jit, reduction
from dglcell.kernels.math_numba import activate, activate_with_slopes, inlined, to_slopes

FIXED_WIDTHS = (32, 64, 128)
"""Widths with compiled code of their own: loops of known length are faster."""

ROWS = 128
"""Rows computed at a time: what lies between input and output stays in the second-level cache."""

NO_NORM, LAYER_NORM, RMS_NORM = range(3)

# numba takes named tuples, but no dataclasses.
Form = namedtuple("Form", "side_by_side inner norm outer norm_at")
"""What is computed: whether the first layer sees [x | r] instead of (1+ε)x + r, the activations' and the norm's codes,
and where the norm's weights and biases begin among the parameters; ε is the first of these, the norm's eps the second.
"""

Taken = namedtuple("Taken", "table rows first")
"""Rows ``rows[i] + first`` of a table; ``i + first`` where ``rows`` is empty."""

Into = namedtuple("Into", "shared own rows first")
"""Where gradients of taken rows are added: rows below ``len(shared)`` to it, others to ``own``; none if it is empty."""


@dataclass(frozen=True)
class Kernels:
    """Compiled functions for one width."""

    forward: Any
    backward: Any


def compiled(widths: set[int]) -> Kernels:
    """The functions for layers of these widths."""
    (width,) = widths if len(widths) == 1 else (0,)
    return _make(width if width in FIXED_WIDTHS else 0)


@reduction
def _sum(values, i, width):
    total = values.dtype.type(0)
    for k in range(width):
        total += values[i, k]
    return total


@reduction
def _sum_of_squares(values, i, width, centre):
    total = values.dtype.type(0)
    for k in range(width):
        total += (values[i, k] - centre) * (values[i, k] - centre)
    return total


@reduction
def dot(a, i, b, j, width):
    """The inner product of row i of ``a`` and row j of ``b``."""
    total = a.dtype.type(0)
    for k in range(width):
        total += a[i, k] * b[j, k]
    return total


@inlined
def _row(rows, i, first):
    return (rows[i] if len(rows) > 0 else i) + first


@inlined
def _gather(form, flat, x, r, start, out, width):
    """[n, W] input of the first layer."""
    scale = flat.dtype.type(1) + flat[0]
    for i in range(len(out)):
        p, q = _row(x.rows, start + i, x.first), _row(r.rows, start + i, r.first)
        if form.side_by_side:
            for k in range(width):
                out[i, k] = x.table[p, k]
            for k in range(width):
                out[i, width + k] = r.table[q, k]
        else:
            for k in range(width):
                out[i, k] = x.table[p, k] * scale + r.table[q, k]


@inlined
def _linear(blas, flat, layer, inputs, out, width):
    """``out = inputs Wᵀ + b``."""
    n, bias = len(out), flat[layer[3] : layer[3] + width]
    for i in range(n):
        for k in range(width):
            out[i, k] = bias[k]
    gemm(blas, False, True, True, n, layer[1], layer[0], inputs, flat[layer[2] :], out)


@inlined
def _normalise(form, flat, z, scales, width):
    """Replace z by its normalised rows, before weights and biases; keep what they were multiplied with."""
    number, one, eps = flat.dtype.type(width), flat.dtype.type(1), flat[1]
    for i in range(len(z)):
        centre = _sum(z, i, width) / number if form.norm == LAYER_NORM else flat.dtype.type(0)
        scale = one / np.sqrt(_sum_of_squares(z, i, width, centre) / number + eps)
        scales[i] = scale
        for k in range(width):
            z[i, k] = (z[i, k] - centre) * scale


@inlined
def _weigh(form, flat, z, out, width):
    """``out = z · weight + bias`` of the norm."""
    weight = flat[form.norm_at : form.norm_at + width]
    bias = flat[form.norm_at + width : form.norm_at + 2 * width]
    for i in range(len(z)):
        for k in range(width):
            out[i, k] = z[i, k] * weight[k] + bias[k]


@inlined
def _unweigh(form, flat, of_flat, grad, start, z, slopes, out, width):
    """Gradient of the normalised rows, ``out``; with that of the norm's weights and biases."""
    weight = flat[form.norm_at : form.norm_at + width]
    sums = np.zeros((2, width), flat.dtype)
    for i in range(len(z)):
        p = _row(grad.rows, start + i, grad.first)
        # One loop for each result: the compiler gives up on loops over more arrays, as any of them might overlap.
        for k in range(width):
            out[i, k] = grad.table[p, k] * slopes[i, k]
        for k in range(width):
            sums[0, k] += out[i, k] * z[i, k]
        for k in range(width):
            sums[1, k] += out[i, k]
        for k in range(width):
            out[i, k] *= weight[k]
    for j in range(2):
        for k in range(width):
            of_flat[form.norm_at + j * width + k] += sums[j, k]


@inlined
def _unnormalise(form, z, scales, out, width):
    """Turn the gradient of the normalised rows z into that of the rows before."""
    number = z.dtype.type(width)
    for i in range(len(z)):
        mean = _sum(out, i, width) / number if form.norm == LAYER_NORM else z.dtype.type(0)
        slope, scale = dot(out, i, z, i, width) / number, scales[i]
        for k in range(width):
            out[i, k] = (out[i, k] - mean - z[i, k] * slope) * scale


@inlined
def _add_columns(grad, of_flat, first, width):
    """Add the sums of columns: blocks' sums are added, so that rounding errors do not grow with all rows."""
    sums = np.zeros(width, grad.dtype)
    for i in range(len(grad)):
        for k in range(width):
            sums[k] += grad[i, k]
    for k in range(width):
        of_flat[first + k] += sums[k]


@inlined
def _scatter(into, start, grad, column, scale, width):
    """Add ``scale · grad[:, column:]`` to the rows it belongs to."""
    if len(into.own) > 0:
        for i in range(len(grad)):
            p = _row(into.rows, start + i, into.first)
            if p < len(into.shared):
                for k in range(width):
                    into.shared[p, k] += grad[i, column + k] * scale
            else:
                for k in range(width):
                    into.own[p, k] += grad[i, column + k] * scale


@cache
def _make(fixed: int) -> Kernels:
    """Functions that see ``fixed`` as a constant; 0 for any width."""
    return Kernels(_forward(fixed), _backward(fixed))


def _forward(fixed):
    @jit
    def forward(blas, form, layers, flat, x, r, number, out, add):
        """Rows of the update, written to ``out`` or added to it.

        Args:
            blas: address of the matrix product.
            form: ``Form``.
            layers: [L, 4] int64 width of input and output, where weights and biases begin in ``flat``.
            flat: all parameters, one after the other.
            x, r: ``Taken``, own and received rows.
            number: of rows.
            out: ``Taken``.
            add: bool.
        """
        depth, last = len(layers), fixed or layers[-1, 1]
        scratch = np.empty((2, ROWS * layers[:, :2].max()), flat.dtype)
        scales = np.empty(ROWS, flat.dtype)
        for start in range(0, number, ROWS):
            n = min(ROWS, number - start)
            a = scratch[0, : n * layers[0, 0]].reshape(n, layers[0, 0])
            _gather(form, flat, x, r, start, a, fixed or x.table.shape[1])
            for j in range(depth):
                width = fixed or layers[j, 1]
                z = scratch[(j + 1) % 2, : n * width].reshape(n, width)
                _linear(blas, flat, layers[j], a, z, width)
                if j + 1 < depth:
                    activate(form.inner, z.reshape(n * width))
                a = z
            if form.norm != NO_NORM:
                _normalise(form, flat, a, scales, last)
                _weigh(form, flat, a, a, last)
            activate(form.outer, a.reshape(n * last))
            for i in range(n):
                p = _row(out.rows, start + i, out.first)
                if add:
                    for k in range(last):
                        out.table[p, k] += a[i, k]
                else:
                    for k in range(last):
                        out.table[p, k] = a[i, k]

    return forward


def _backward(fixed):
    @jit
    def backward(blas, form, layers, flat, x, r, number, grad, of_x, of_r, of_flat):
        """Add the gradients of rows and parameters; what lies between is computed once more.

        Args:
            blas, form, layers, flat, x, r, number: as for ``forward``.
            grad: ``Taken``, gradient of the update's rows.
            of_x, of_r: ``Into``.
            of_flat: as ``flat``.
        """
        depth, last = len(layers), fixed or layers[-1, 1]
        taken = fixed or x.table.shape[1]
        one = flat.dtype.type(1)
        # Every layer's input, the slopes of the activations before it, and two in which gradients go down.
        scratch = np.empty((2 * depth + 2, ROWS * layers[:, :2].max()), flat.dtype)
        scales = np.empty(ROWS, flat.dtype)
        for start in range(0, number, ROWS):
            n = min(ROWS, number - start)
            a = scratch[0, : n * layers[0, 0]].reshape(n, layers[0, 0])
            _gather(form, flat, x, r, start, a, taken)
            for j in range(depth):
                width = fixed or layers[j, 1]
                z = scratch[j + 1 if j + 1 < depth else 2 * depth, : n * width].reshape(n, width)
                _linear(blas, flat, layers[j], a, z, width)
                if j + 1 < depth:
                    activate_with_slopes(form.inner, z.reshape(n * width), scratch[depth + j + 1, : n * width])
                a = z
            u, g = scratch[depth, : n * last].reshape(n, last), scratch[2 * depth + 1, : n * last].reshape(n, last)
            if form.norm != NO_NORM:
                _normalise(form, flat, a, scales, last)
            _weigh(form, flat, a, u, last)
            to_slopes(form.outer, u.reshape(n * last))
            _unweigh(form, flat, of_flat, grad, start, a, u, g, last)
            if form.norm != NO_NORM:
                _unnormalise(form, a, scales, g, last)
            for j in range(depth - 1, -1, -1):
                entry, width = layers[j, 0], fixed or layers[j, 1]
                _add_columns(g, of_flat, layers[j, 3], width)
                gemm(blas, True, False, True, width, entry, n, g, scratch[j], of_flat[layers[j, 2] :])
                other = 2 * depth + (depth - 1 - j) % 2
                down = scratch[other, : n * entry]
                gemm(blas, False, False, False, n, entry, width, g, flat[layers[j, 2] :], down)
                if j > 0:
                    slopes = scratch[depth + j, : n * entry]
                    for i in range(n * entry):
                        down[i] *= slopes[i]
                g = down.reshape(n, entry)
            if form.side_by_side:
                _scatter(of_x, start, g, 0, one, taken)
                _scatter(of_r, start, g, taken, one, taken)
            else:
                total = 0.0
                for i in range(n):
                    total += dot(g, i, x.table, _row(x.rows, start + i, x.first), taken)
                of_flat[0] += flat.dtype.type(total)
                _scatter(of_x, start, g, 0, one + flat[0], taken)
                _scatter(of_r, start, g, 0, one, taken)

    return backward
