"""Apply a chain of row modules to differences in one Triton kernel, for all relations of a layer at once.

A layer's rows go through Linear, activation, Linear, norm, activation, once for each relation. One operation after the
other, each of them reads and writes all rows. Here the rows of a node are read once, stay in registers through the
whole chain and through the sum over relations, and are computed again in the backward pass. The base's rows go through
kernels of the same chain, in single precision.

The text of the kernels is put together from the layer's own torch modules: one line for a module, in each of four
kernels, that calls a function of ``loops_triton``. The base's kernels keep the rows before every module that is not
linear; those of the differences read them, because such a module's difference depends on them.
"""

from __future__ import annotations

import importlib.util
import linecache
import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LINEAR, NORM, GELU, RELU = "linear", "norm", "gelu", "relu"
CURVED = (NORM, GELU, RELU)
WEIGHTED = (LINEAR, NORM)

Kinds = tuple[str, ...]

WIDTHS = (16, 32, 64)
"""Rows this wide fit into registers, as their weights into shared memory, and are as wide as matrix units want them."""

NODES = 32
"""Nodes whose rows of the base a program computes at once."""

PROGRAMS = 792
"""Most programs that share the nodes in the backward pass: three rounds of two for each processor of an H100."""


class Step(NamedTuple):
    """Describe one module of a chain."""

    kind: str  #: LINEAR, NORM, GELU or RELU
    name: str  #: the module's name
    eps: float = 0.0  #: of a norm


def steps_of(modules: Iterable[tuple[str, nn.Module]], width: int) -> list[Step] | None:
    """Return the steps of named modules, applied in turn to rows of a width; None where no kernel knows one."""
    steps: list[Step] = []
    for name, module in modules:
        if isinstance(module, nn.Identity) or (isinstance(module, nn.Dropout) and not (module.p and module.training)):
            continue
        if type(module) is nn.Linear and (module.in_features, module.out_features) == (width, width):
            if module.bias is None or (steps and steps[-1].kind == LINEAR):  # the rows between two would not be kept
                return None
            steps.append(Step(LINEAR, name))
        elif type(module) is nn.LayerNorm and module.normalized_shape == (width,) and module.bias is not None:
            steps.append(Step(NORM, name, module.eps))
        elif type(module) is nn.GELU and module.approximate == "none":
            steps.append(Step(GELU, name))
        elif type(module) is nn.ReLU:
            steps.append(Step(RELU, name))
        else:
            return None
    return steps if width in WIDTHS else None


Options = dict[str, int | None]


def options(warps: int, stages: int, registers: int | None = None) -> Options:
    """Return the options of a launch: warps that share a tile, stages of the pipeline, and registers of a thread."""
    return {"num_warps": warps, "num_stages": stages, "maxnreg": registers}


