"""What torch functions do to differences: rows of a base, and by how much strains differ from them.

A layer is ordinary torch code on rows. Called with tensors it computes whole states; called with a
``PerturbedTensor`` it computes the base's rows and the strains' differences from them, without ever subtracting two
nearly equal numbers. There is one rule for each torch function, in this file. With ``a`` the base, ``δ`` the
difference and ``g`` the function, a rule gives ``g(a + δ) − g(a)`` to a few units in the last place of ``δ``.

A function without a rule of its own is evaluated as ``g(a + δ) − g(a)`` in float64. That is correct for every
function of rows, loses digits only where ``δ`` is below 1e-12 of ``a``, and is slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.kernels.rows import add_rows

Rule = Callable[..., Any]


class PerturbedTensor:
    """Rows of a base and differences of strains from them.

    Attributes:
        base: [n, ...] rows of the base.
        delta: [k, ...] differences, in their own precision; None where no strain differs.
        rows: to which row of the base a difference belongs: the integer B where row i belongs to base row i // B
            (k = n · B), or [k] int64 rows of the base.
    """

    def __init__(self, base: Tensor, delta: Tensor | None, rows: int | Tensor) -> None:
        self.base, self.delta, self.rows = base, delta, rows

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Apply the rule of a torch function."""
        name = func.__name__
        if name in RULES:
            return RULES[name](*args, **(kwargs or {}))
        if name in LINEAR:
            return _linear_map(func, *args, **(kwargs or {}))
        return _by_float64(func, *args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        method = getattr(Tensor, name)  # an AttributeError names the method
        return lambda *args, **kwargs: PerturbedTensor.__torch_function__(method, (), (self, *args), kwargs)

    @property
    def shape(self) -> torch.Size:
        """Of the base's rows."""
        return self.base.shape

    @property
    def dtype(self) -> torch.dtype:
        """Of the base."""
        return self.base.dtype

    def __add__(self, other: Any) -> PerturbedTensor:
        return _add(self, other)

    def __radd__(self, other: Any) -> PerturbedTensor:
        return _add(other, self)

    def __sub__(self, other: Any) -> PerturbedTensor:
        return _add(self, _multiply(other, -1))

    def __rsub__(self, other: Any) -> PerturbedTensor:
        return _add(other, _multiply(self, -1))

    def __mul__(self, other: Any) -> PerturbedTensor:
        return _multiply(self, other)

    def __rmul__(self, other: Any) -> PerturbedTensor:
        return _multiply(other, self)

    def __neg__(self) -> PerturbedTensor:
        return _multiply(self, -1)

    def __truediv__(self, other: Any) -> PerturbedTensor:
        return _by_float64(torch.div, self, other) if isinstance(other, PerturbedTensor) else _multiply(self, 1 / other)

    def __rtruediv__(self, other: Any) -> PerturbedTensor:
        return _multiply(_by_float64(torch.reciprocal, self), other)

    def __pow__(self, other: Any) -> PerturbedTensor:
        return _by_float64(torch.pow, self, other)

    def __matmul__(self, other: Any) -> PerturbedTensor:
        return _matmul(self, other)

    def __getitem__(self, where: Any) -> PerturbedTensor:
        return _linear_map(Tensor.__getitem__, self, where)

    def spread(self, x: Tensor) -> Tensor:
        """[k, ...] base rows beside the differences that belong to them."""
        if isinstance(self.rows, int):
            return x.unsqueeze(1).expand(-1, self.rows, *x.shape[1:]).flatten(0, 1)
        return take_rows(x, self.rows)

    def pair(self, x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Base rows and differences in shapes that broadcast, so that what depends on the base is computed once."""
        if isinstance(self.rows, int):
            return x.unsqueeze(1), delta.unflatten(0, (x.shape[0], self.rows))
        return take_rows(x, self.rows), delta

    def with_difference(self, base: Tensor, paired: Tensor) -> PerturbedTensor:
        """The result of a rule, whose difference has the shape that ``pair`` gives."""
        assert self.delta is not None
        flat = paired.flatten(0, 1) if isinstance(self.rows, int) else paired
        return PerturbedTensor(base, flat.to(self.delta.dtype), self.rows)


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """``table[index]`` along the first dimension, with a backward pass that adds in order.

    Args:
        table: [S, ...].
        index: [K] int64.
    """
    out: Tensor = _TakeRows.apply(table, index)
    return out


class _TakeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.shape = table.shape
        return table.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        out = grad.new_zeros(ctx.shape, dtype=torch.promote_types(grad.dtype, torch.float32))
        width = ctx.shape[1:].numel()
        add_rows(out.view(-1, width), ctx.saved_tensors[0], grad.reshape(-1, width))
        return out.to(grad.dtype), None


# Functions whose difference is the same function of the difference.


LINEAR = frozenset(
    [
        "sum",
        "mean",
        "flatten",
        "unflatten",
        "permute",
        "transpose",
        "unsqueeze",
        "squeeze",
        "split",
        "chunk",
        "unbind",
        "narrow",
        "select",
        "index_select",
        "__getitem__",
        "contiguous",
        "neg",
        "stack",
        "cat",
        "concat",
    ]
)
"""By name. None of them may mix rows or move the first dimension."""


def _linear_map(func: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of LINEAR: of one perturbed tensor, or of several in a list."""
    parts = list(x) if isinstance(x, (list, tuple)) else [x]
    like = next(part for part in parts if isinstance(part, PerturbedTensor))
    parts = [part if isinstance(part, PerturbedTensor) else PerturbedTensor(part, None, like.rows) for part in parts]
    several = isinstance(x, (list, tuple))
    bases = [part.base for part in parts]
    out = func(bases if several else bases[0], *args, **kwargs)
    if all(part.delta is None for part in parts):
        deltas = None
    else:
        filled = [_difference(part, like) for part in parts]
        deltas = func(filled if several else filled[0], *args, **kwargs)
    if isinstance(out, Tensor):
        return PerturbedTensor(out, deltas, like.rows)
    return [PerturbedTensor(b, None if deltas is None else deltas[i], like.rows) for i, b in enumerate(out)]


def _difference(x: PerturbedTensor, like: PerturbedTensor) -> Tensor:
    """The differences of ``x``, zeros where it has none."""
    if x.delta is not None:
        return x.delta
    known = like.delta
    number = len(x.base) * x.rows if isinstance(x.rows, int) else len(x.rows)
    return x.base.new_zeros(number, *x.base.shape[1:], dtype=x.base.dtype if known is None else known.dtype)


# Sums and products.


def _add(x: Any, y: Any, *, alpha: float = 1) -> PerturbedTensor:
    if alpha != 1:
        y = _multiply(y, alpha)
    if not isinstance(x, PerturbedTensor):
        return PerturbedTensor(x + y.base, y.delta, y.rows)
    if not isinstance(y, PerturbedTensor):
        return PerturbedTensor(x.base + y, x.delta, x.rows)
    if x.delta is None or y.delta is None:
        return PerturbedTensor(x.base + y.base, y.delta if x.delta is None else x.delta, x.rows)
    return PerturbedTensor(x.base + y.base, x.delta + y.delta, x.rows)


def _scaled(delta: Tensor | None, by: Any) -> Tensor | None:
    """Differences times a number or parameters."""
    if delta is None:
        return None
    return delta * (by.to(delta.dtype) if isinstance(by, Tensor) else by)


def _multiply(x: Any, y: Any) -> Any:
    """x·y, whose difference is δx·y + x·δy + δx·δy."""
    if not isinstance(x, PerturbedTensor):
        x, y = y, x
    if not isinstance(x, PerturbedTensor):
        return x * y
    if not isinstance(y, PerturbedTensor):
        return PerturbedTensor(x.base * y, _scaled(x.delta, y), x.rows)
    return _product(torch.mul, x, y)


def _matmul(x: Any, y: Any) -> PerturbedTensor:
    if isinstance(x, PerturbedTensor) and isinstance(y, PerturbedTensor):
        return _product(torch.matmul, x, y)
    if isinstance(x, PerturbedTensor):
        return PerturbedTensor(
            x.base @ y, None if x.delta is None else torch.matmul(x.delta, y.to(x.delta.dtype)), x.rows
        )
    return PerturbedTensor(x @ y.base, None if y.delta is None else torch.matmul(x.to(y.delta.dtype), y.delta), y.rows)


def _product(times: Callable[[Tensor, Tensor], Tensor], x: PerturbedTensor, y: PerturbedTensor) -> PerturbedTensor:
    """A bilinear function of two perturbed tensors."""
    base = times(x.base, y.base)
    if x.delta is None and y.delta is None:
        return PerturbedTensor(base, None, x.rows)
    like = y if x.delta is None else x
    (a, d), (b, e) = x.pair(x.base, _difference(x, like)), y.pair(y.base, _difference(y, like))
    wide = torch.promote_types(a.dtype, d.dtype)
    d, e = d.to(wide), e.to(wide)
    return like.with_difference(base, times(d, b + e) + times(a, e))


def _addcmul(x: Any, y: Any, z: Any, *, value: float = 1) -> PerturbedTensor:
    return _add(x, _multiply(_multiply(y, z), value) if value != 1 else _multiply(y, z))


def _linear(x: PerturbedTensor, weight: Tensor, bias: Tensor | None = None) -> PerturbedTensor:
    delta = None if x.delta is None else F.linear(x.delta, weight.to(x.delta.dtype))
    return PerturbedTensor(F.linear(x.base, weight, bias), delta, x.rows)


def _einsum(equation: str, x: PerturbedTensor, *tensors: Tensor) -> PerturbedTensor:
    """Linear in its first operand, the only perturbed one."""
    delta = x.delta
    if delta is not None:
        delta = torch.einsum(equation, delta, *(tensor.to(delta.dtype) for tensor in tensors))
    return PerturbedTensor(torch.einsum(equation, x.base, *tensors), delta, x.rows)


def _dropout(x: PerturbedTensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> PerturbedTensor:
    """One mask for the base and all strains: so a strain's state is still base plus difference, exactly."""
    if not training or p == 0:
        return x
    return _multiply(x, PerturbedTensor(F.dropout(torch.ones_like(x.base), p), None, x.rows))


# Activations: g(a + δ) − g(a).


def _pointwise(difference: Callable[..., Tensor], function: Callable[..., Tensor]) -> Rule:
    def rule(x: PerturbedTensor, *args: Any, inplace: bool = False, **kwargs: Any) -> PerturbedTensor:
        base = function(x.base, *args, **kwargs)
        if x.delta is None:
            return PerturbedTensor(base, None, x.rows)
        a, delta = x.pair(x.base, x.delta)
        return x.with_difference(
            base, difference(a, delta.to(torch.promote_types(a.dtype, delta.dtype)), *args, **kwargs)
        )

    return rule


class _LeakyReluDifference(torch.autograd.Function):
    """In few passes over memory: autograd through ``maximum`` and ``where`` takes three times as many."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, d: Tensor, slope: float) -> Tensor:
        ctx.save_for_backward(a, d)
        ctx.slope = slope
        # relu(a + δ) − relu(a), without a sum of nearly equal numbers.
        out = torch.maximum(d + a.clamp(max=0), -a.relu())
        return out * (1 - slope) + slope * d

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        a, d = ctx.saved_tensors
        grad_d = torch.ops.aten.leaky_relu_backward(grad, a + d, ctx.slope, False)
        before = torch.ops.aten.leaky_relu_backward(grad.sum_to_size(a.shape), a, ctx.slope, False)
        return grad_d.sum_to_size(a.shape) - before, grad_d, None


def _relu_difference(a: Tensor, d: Tensor) -> Tensor:
    return _leaky_relu_difference(a, d, 0.0)


def _leaky_relu_difference(a: Tensor, d: Tensor, negative_slope: float = 0.01) -> Tensor:
    out: Tensor = _LeakyReluDifference.apply(a, d, negative_slope)
    return out


def _tanh_difference(a: Tensor, d: Tensor) -> Tensor:
    return d.tanh() * (1 - a.tanh() * (a + d).tanh())


def _sigmoid_difference(a: Tensor, d: Tensor) -> Tensor:
    # σ(a + δ) (1 − σ(a)) (1 − e^−δ); antisymmetric, so that the exponential stays below 1, with a slope at δ = 0.
    rises = d > 0
    less = torch.expm1(torch.where(rises, -d, d))
    up, down = torch.where(rises, a + d, a), torch.where(rises, a, a + d)
    return torch.where(rises, -less, less) * up.sigmoid() * (-down).sigmoid()


def _silu_difference(a: Tensor, d: Tensor) -> Tensor:
    return d * (a + d).sigmoid() + a * _sigmoid_difference(a, d)


def _elu_difference(a: Tensor, d: Tensor, alpha: float = 1.0) -> Tensor:
    up = _relu_difference(a, d)  # of the positive part; the rest is that of the negative part
    low, change = a.clamp(max=0), d - up
    return up + alpha * low.exp() * torch.expm1(change)


class _GeluDifference(torch.autograd.Function):
    """g(a + δ) − g(a) of GELU: a Taylor sum for small δ, whose derivatives at the base are shared by all strains.

    g' = Φ + aφ, g'' = φ(2 − a²), g''' = φ a(a² − 4), with Φ and φ of the standard normal distribution. Gradients are
    g'(a + δ) for δ and g'(a + δ) − g'(a) for a, in the same two forms.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, d: Tensor) -> Tensor:
        ctx.save_for_backward(a, d)
        first, second, third, _ = _gelu_derivatives(a)
        series = d * (first + d * (second / 2 + d * (third / 6)))
        return torch.where(d.abs() < _taylor_radius(d.dtype), series, F.gelu(a + d) - F.gelu(a))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, d = ctx.saved_tensors
        first, second, third, fourth = _gelu_derivatives(a)
        series = d * (second + d * (third / 2 + d * (fourth / 6)))
        x = a + d
        direct = 0.5 * (1 + torch.erf(x * math.sqrt(0.5))) + x * _density(x) - first
        slope_change = torch.where(d.abs() < _taylor_radius(d.dtype), series, direct)
        return (grad * slope_change).sum_to_size(a.shape), grad * (first + slope_change)


def _density(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x * x) * (0.5 * math.sqrt(2 / math.pi))


def _gelu_derivatives(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    density, square = _density(a), a * a
    first = 0.5 * (1 + torch.erf(a * math.sqrt(0.5))) + a * density
    return first, density * (2 - square), density * a * (square - 4), density * (square * (7 - square) - 4)


def _taylor_radius(dtype: torch.dtype) -> float:
    """Up to which |δ| the Taylor sum is closer than the subtraction of two values."""
    return 1e-4 if dtype == torch.float64 else 0.03


def _gelu_difference(a: Tensor, d: Tensor, approximate: str = "none") -> Tensor:
    if approximate != "none":
        return (F.gelu(a.double() + d, approximate=approximate) - F.gelu(a.double(), approximate=approximate)).to(d)
    out: Tensor = _GeluDifference.apply(a, d)
    return out


# Norms and softmax.


def _layer_norm(
    x: PerturbedTensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> PerturbedTensor:
    """With c = a − mean(a), e = δ − mean(δ), s² = var(a) + ε: ``w (e / s' − c Δv / (s s' (s + s')))``."""
    base = F.layer_norm(x.base, list(normalized_shape), weight, bias, eps)
    if x.delta is None:
        return PerturbedTensor(base, None, x.rows)
    a, delta = x.pair(x.base, x.delta)
    delta = delta.to(torch.promote_types(a.dtype, delta.dtype))
    c, e = a - a.mean(-1, keepdim=True), delta - delta.mean(-1, keepdim=True)
    return x.with_difference(base, _normed(c, e, weight, eps))


def _rms_norm(
    x: PerturbedTensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> PerturbedTensor:
    base = F.rms_norm(x.base, list(normalized_shape), weight, eps)
    if x.delta is None:
        return PerturbedTensor(base, None, x.rows)
    a, delta = x.pair(x.base, x.delta)
    delta = delta.to(torch.promote_types(a.dtype, delta.dtype))
    return x.with_difference(base, _normed(a, delta, weight, torch.finfo(a.dtype).eps if eps is None else eps))


def _normed(c: Tensor, e: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """By how much ``w c / √(mean(c²) + ε)`` differs for c + e."""
    out: Tensor = _NormDifference.apply(c, e, eps)
    return out if weight is None else out * weight


class _NormDifference(torch.autograd.Function):
    """``(c + e) r' − c r`` with r = 1 / √(mean(c²) + ε) and r' the same of c + e: e r' + c (r' − r).

    The gradient of a normed row x r is ``r g − x r³ mean(g x)``: for e that of c + e, for c the difference of both,
    in which nothing cancels either.
    """

    @staticmethod
    def forward(ctx: Any, c: Tensor, e: Tensor, eps: float) -> Tensor:
        ctx.save_for_backward(c, e)
        ctx.eps = eps
        _, r_new, change = _inverse_norms(c, e, eps)
        return e * r_new + c * change

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        c, e = ctx.saved_tensors
        r, r_new, change = _inverse_norms(c, e, ctx.eps)
        of_base, of_change = (grad * c).mean(-1, keepdim=True), (grad * e).mean(-1, keepdim=True)
        cube, cubes = r_new * r_new * r_new, change * (r_new * r_new + r_new * r + r * r)
        pull = cube * (of_base + of_change)
        grad_e = grad * r_new - (c + e) * pull
        grad_c = grad * change - e * pull - c * (cube * of_change + cubes * of_base)
        return grad_c.sum_to_size(c.shape), grad_e.sum_to_size(e.shape), None


def _inverse_norms(c: Tensor, e: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """r, r' and r' − r."""
    square = (c * c).mean(-1, keepdim=True) + eps
    change = (e * (2 * c + e)).mean(-1, keepdim=True)
    r, r_new = square.rsqrt(), (square + change).clamp(min=eps).rsqrt()
    return r, r_new, -change * (r * r_new).square() / (r + r_new)


def _softmax(x: PerturbedTensor, dim: int, *args: Any, **kwargs: Any) -> PerturbedTensor:
    """With p the base's shares and m = e^Δ − 1: ``p' − p = p (m − Σ p m) / (1 + Σ p m)``."""
    share = torch.softmax(x.base, dim)
    if x.delta is None:
        return PerturbedTensor(share, None, x.rows)
    p, delta = x.pair(share, x.delta)
    axis = dim if dim < 0 else dim - x.base.dim()
    return x.with_difference(share, share_changes(p, x.pair(x.base, x.delta)[0], delta.to(p.dtype), axis))


LARGEST_EXPONENT = 30.0
"""Of e^Δ: far below where single precision overflows."""


def share_changes(p: Tensor, logits: Tensor, delta: Tensor, dim: int, alive: Tensor | None = None) -> Tensor:
    """By how much a softmax's shares change.

    Args:
        p: the base's shares.
        logits: the base's.
        delta: by how much the logits differ.
        dim: along which shares sum to one, negative.
        alive: bool, false where an entry is gone; optional. Where none is alive, all shares become zero.

    Returns:
        ``p' − p``, of the shape that all broadcast to.
    """
    shape = torch.broadcast_shapes(p.shape, delta.shape, () if alive is None else alive.shape)
    floor = torch.finfo(delta.dtype).min
    gone = torch.zeros(shape, dtype=torch.bool, device=delta.device) if alive is None else (~alive).expand(shape)
    delta = delta.expand(shape)
    # Shares do not change when all logits are shifted. That costs digits: only what would overflow is shifted.
    top = (delta.masked_fill(gone, floor).amax(dim, keepdim=True) - LARGEST_EXPONENT).clamp(min=0).detach()
    m = torch.expm1((delta - top).masked_fill(gone, -torch.inf))
    change = (p * m).sum(dim, keepdim=True)
    precise = p * (m - change) / (1 + change).clamp(min=0.25)
    # Where most of the shares moved, nothing cancels.
    direct = torch.softmax((logits + delta).masked_fill(gone, floor), dim).masked_fill(gone, 0) - p
    return torch.where(change > -0.5, precise, direct)


def _by_float64(func: Callable[..., Any], *args: Any, **kwargs: Any) -> PerturbedTensor:
    """A function of rows without a rule of its own; see the module's docstring."""
    values = [*args, *kwargs.values()]
    known = [x for x in values if isinstance(x, PerturbedTensor)]
    like = next((x for x in known if x.delta is not None), known[0])

    def call(inputs: Sequence[Any]) -> Tensor:
        named = dict(zip(kwargs, inputs[len(args) :], strict=True))
        out: Tensor = func(*inputs[: len(args)], **named)
        return out

    base = call([x.base if isinstance(x, PerturbedTensor) else x for x in values])
    if like.delta is None:
        return PerturbedTensor(base, None, like.rows)
    # The same wide tensors before and after, so that the gradients of both are subtracted while they are wide.
    before = [_widened(x) for x in values]
    after = [
        row + x.delta if isinstance(x, PerturbedTensor) and x.delta is not None else row
        for x, row in zip(values, before, strict=True)
    ]
    return PerturbedTensor(base, (call(after) - call(before)).to(like.delta.dtype), like.rows)


def _widened(x: Any) -> Any:
    """In float64; a perturbed tensor's base beside its differences."""
    if isinstance(x, PerturbedTensor):
        return x.spread(x.base).double()
    return x.double() if isinstance(x, Tensor) and x.is_floating_point() else x


RULES: dict[str, Rule] = {
    "add": _add,
    "sub": lambda x, y, alpha=1: _add(x, _multiply(y, -alpha)),
    "mul": _multiply,
    "matmul": _matmul,
    "addcmul": _addcmul,
    "linear": _linear,
    "einsum": _einsum,
    "dropout": _dropout,
    "relu": _pointwise(_relu_difference, F.relu),
    "leaky_relu": _pointwise(_leaky_relu_difference, F.leaky_relu),
    "tanh": _pointwise(_tanh_difference, torch.tanh),
    "sigmoid": _pointwise(_sigmoid_difference, torch.sigmoid),
    "silu": _pointwise(_silu_difference, F.silu),
    "elu": _pointwise(_elu_difference, F.elu),
    "gelu": _pointwise(_gelu_difference, F.gelu),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "softmax": _softmax,
}
"""By name of the torch function, for functions that are not in LINEAR."""

for _name, _rule in list(RULES.items()):
    RULES.update({f"__{_name}__": _rule, f"__r{_name}__": _rule} if _name in ("add", "mul", "matmul") else {})
