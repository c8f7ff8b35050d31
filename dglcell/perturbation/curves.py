"""Compute how functions of rows that are not linear change: activations, norms and softmax.

With ``a`` the base, ``δ`` the difference and ``g`` the function, everything here is a form of ``g(a + δ) − g(a)`` that
does not subtract two nearly equal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.kernels.rows import sum_rows, take_rows
from dglcell.perturbation.attribution import active, norm_secant, secant, share_secant

_aten = torch.ops.aten


# Rows of a base beside the differences that belong to them.
#
# Where every base row has B differences, ``rows`` is the number B. The differences are then [n, B, ...] beside
# [n, 1, ...] of the base, which is not copied. Where differences are listed, ``rows`` has the base row of each, and
# they are [k, ...] beside a copy of that row. B is a symbol and no ``int`` where the compiler has seen several values
# of it, which is why these functions ask whether ``rows`` is a tensor.


def beside(x: Tensor, rows: int | Tensor) -> Tensor:
    """Return rows of the base, or functions of them, in a shape that broadcasts with ``paired`` differences."""
    return take_rows(x, rows) if isinstance(rows, Tensor) else x.unsqueeze(1)


def paired(delta: Tensor, rows: int | Tensor) -> Tensor:
    """Return differences [k, ...] in a shape that broadcasts with ``beside``."""
    return delta if isinstance(rows, Tensor) else delta.unflatten(0, (-1, rows))


def flat(delta: Tensor, rows: int | Tensor) -> Tensor:
    """Return differences as [k, ...] again; it is the inverse of ``paired``."""
    return delta if isinstance(rows, Tensor) else delta.flatten(0, 1)


def summed(delta: Tensor, number: int, rows: int | Tensor) -> Tensor:
    """Sum the ``paired`` differences of each of ``number`` base rows, in order, in single precision or better."""
    if isinstance(rows, Tensor):
        return sum_rows(delta, rows, number)
    return delta.sum(1, dtype=torch.promote_types(delta.dtype, torch.float32))


@dataclass(frozen=True)
class Curve:
    """Describe a function g of rows that is not linear, and how its difference is computed.

    Every function also gets the parameters of g.
    """

    #: function a → what differences need of the base, computed once per node
    of_base: Callable[..., tuple[Tensor, ...]]
    difference: Callable[..., Tensor]  #: function (δ, what ``of_base`` gave, beside the differences) → g(a + δ) − g(a)
    gradient: Callable[..., Tensor]  #: function (gradient of g(x), x) → gradient of x


class _CurveDifference(torch.autograd.Function):
    """Compute the difference of a ``Curve``.

    With J the derivative of g, the gradient is ``J(a + δ)ᵀ grad`` for δ. For a it is the sum of these over the strains
    minus ``J(a)ᵀ`` of the sum of grad: one row per node, and right to rounding of either term.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, delta: Tensor, rows: int | Tensor, curve: Curve, parameters: Any) -> Tensor:
        wide = _wide(a, delta)
        of_base = [beside(x, rows) for x in curve.of_base(a.to(wide), *parameters)]
        out = curve.difference(paired(delta.to(wide), rows), *of_base, *parameters)
        return flat(out.to(delta.dtype), rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.rows, ctx.curve, ctx.parameters = inputs[2:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        (a, delta), rows, gradient = ctx.saved_tensors, ctx.rows, ctx.curve.gradient
        base = a.to(_wide(a, delta))
        grad = paired(grad.to(base.dtype), rows)
        grad_d = gradient(grad, beside(base, rows) + paired(delta, rows), *ctx.parameters)
        of_base = gradient(summed(grad, len(a), rows), base, *ctx.parameters)
        grad_a = summed(grad_d, len(a), rows) - of_base
        return grad_a.to(a.dtype), flat(grad_d.to(delta.dtype), rows), None, None, None


def allow_compilation() -> None:
    """Keep torch's compiler from looking into curves; to be called before functions of rows are compiled.

    Within ``torch.vmap`` it would differentiate the forward pass instead of calling ``backward``, and the step would
    move half as many bytes again. This is no decorator because it imports the compiler, which takes two seconds.
    """
    torch.compiler.allow_in_graph(_apply)


def _apply(a: Tensor, delta: Tensor, rows: int | Tensor, curve: str, *parameters: Any) -> Tensor:
    out: Tensor = _CurveDifference.apply(a, delta, rows, CURVES[curve], parameters)
    return out


def curve_difference(a: Tensor, delta: Tensor, rows: int | Tensor, curve: str, *parameters: Any) -> Tensor:
    """Return the difference of a function of ``CURVES``, in the type of ``delta``, [k, ...].

    ``a`` is [n, ...] of the base, and ``rows`` the row of the base that each difference belongs to.
    """
    change = _apply(a, delta, rows, curve, *parameters) if len(delta) else delta
    return change if active() is None else _with_secant(a, delta, rows, curve, parameters, change)


def _with_secant(
    a: Tensor, delta: Tensor, rows: int | Tensor, curve: str, parameters: tuple[Any, ...], change: Tensor
) -> Tensor:
    base, d, change = beside(a.detach(), rows), paired(delta, rows), paired(change, rows)
    if curve == "norm":
        c, _, r = _norm_of_base(base, *parameters)
        r_new = _norm_of_base(base + d.detach(), *parameters)[2]
        return flat(norm_secant(change, d, c, r, r_new), rows)
    one = torch.ones_like(base)
    return flat(secant(change, d, lambda: CURVES[curve].gradient(one, base, *parameters)), rows)


def _wide(a: Tensor, delta: Tensor) -> torch.dtype:
    return torch.promote_types(torch.promote_types(a.dtype, delta.dtype), torch.float32)


def _alone(a: Tensor, *parameters: float) -> tuple[Tensor, ...]:
    return (a,)


def _relu_difference(d: Tensor, a: Tensor) -> Tensor:
    # This form avoids a sum of nearly equal numbers.
    return torch.maximum(d + a.clamp(max=0), -a.relu())


def _gelu_of_base(a: Tensor) -> tuple[Tensor, ...]:
    """Return a, g, g' = Φ + aφ, g'' / 2 = φ (2 − a²) / 2 and g''' / 6 = φ a (a² − 4) / 6 of GELU."""
    square = a * a
    density = torch.exp(torch.rsub(square, -0.5 * math.log(2 * math.pi), alpha=0.5))
    slope = a * density
    first = _aten.gelu_backward(a.new_ones(()).expand(a.shape), a)
    second = torch.addcmul(density, density, square, value=-0.5)
    return a, F.gelu(a), first, second, torch.addcmul(slope * (-2 / 3), slope, square, value=1 / 6)


LERP_DEVICES = ("cpu",)
"""Where the two forms of GELU's difference are joined by weights. There a choice by a mask takes ten times as long,
because torch uses no vector instructions for it. On a GPU relations are computed at once by ``torch.vmap``, which has
no rules for ``lerp`` in place, and a mask is as fast."""


def _gelu_difference(d: Tensor, a: Tensor, value: Tensor, first: Tensor, second: Tensor, third: Tensor) -> Tensor:
    """Return a Taylor sum where it is closer than the subtraction of two values, and that subtraction elsewhere."""
    near = 1e-4 if d.dtype == torch.float64 else 0.03
    if d.device.type not in LERP_DEVICES:
        series = d * torch.addcmul(first, d, torch.addcmul(second, d, third))
        return torch.where(d.abs() > near, F.gelu(d + a) - value, series)
    # The weight is 1 where the sum is not good enough, and 0 elsewhere; `lerp` then gives one of both to the last bit.
    far = F.hardshrink(d, near).sign_().abs_()
    series = torch.addcmul(first, d, torch.addcmul(second, d, third)).mul_(d)
    return series.lerp_(_aten.gelu_(d + a).sub_(value), far)


def _norm_of_base(a: Tensor, eps: float) -> tuple[Tensor, ...]:
    """Return c = a − mean(a), v = mean(c²) + ε and r = 1 / √v; the norm is c r."""
    square, mean = torch.var_mean(a, -1, correction=0, keepdim=True)
    v = square + eps
    return a - mean, v, v.rsqrt()


def _norm_difference(d: Tensor, c: Tensor, v: Tensor, r: Tensor, eps: float) -> Tensor:
    """Return ``e r' + c (r' − r)`` with e the change of c and r' = 1 / √(v + change), at most 1 / √ε."""
    e = d - d.mean(-1, keepdim=True)
    change = (e * torch.add(e, c, alpha=2)).mean(-1, keepdim=True)
    r_new = (v + change).clamp(min=eps).rsqrt()
    return torch.addcmul(e * r_new, c, change * (r * r_new).square() / (r + r_new), value=-1)


def _norm_gradient(grad: Tensor, x: Tensor, eps: float) -> Tensor:
    shape = [x.shape[-1]]
    _, mean, r = _aten.native_layer_norm(x, shape, None, None, eps)
    out: Tensor = _aten.native_layer_norm_backward(grad, x, shape, mean, r, None, None, [True, False, False])[0]
    return out


CURVES = {
    "gelu": Curve(_gelu_of_base, _gelu_difference, _aten.gelu_backward),
    "relu": Curve(_alone, _relu_difference, lambda grad, x: _aten.threshold_backward(grad, x, 0)),
    "norm": Curve(_norm_of_base, _norm_difference, _norm_gradient),
}


LARGEST_EXPONENT = 30.0  # of e^Δ, far below where single precision overflows


def share_changes(p: Tensor, logits: Tensor, delta: Tensor, dim: int, alive: Tensor | None = None) -> Tensor:
    """Return by how much a softmax's shares change along ``dim``, ``p' − p``, of the shape that all broadcast to.

    ``p`` and ``logits`` are of the base, whose logits change by ``delta``. ``alive`` is false where an entry is gone;
    where none is alive, all shares become zero.
    """
    floor = torch.finfo(delta.dtype).min
    gone = torch.zeros((), dtype=torch.bool, device=delta.device) if alive is None else ~alive
    # Not `broadcast_shapes`, which imports sympy: half a second of a prediction.
    delta, gone, _ = torch.broadcast_tensors(delta, gone, p)
    if not delta.shape[dim]:  # of no entries there is no largest one
        return delta
    # Shares do not change when all logits are shifted. That costs digits: only what would overflow is shifted.
    top = (delta.masked_fill(gone, floor).amax(dim, keepdim=True) - LARGEST_EXPONENT).clamp(min=0).detach()
    m = torch.expm1((delta - top).masked_fill(gone, -torch.inf))
    change = (p * m).sum(dim, keepdim=True)
    precise = p * (m - change) / (1 + change).clamp(min=0.25)
    # Where most of the shares moved, the subtraction does not cancel.
    # Along the last dimension, because a GPU has one program for each column otherwise.
    moved = (logits + delta).masked_fill(gone, floor).transpose(dim, -1)
    direct = torch.softmax(moved, -1).transpose(dim, -1).masked_fill(gone, 0) - p
    found = torch.where(change > -0.5, precise, direct)
    return found if active() is None or alive is not None else share_secant(found, p, delta, dim)