def strains_of_tile(strains: int, dtype: torch.dtype, *, backward: bool) -> int:
    """Return for how many strains of a node a program computes: few empty rows, and no registers that spill."""
    size = min((32, 16), key=lambda size: -(-strains // size) * size)
    return 16 if backward and dtype == torch.float32 else size


DEVICES: tuple[str, ...] = ("cuda",)
"""Types of devices on which rows are computed so."""


@cache
def _triton_runs(device: torch.device) -> bool:
    """Return whether Triton is there, and a GPU is one of NVIDIA with matrix units for bfloat16."""
    if importlib.util.find_spec("triton") is None:
        return False
    return device.type != "cuda" or (torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0))


def fits(steps: Sequence[Step], width: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether the kernels compute differences of a type on a device: their tiles fit into its shared memory."""
    known = dtype in (torch.float32, torch.bfloat16)  # of differences; the base is in single precision
    if not known or device.type not in DEVICES or not _triton_runs(device):
        return False
    products = sum(step.kind == LINEAR for step in steps)
    # As compiled for an H100: bytes of the base's backward pass, and of that of differences in single precision.
    most = max(8 * (products + 1), 45 if dtype == torch.float32 and products < 3 else 0) * width**2
    return most <= _shared_memory(device)


@cache
def _shared_memory(device: torch.device) -> float:
    from triton.runtime import driver

    if device.type != "cuda":  # Triton's interpreter
        return math.inf
    return int(driver.active.utils.get_device_properties(device.index or 0)["max_shared_mem"])


# The text of the kernels.


def _function(name: str, arguments: Iterable[str], body: Iterable[str]) -> str:
    return "\n".join([f"def {name}({', '.join(arguments)}):", *_indented(body)])


def _indented(lines: Iterable[str], depth: int = 1) -> list[str]:
    return ["    " * depth + line for line in lines]


def _named(words: str, kinds: Kinds, among: Sequence[str]) -> list[str]:
    return [f"{word}{i}" for word in words.split() for i, kind in enumerate(kinds) if kind in among]


def _eps(kinds: Kinds) -> list[str]:
    return [f"eps{i}: tl.constexpr" for i, kind in enumerate(kinds) if kind == NORM]


# The base's rows.

_OF_NODES = [
    "there = (nodes < N)[:, None]",
    "own = nodes[:, None] * H + columns[None, :]",
    "rows = r * N * H + own",
    "x_rows = tl.load(x + own, mask=there, other=0)",
]


def _base_forward(kinds: Kinds) -> str:
    arguments = ["x", "received", "scale", "out", *_named("weight bias", kinds, WEIGHTED)]
    arguments += [*_named("base", kinds, CURVED), "N, BN: tl.constexpr, H: tl.constexpr", *_eps(kinds)]
    body = [
        "r = tl.program_id(1).to(tl.int64)",
        "nodes = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)",
        "columns = tl.arange(0, H)",
        "across = columns[None, :] * H + columns[:, None]",
        *_OF_NODES,
        "a = tl.load(received + rows, mask=there, other=0) + tl.load(scale + r) * x_rows",
    ]
    for i, kind in enumerate(kinds):
        if kind == LINEAR:
            body.append(f"a = product(a, tl.load(weight{i} + r * H * H + across))")
            body.append(f"a += tl.load(bias{i} + r * H + columns)[None, :]")
            continue
        body.append(f"tl.store(base{i} + rows, a, mask=there)")
        if kind == NORM:
            body.append(f"gamma{i} = tl.load(weight{i} + r * H + columns)")
            body.append(f"beta{i} = tl.load(bias{i} + r * H + columns)")
        body.append(f"a = {_rows_after(i, kind, 'a')}")
    return _function("base_forward", arguments, [*body, "tl.store(out + rows, a, mask=there)"])


def _rows_after(i: int, kind: str, rows: str) -> str:
    if kind == NORM:
        return f"norm_rows({rows}, eps{i}, H) * gamma{i}[None, :] + beta{i}[None, :]"
    return f"{kind}_rows({rows})"


def _base_backward(kinds: Kinds) -> str:
    arguments = ["x", "received", "scale", "grad", "of_rows", "of_scale", *_named("weight bias", kinds, WEIGHTED)]
    arguments += [*_named("base of_base", kinds, CURVED), *_named("of_weight of_bias", kinds, WEIGHTED)]
    arguments += ["N, SUMMED: tl.constexpr, BN: tl.constexpr, H: tl.constexpr", *_eps(kinds)]
    before, back, after = [], [], []
    for i, kind in reversed(list(enumerate(kinds))):
        if kind in WEIGHTED:
            before.append(f"s{i} = tl.zeros((H,), tl.float32)")
            after.append(f"tl.store(of_bias{i} + place * H + columns, s{i})")
            back.append(f"s{i} += tl.sum(g, 0)")
        if kind == LINEAR:
            before += [f"w{i} = tl.load(weight{i} + r * H * H + square)", f"t{i} = tl.zeros((H, H), tl.float32)"]
            after.append(f"tl.store(of_weight{i} + place * H * H + square, t{i})")
            given = "tl.load(received + rows, mask=there, other=0) + scale_r * x_rows"
            if i:
                back.append(f"a{i - 1} = tl.load(base{i - 1} + rows, mask=there, other=0)")
                given = _rows_after(i - 1, kinds[i - 1], f"a{i - 1}")
            back += [f"t{i} = weight_gradient({given}, g, t{i})", f"g = product(g, w{i})"]
            continue
        if i + 1 == len(kinds) or kinds[i + 1] != LINEAR:
            back.append(f"a{i} = tl.load(base{i} + rows, mask=there, other=0)")
        if kind == NORM:
            before.append(f"gamma{i} = tl.load(weight{i} + r * H + columns)")
            before.append(f"beta{i} = tl.load(bias{i} + r * H + columns)")
            before.append(f"t{i} = tl.zeros((H,), tl.float32)")
            after.append(f"tl.store(of_weight{i} + place * H + columns, t{i})")
            back.append(f"t{i} += tl.sum(g * norm_rows(a{i}, eps{i}, H), 0)")
            back.append(f"g = norm_rows_gradient(a{i}, g * gamma{i}[None, :], eps{i}, H)")
        else:
            back.append(f"g = {kind}_rows_gradient(a{i}, g)")
        back.append(f"g += tl.load(of_base{i} + rows, mask=there, other=0)")
    loop = [
        "nodes = (number + 0 * r) * BN + tl.arange(0, BN)  # of 64 bits",
        *_OF_NODES,
        "g = tl.load(grad + (own if SUMMED else rows), mask=there, other=0)",
        *back,
        "tl.store(of_rows + rows, g, mask=there)",
        "of_scale_r += tl.sum(tl.sum(g * x_rows, 1), 0)",
    ]
    body = [
        "part, r = tl.program_id(0), tl.program_id(1).to(tl.int64)",
        "place = part * tl.num_programs(1) + r",
        "columns = tl.arange(0, H)",
        "square = columns[:, None] * H + columns[None, :]",
        "scale_r, of_scale_r = tl.load(scale + r), 0.0",
        *before,
        "for number in range(part, tl.cdiv(N, BN), tl.num_programs(0)):",
        *_indented(loop),
        *after,
        "tl.store(of_scale + place, of_scale_r)",
    ]
    return _function("base_backward", arguments, body)


# The strains' differences.

_SIZES = "N, B, R, HAS_X: tl.constexpr, SUMMED: tl.constexpr, TYPE: tl.constexpr, BB: tl.constexpr, H: tl.constexpr"

_GIVEN = [
    "d = load_rows(received, r * N + node, strains, columns, there, B, H)",
    "scale_r = tl.load(scale + r)",
    "if HAS_X:",
    "    x_rows = load_rows(x, node, strains, columns, there, B, H)",
    "    d += scale_r * x_rows",
]


def _steps(kinds: Kinds, kept: bool) -> list[str]:
    """Return the lines that compute the chain; ``kept`` where each step's input has a name of its own."""
    lines = []
    for i, kind in enumerate(kinds):
        out, given = (f"d{i + 1}", f"d{i}") if kept else ("d", "d")
        if kind == LINEAR:
            weight = f"tl.trans({_held(i, kinds)})" if kept else f"tl.load(weight{i} + r * H * H + across)"
            # Rounded here, so that a backward pass keeps half as many registers for it.
            lines += [f"{given} = {given}.to(TYPE)", f"{out} = product({given}, {weight})"]
            continue
        lines.append(f"a{i} = tl.load(base{i} + (r * N + node) * H + columns)")
        if kind == NORM:
            lines.append(f"n{i} = norm_difference({given}, a{i}, eps{i}, H)")
            gamma = f"gamma{i}" if kept else f"tl.load(weight{i} + r * H + columns)"
            lines.append(f"{out} = n{i} * {gamma}[None, :]")
        else:
            lines.append(f"{out} = {kind}_difference({given}, a{i})")
    return lines


def _load(i: int) -> str:
    return f"tl.load(weight{i} + r * H * H + square)"


def _held(i: int, kinds: Kinds) -> str:
    """Return the weight of a backward pass, loaded anew where three or more do not fit into shared memory."""
    return f"w{i}" if kinds.count(LINEAR) < 3 else f"({_load(i)} if TYPE == tl.float32 else w{i})"


def _forward(kinds: Kinds) -> str:
    arguments = ["x", "received", "scale", "out", *_named("weight", kinds, WEIGHTED), *_named("base", kinds, CURVED)]
    body = [
        "node = tl.program_id(0).to(tl.int64)",
        "strains = tl.program_id(1) * BB + tl.arange(0, BB)",
        "columns = tl.arange(0, H)",
        "across = columns[None, :] * H + columns[:, None]",
        "there = strains < B",
        "rows = (node * B + strains)[:, None] * H + columns[None, :]",
        "total = tl.zeros((BB, H), tl.float32)",
        "for r in range(R):",
        *_indented([*_GIVEN, *_steps(kinds, kept=False)]),
        "    if SUMMED:",
        "        total += d",
        "    else:",
        "        at = out + (r + node * 0) * N * B * H + rows  # of 64 bits",
        "        tl.store(at, d.to(out.dtype.element_ty), mask=there[:, None])",
        "if SUMMED:",
        "    tl.store(out + rows, total.to(out.dtype.element_ty), mask=there[:, None])",
    ]
    return _function("forward", [*arguments, _SIZES, *_eps(kinds)], body)


def _backward(kinds: Kinds) -> str:
    arguments = ["x", "received", "scale", "grad", "of_received", "of_scale", *_named("weight", kinds, WEIGHTED)]
    arguments += [*_named("base", kinds, CURVED), *_named("of_weight", kinds, WEIGHTED)]
    arguments += [*_named("of_base", kinds, CURVED), _SIZES, *_eps(kinds)]
    before, back, after = [], [], []
    for i, kind in reversed(list(enumerate(kinds))):
        if kind == LINEAR:
            before += [f"w{i} = {_load(i)}", f"t{i} = tl.zeros((H, H), tl.float32)"]
            after.append(f"tl.store(of_weight{i} + place * H * H + square, t{i})")
            back += [f"t{i} = weight_gradient(d{i}, g.to(TYPE), t{i})", f"g = product(g.to(TYPE), {_held(i, kinds)})"]
            continue
        if kind == NORM:
            before.append(f"gamma{i} = tl.load(weight{i} + r * H + columns)")
            before.append(f"t{i} = tl.zeros((H,), tl.float32)")
            after.append(f"tl.store(of_weight{i} + place * H + columns, t{i})")
            back += [f"t{i} += tl.sum(g * n{i}, 0)", f"g *= gamma{i}[None, :]"]
            back.append(f"g, s{i} = norm_gradient(d{i}, a{i}, g, eps{i}, H)")
        else:
            back.append(f"g, s{i} = {kind}_gradient(d{i}, a{i}, g)")
        back.append(f"tl.store(of_base{i} + ((tile * R + r) * N + node) * H + columns, s{i})")
    loop = [
        "node = number + 0 * tile  # of 64 bits",
        *_GIVEN,
        "d0 = d",
        *_steps(kinds, kept=True),
        "g = load_rows(grad, node if SUMMED else r * N + node, strains, columns, there, B, H)",
        *back,
        "if HAS_X:",
        "    of_scale_r += tl.sum(g * x_rows, 1)",
        "rows = of_received + ((r * N + node) * B + strains)[:, None] * H + columns[None, :]",
        "tl.store(rows, g.to(of_received.dtype.element_ty), mask=there[:, None])",
    ]
    body = [
        "part, r, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)",
        "place = (tile * tl.num_programs(0) + part) * R + r",
        "strains = tile * BB + tl.arange(0, BB)",
        "columns = tl.arange(0, H)",
        "square = columns[:, None] * H + columns[None, :]",
        "there = strains < B",
        "of_scale_r = tl.zeros((BB,), tl.float32)",
        *before,
        "for number in range(part, N, tl.num_programs(0)):",
        *_indented(loop),
        *after,
        "tl.store(of_scale + place, tl.sum(of_scale_r, 0))",
    ]
    return _function("backward", arguments, body)


@cache
def kernels(kinds: Kinds) -> dict[str, Any]:
    """Return the kernels of a chain: ``base_forward``, ``base_backward``, ``forward`` and ``backward``."""
    import triton

    from dglcell.kernels import loops_triton

    name = f"<dglcell row chain {' '.join(kinds)}>"
    text = "\n\n".join(make(kinds) for make in (_base_forward, _base_backward, _forward, _backward))
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name  # Triton reads the text from there
    found: dict[str, Any] = {**vars(loops_triton), "__name__": loops_triton.__name__}
    exec(compile(text, name, "exec"), found)
    return {word: triton.jit(found[word]) for word in ("base_forward", "base_backward", "forward", "backward")}


# The kernels as a function of torch.


def chained(
    steps: Sequence[Step],
    bases: Sequence[Tensor],
    deltas: Sequence[Tensor | None],
    scale_R: Tensor,
    parameters: Sequence[Tensor],
    num_strains: int,
    summed: bool = True,
) -> tuple[Tensor, Tensor]:
    """Apply a chain, relation by relation, to what nodes receive plus ``scale`` times their own rows.

    It returns the base's rows [N, H], and the differences [N · B, H] in the type of those given, summed over relations;
    with R in front if not ``summed``.

    Args:
        steps: the chain.
        bases: the base's own rows [N, H], and what they receive, [R, N, H]; float32.
        deltas: the differences of the strains, [N · B, H], or None where there are none, and [R, N · B, H].
        scale_R: the factors of the nodes' own rows.
        parameters: weight and bias of every step that has them, in order: [R, H, H] and [R, H] of LINEAR, [R, H] twice
            of NORM.
    """
    out: tuple[Tensor, Tensor] = _Chain.apply(tuple(steps), num_strains, summed, *bases, *deltas, scale_R, *parameters)
    return out


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, steps: tuple[Step, ...], B: int, summed: bool,
        x: Tensor, received: Tensor, own: Tensor | None, delta: Tensor, scale: Tensor, *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        own, delta = None if own is None else own.to(delta.dtype).contiguous(), delta.contiguous()
        x, received = x.contiguous(), received.contiguous()
        call = _Call(steps, B, summed, received, delta, own is not None, parameters)
        before = [torch.empty_like(received) for step in steps if step.kind in CURVED]
        rows, out = torch.empty_like(received), torch.empty_like(delta[0] if summed else delta)
        factor = scale.detach().float().contiguous()
        blocks = -(-call.N // NODES)
        call.kernels["base_forward"][blocks, call.R](
            x, received, factor, rows, *call.weights, *call.biases, *before, call.N, NODES, call.H, *call.eps
        )
        given = delta if own is None else own, delta, factor
        size, sizes, how = call.tile(backward=False)
        call.kernels["forward"][call.N, -(-B // size)](*given, out, *call.rounded, *before, *sizes, **how)
        ctx.call, ctx.types = call, [t.dtype for t in (scale, *parameters)]
        ctx.save_for_backward(x, received, *given, *before)
        return rows.sum(0) if summed else rows, out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_base: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
        call, (x, received, own, delta, factor, *before) = ctx.call, ctx.saved_tensors
        of_delta, of_factor, of_rounded, of_before = call.backward(own, delta, factor, grad.contiguous(), before)
        of_received, of_scale, of_weights, of_biases = call.base_backward(
            x, received, factor, grad_base.contiguous(), before, of_before
        )
        of_weights = [one + other for one, other in zip(of_weights, of_rounded, strict=True)]
        of_parameters = [g for pair in zip(of_weights, of_biases, strict=True) for g in pair]
        small = [g.to(kind) for g, kind in zip([of_scale + of_factor, *of_parameters], ctx.types, strict=True)]
        of_own = _weighted_sum(of_delta, factor) if call.has_x else None
        return None, None, None, _weighted_sum(of_received, factor), of_received, of_own, of_delta, *small


class _Call:
    """Hold what the kernels of one call are started with."""

    def __init__(
        self, steps: Sequence[Step], B: int, summed: bool, received: Tensor, delta: Tensor, has_x: bool,
        parameters: Sequence[Tensor],
    ) -> None:  # fmt: skip
        (self.R, self.N, self.H), self.B, self.summed, self.has_x = received.shape, B, summed, has_x
        self.dtype, self.kernels = delta.dtype, kernels(tuple(step.kind for step in steps))
        self.eps = [step.eps for step in steps if step.kind == NORM]
        wide = [t.detach().float().contiguous() for t in parameters]
        self.weights, self.biases = wide[::2], wide[1::2]
        linear = [step.kind == LINEAR for step in steps if step.kind in WEIGHTED]
        self.rounded = [w.to(self.dtype) if one else w for w, one in zip(self.weights, linear, strict=True)]

    def tile(self, *, backward: bool) -> tuple[int, tuple[object, ...], Options]:
        """Return the strains of a tile of a pass over the differences, the sizes that its kernel is told, and how."""
        from dglcell.kernels.loops_triton import TYPES

        many = sum(w.dim() == 3 for w in self.weights) > 2  # weights whose gradients are held in registers
        size = strains_of_tile(self.B, self.dtype, backward=backward)
        if self.dtype == torch.float32:
            how = options(8, 1 if many else 3)
        else:
            how = options(4, 2 if many else 3) if backward else options(4, 1, 80)
        return size, (self.N, self.B, self.R, self.has_x, self.summed, TYPES[self.dtype], size, self.H, *self.eps), how

    def backward(
        self, own: Tensor, delta: Tensor, factor: Tensor, grad: Tensor, before: list[Tensor]
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
        """Return the gradients of differences, scale, weights, and the base's rows before modules."""
        size, sizes, how = self.tile(backward=True)
        tiles = -(-self.B // size)
        parts = max(1, min(self.N, PROGRAMS // (self.R * tiles)))
        of_delta, of_factor = torch.empty_like(delta), factor.new_empty(tiles * parts, self.R)
        of_weights = [w.new_empty(tiles * parts, *w.shape) for w in self.weights]
        of_before = [rows.new_empty(tiles, *rows.shape) for rows in before]
        tensors = of_delta, of_factor, *self.rounded, *before, *of_weights, *of_before
        self.kernels["backward"][parts, self.R, tiles](own, delta, factor, grad, *tensors, *sizes, **how)
        of_bases = [g[0] if tiles == 1 else g.sum(0) for g in of_before]
        return of_delta, of_factor.sum(0), [g.sum(0) for g in of_weights], of_bases

    def base_backward(
        self, x: Tensor, received: Tensor, factor: Tensor, grad: Tensor, before: list[Tensor], of_before: list[Tensor]
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
        """Return the gradients of what the base receives, scale, weights and biases."""
        parts = max(1, min(-(-self.N // NODES), PROGRAMS // self.R))
        of_received, of_scale = torch.empty_like(received), factor.new_empty(parts, self.R)
        outs = [t.new_empty(parts, *t.shape) for t in (*self.weights, *self.biases)]
        self.kernels["base_backward"][parts, self.R](
            x, received, factor, grad, of_received, of_scale, *self.weights, *self.biases, *before, *of_before, *outs,
            self.N, self.summed, NODES, self.H, *self.eps, num_warps=8, num_stages=1,
        )  # fmt: skip
        sums, number = [g.sum(0) for g in outs], len(self.weights)
        return of_received, of_scale.sum(0), sums[:number], sums[number:]


def _weighted_sum(x: Tensor, weight: Tensor) -> Tensor:
    from dglcell.kernels.loops_triton import weighted_sum

    out = torch.empty_like(x[0])
    weighted_sum[(-(-out.numel() // 1024),)](x, weight, out, out.numel(), out.numel(), len(x), 1024, num_warps=4)
    return out
