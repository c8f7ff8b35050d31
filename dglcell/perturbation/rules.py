"""Define what torch functions do to differences: rows of a base, and by how much strains differ from them.

A layer is ordinary torch code on rows. Called with tensors it computes whole states; called with a
``PerturbedTensor`` it computes the base's rows and the strains' differences from them, without ever subtracting two
nearly equal numbers. There is one rule for each torch function, in this file. ``curves.py`` has the formulas of
activations, norms and softmax. With ``a`` the base, ``δ`` the difference and ``g`` the function, a rule gives
``g(a + δ) − g(a)`` to a few units in the last place of ``δ``.

A function without a rule of its own is evaluated as ``g(a + δ) − g(a)`` in float64. That is correct for every
function of rows, loses digits only where ``δ`` is below 1e-12 of ``a``, and is slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree

from dglcell.kernels.rows import take_rows
from dglcell.perturbation.attribution import active, general_secant, halves
from dglcell.perturbation.curves import beside, curve_difference, flat, paired, share_changes

Rule = Callable[..., Any]


class PerturbedTensor:
    """Hold rows of a base and differences of strains from them.

    Attributes:
        base: [n, ...] rows of the base.
        delta: [k, ...] differences, in their own precision; None where no strain differs.
        rows: the row of the base that each difference belongs to: the integer B where row i belongs to base row i // B
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
        if name in CONSTANT:
            return func(*(arg.base if isinstance(arg, PerturbedTensor) else arg for arg in args), **(kwargs or {}))
        if name in LINEAR:
            return _linear_map(func, *args, **(kwargs or {}))
        return _by_float64(func, *args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        found = getattr(Tensor, name)  # an AttributeError names the method
        if callable(found):
            return lambda *args, **kwargs: PerturbedTensor.__torch_function__(found, (), (self, *args), kwargs)
        if isinstance(value := getattr(self.base, name), Tensor):
            raise TypeError(f"rows have no property {name}; take a method or function, such as transpose")
        return value  # such as the device, which strains share

    @property
    def shape(self) -> torch.Size:
        """Return the shape of the base's rows."""
        return self.base.shape

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of the base."""
        return self.base.dtype

    def __add__(self, other: Any) -> PerturbedTensor:
        return _add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> PerturbedTensor:
        return _add(self, _multiply(other, -1))

    def __rsub__(self, other: Any) -> PerturbedTensor:
        return _add(other, _multiply(self, -1))

    def __mul__(self, other: Any) -> PerturbedTensor:
        return _multiply(self, other)

    __rmul__ = __mul__

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

    def unflatten(self, dim: int, sizes: Any) -> PerturbedTensor:
        """Split a dimension, as ``Tensor.unflatten``; a compiler stops at methods that are looked up."""
        return _linear_map(torch.unflatten, self, dim, sizes)

    def spread(self, x: Tensor) -> Tensor:
        """Return the base row of every difference, [k, ...]."""
        if isinstance(self.rows, Tensor):
            return take_rows(x, self.rows)
        return flat(x.unsqueeze(1).expand(-1, self.rows, *x.shape[1:]), self.rows)

    def pair(self, x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """Return base rows and differences in shapes that broadcast, so that the base is computed once."""
        return beside(x, self.rows), paired(delta, self.rows)

    def with_difference(self, base: Tensor, difference: Tensor) -> PerturbedTensor:
        """Return the result of a rule, whose difference has the shape that ``pair`` gives."""
        assert self.delta is not None
        return PerturbedTensor(base, flat(difference, self.rows).to(self.delta.dtype), self.rows)


def _of_parts(parts: Iterable[Any], rows: Any) -> PerturbedTensor:
    base, delta = parts
    return PerturbedTensor(base, delta, rows)


# ``torch.vmap`` goes into base and differences alike.
_pytree.register_pytree_node(
    PerturbedTensor, lambda x: ([x.base, x.delta], x.rows), _of_parts, serialized_type_name="dglcell.PerturbedTensor"
)


# fmt: off
LINEAR = frozenset([
    "sum", "mean", "flatten", "unflatten", "permute", "transpose", "unsqueeze", "squeeze", "split", "chunk", "unbind",
    "narrow", "select", "index_select", "__getitem__", "contiguous", "neg", "stack", "cat", "concat",
])
# fmt: on
"""These functions are linear, and none of them may mix rows or move the first dimension."""

CONSTANT = {"size", "dim", "numel", "new_zeros", "new_ones", "new_full", "zeros_like", "ones_like", "full_like"}
"""These functions read the shape and type of a tensor, and not its values."""


def _linear_map(func: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply a function of LINEAR to one perturbed tensor, or to several in a list."""
    several = isinstance(x, (list, tuple))
    parts = list(x) if several else [x]
    like = next(part for part in parts if isinstance(part, PerturbedTensor))
    parts = [part if isinstance(part, PerturbedTensor) else PerturbedTensor(part, None, like.rows) for part in parts]
    bases, deltas = [part.base for part in parts], None
    out = func(bases if several else bases[0], *args, **kwargs)
    if like.base.dim() == 2 and active() is None:  # several relations come first; scores may be cut
        _check_rows(func, (out if isinstance(out, Tensor) else out[0]).shape[:1] == like.base.shape[:1])
    if any(part.delta is not None for part in parts):
        filled = [_difference(part, like) for part in parts]
        deltas = func(filled if several else filled[0], *args, **kwargs)
    if isinstance(out, Tensor):
        return PerturbedTensor(out, deltas, like.rows)
    return [PerturbedTensor(b, None if deltas is None else deltas[i], like.rows) for i, b in enumerate(out)]


def _check_rows(func: Callable[..., Any], stay: bool) -> None:
    if not stay:
        what = f"{func.__name__} mixes rows, or changes their number"
        raise TypeError(
            f"{what}; row k of a result may depend on row k alone, so take another dimension than the first"
        )


def joined(how: Callable[..., Any], parts: Sequence[Any], dim: int) -> Any:
    """Apply ``torch.cat`` or ``torch.stack`` to tensors or perturbed ones, without a dispatch that stops a compiler."""
    return _linear_map(how, list(parts), dim) if isinstance(parts[0], PerturbedTensor) else how(list(parts), dim)


def _difference(x: PerturbedTensor, like: PerturbedTensor) -> Tensor:
    if x.delta is not None:
        return x.delta
    known = like.delta
    number = len(x.rows) if isinstance(x.rows, Tensor) else len(x.base) * x.rows
    return x.base.new_zeros(number, *x.base.shape[1:], dtype=x.base.dtype if known is None else known.dtype)


def _add(x: Any, y: Any, *, alpha: float = 1) -> PerturbedTensor:
    y = y if alpha == 1 else _multiply(y, alpha)
    if not isinstance(x, PerturbedTensor):
        return PerturbedTensor(x + y.base, y.delta, y.rows)
    if not isinstance(y, PerturbedTensor):
        return PerturbedTensor(x.base + y, x.delta, x.rows)
    if x.delta is None or y.delta is None:
        return PerturbedTensor(x.base + y.base, y.delta if x.delta is None else x.delta, x.rows)
    return PerturbedTensor(x.base + y.base, x.delta + y.delta, x.rows)


def _scaled(delta: Tensor | None, by: Any) -> Tensor | None:
    return None if delta is None else delta * (by.to(delta.dtype) if isinstance(by, Tensor) else by)


def _multiply(x: Any, y: Any) -> Any:
    """Return x·y, whose difference is δx·y + x·δy + δx·δy."""
    if not isinstance(x, PerturbedTensor):
        x, y = y, x
    if not isinstance(x, PerturbedTensor):
        return x * y
    if not isinstance(y, PerturbedTensor):
        return PerturbedTensor(x.base * y, _scaled(x.delta, y), x.rows)
    return _product(torch.mul, x, y)


def _matmul(x: Any, y: Any) -> PerturbedTensor:
    if not isinstance(x, PerturbedTensor):
        # `torch.compile` gives the two sides of `x @ y` in the wrong order where x is perturbed and y is not.
        do = "write torch.matmul(x, weight), not x @ weight, and torch.einsum for other products"
        raise TypeError(f"a product of matrices needs the perturbed rows on its left side; {do}")
    if isinstance(y, PerturbedTensor):
        return _product(torch.matmul, x, y)
    delta = None if x.delta is None else torch.matmul(x.delta, y.to(x.delta.dtype))
    return PerturbedTensor(torch.matmul(x.base, y), delta, x.rows)


def _product(times: Callable[[Tensor, Tensor], Tensor], x: PerturbedTensor, y: PerturbedTensor) -> PerturbedTensor:
    base = times(x.base, y.base)
    if x.delta is None and y.delta is None:
        return PerturbedTensor(base, None, x.rows)
    like = y if x.delta is None else x
    (a, d), (b, e) = x.pair(x.base, _difference(x, like)), y.pair(y.base, _difference(y, like))
    wide = torch.promote_types(a.dtype, d.dtype)
    d, e = d.to(wide), e.to(wide)
    change = times(d, b + e) + times(a, e) if active() is None else halves(times, a, d, b, e)
    return like.with_difference(base, change)


def _addcmul(x: Any, y: Any, z: Any, *, value: float = 1) -> PerturbedTensor:
    return _add(x, _multiply(_multiply(y, z), value) if value != 1 else _multiply(y, z))


def _linear(x: PerturbedTensor, weight: Tensor, bias: Tensor | None = None) -> PerturbedTensor:
    delta = None if x.delta is None else _by_parts(x.delta, weight.to(x.delta.dtype), x.rows)
    return PerturbedTensor(F.linear(x.base, weight, bias), delta, x.rows)


LEAST_ROWS = {"cuda": 1 << 13}
"""Rows from which on, by device, products are computed in as many parts as there are strains. Without them, half of a
step in float32 on an H100 went into gradients of weights over 185,000 rows: such a product has few blocks of results,
each a sum over all rows."""


def _by_parts(x: Tensor, weight: Tensor, rows: Any) -> Tensor:
    least = LEAST_ROWS.get(x.device.type)
    if least is None or isinstance(rows, Tensor) or x.dim() != 2 or len(x) < least:
        return F.linear(x, weight)
    if len(weight) == 1:  # matrix units have nothing to do, and the gradient is one sum over all rows
        return (x * weight).sum(1, keepdim=True)
    # A number of strains divides the number of rows whatever it is, so that no new batch size is compiled anew.
    return torch.bmm(x.unflatten(0, (rows, -1)), weight.T.expand(rows, *weight.T.shape)).flatten(0, 1)


def _einsum(equation: str, x: PerturbedTensor, *tensors: Tensor) -> PerturbedTensor:
    if not isinstance(x, PerturbedTensor) or any(isinstance(one, PerturbedTensor) for one in tensors):
        return _by_float64(torch.einsum, equation, x, *tensors)
    delta = x.delta
    if delta is not None:
        delta = torch.einsum(equation, delta, *(tensor.to(delta.dtype) for tensor in tensors))
    return PerturbedTensor(torch.einsum(equation, x.base, *tensors), delta, x.rows)


def _where(condition: Tensor, x: Any, y: Any) -> PerturbedTensor:
    known = [one for one in (x, y) if isinstance(one, PerturbedTensor)]
    like = next((one for one in known if one.delta is not None), known[0])
    base_x, base_y = (one.base if isinstance(one, PerturbedTensor) else one for one in (x, y))
    base: Tensor = torch.where(condition, base_x, base_y)
    if like.delta is None:
        return PerturbedTensor(base, None, like.rows)
    if condition.dim() == base.dim() and len(condition) == len(base):
        condition = like.spread(condition)
    delta_x, delta_y = (_difference(one, like) if isinstance(one, PerturbedTensor) else 0.0 for one in (x, y))
    return PerturbedTensor(base, torch.where(condition, delta_x, delta_y), like.rows)


def _dropout(x: PerturbedTensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> PerturbedTensor:
    """Apply one mask to the base and all strains, so that a strain's state is still exactly base plus difference."""
    if not training or p == 0:
        return x
    return _multiply(x, PerturbedTensor(F.dropout(torch.ones_like(x.base), p), None, x.rows))


def _curve(x: PerturbedTensor, name: str, *parameters: Any) -> Tensor | None:
    return None if x.delta is None else curve_difference(x.base, x.delta, x.rows, name, *parameters)


def _relu(x: PerturbedTensor, inplace: bool = False) -> PerturbedTensor:
    return PerturbedTensor(F.relu(x.base), _curve(x, "relu"), x.rows)


def _gelu(x: PerturbedTensor, approximate: str = "none") -> PerturbedTensor:
    if approximate != "none":
        return _by_float64(F.gelu, x, approximate=approximate)
    return PerturbedTensor(F.gelu(x.base), _curve(x, "gelu"), x.rows)


def _layer_norm(
    x: PerturbedTensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> PerturbedTensor:
    base = F.layer_norm(x.base, list(normalized_shape), weight, bias, eps)
    delta = _curve(x, "norm", eps)
    return PerturbedTensor(base, delta if weight is None else _scaled(delta, weight), x.rows)


def _softmax(x: PerturbedTensor, dim: int, *args: Any, **kwargs: Any) -> PerturbedTensor:
    """Compute ``p' − p = p (m − Σ p m) / (1 + Σ p m)``, with p the base's shares and m = e^Δ − 1."""
    _check_rows(torch.softmax, dim not in (0, -x.base.dim()))
    share = torch.softmax(x.base, dim)
    if x.delta is None:
        return PerturbedTensor(share, None, x.rows)
    p, delta = x.pair(share, x.delta)
    axis = dim if dim < 0 else dim - x.base.dim()
    return x.with_difference(share, share_changes(p, x.pair(x.base, x.delta)[0], delta.to(p.dtype), axis))


def _by_float64(func: Callable[..., Any], *args: Any, **kwargs: Any) -> PerturbedTensor:
    kwargs.pop("inplace", None)
    if re.fullmatch(r".*[^_]_|(feature_)?alpha_dropout|dropout[123]d|rrelu", func.__name__):  # in place, or random
        what = f"{func.__name__} writes in place or draws at random, which differences do not allow"
        raise TypeError(f"{what}; take a function that returns a new tensor, or nn.Dropout")
    values = [*args, *kwargs.values()]
    known = [x for x in values if isinstance(x, PerturbedTensor)]
    like = next((x for x in known if x.delta is not None), known[0])

    def call(inputs: Sequence[Any]) -> Tensor:
        named = dict(zip(kwargs, inputs[len(args) :], strict=True))
        out: Tensor = func(*inputs[: len(args)], **named)
        return out

    base: Any = call([x.base if isinstance(x, PerturbedTensor) else x for x in values])
    if not isinstance(base, Tensor) or not base.is_floating_point():
        what = f"{func.__name__} gives no single tensor of real numbers, which alone has a difference"
        raise TypeError(f"{what}; take another function, such as relu, clamp or amax")
    if like.delta is None:
        return PerturbedTensor(base, None, like.rows)
    # The same wide tensors are used before and after, so that their gradients are subtracted while they are wide.
    before = [_widened(x) for x in values]
    deltas = [x.delta if isinstance(x, PerturbedTensor) else None for x in values]
    after = [row if delta is None else row + delta for row, delta in zip(before, deltas, strict=True)]
    delta = call(after) - call(before)
    if active() is not None:
        delta = general_secant(func.__name__, call, before, deltas, delta)
    return PerturbedTensor(base, delta.to(like.delta.dtype), like.rows)


def _widened(x: Any) -> Any:
    """Convert to float64; a perturbed tensor becomes its base rows beside its differences."""
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
    "relu": _relu,
    "gelu": _gelu,
    "layer_norm": _layer_norm,
    "softmax": _softmax,
    "where": _where,
}  # of torch functions that are not in LINEAR

for _name in ("add", "mul", "matmul"):
    RULES[f"__{_name}__"] = RULES[_name]
RULES |= {"__radd__": _add, "__rmul__": _multiply}
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):  # which Python compares by itself, or not at all
    setattr(PerturbedTensor, f"__{_name}__", lambda *both, by=_name: _by_float64(getattr(torch, by), *both))


def as_difference(x_B: Tensor) -> Tensor:
    """Return numbers of strains, zero in the wild type, [B, …]; in attribution mode as a ``PerturbedTensor``."""
    return x_B if active() is None else cast(Tensor, PerturbedTensor(torch.zeros_like(x_B), x_B, 1))


def from_source(name: str, x_B: Tensor, of_wild_type: float | Callable[[Tensor], Tensor] = 0.0) -> Tensor:
    """Return numbers of strains, [B, …]; in attribution mode, unless they have sources, their differences are one.

    ``of_wild_type`` takes their place in the wild type, or is a function of them that returns what does.
    """
    attribution = active()
    if attribution is None or isinstance(x_B, PerturbedTensor):
        return x_B
    base_B = torch.zeros_like(x_B) + (of_wild_type(x_B) if callable(of_wild_type) else of_wild_type)
    source = (x_B - base_B).detach().requires_grad_()
    attribution.sources.append((name, source))
    return cast(Tensor, PerturbedTensor(base_B, source, 1))
