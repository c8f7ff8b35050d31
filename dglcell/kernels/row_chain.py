"""Apply a chain of row modules to differences in one Triton kernel, for all relations of a layer at once.

A layer's rows go through Linear, activation, Linear, norm, activation, once for each relation. One operation after the
other, each of them reads and writes all rows. Here the rows of a node are read once, stay in registers through the
whole chain and through the sum over relations, and are computed again in the backward pass. The chain is that of the
layer's own torch modules: the kernel's text is put together from it, one line for a module, out of the functions of
``row_chain_triton``.
"""

from __future__ import annotations

import importlib.util
import linecache
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LINEAR, NORM, GELU, RELU = "linear", "norm", "gelu", "relu"
CURVED = (NORM, GELU, RELU)
WIDTHS = (16, 32, 64, 128)
"""Rows this wide fit into registers, and are as wide as matrix units want them."""

PROGRAMS = 1056
"""About so many programs share the nodes in the backward pass: eight for each processor of an H100."""


@dataclass(frozen=True)
class Step:
    """Describe one module of a chain.

    Attributes:
        kind: LINEAR, NORM, GELU or RELU.
        name: the module's name.
        eps: of a norm.
    """

    kind: str
    name: str
    eps: float = 0.0


def steps_of(modules: Iterable[tuple[str, nn.Module]], width: int) -> list[Step] | None:
    """Return the steps of modules that are applied one after the other; None where the kernel does not know one.

    Args:
        modules: names and modules.
        width: the width of all rows.
    """
    steps = []
    for name, module in modules:
        if isinstance(module, nn.Identity) or (isinstance(module, nn.Dropout) and not (module.p and module.training)):
            continue
        if type(module) is nn.Linear and (module.in_features, module.out_features) == (width, width):
            steps.append(Step(LINEAR, name))
        elif type(module) is nn.LayerNorm and module.normalized_shape == (width,) and module.weight is not None:
            steps.append(Step(NORM, name, module.eps))
        elif type(module) is nn.GELU and module.approximate == "none":
            steps.append(Step(GELU, name))
        elif type(module) is nn.ReLU:
            steps.append(Step(RELU, name))
        else:
            return None
    return steps if width in WIDTHS else None


@dataclass(frozen=True)
class Tile:
    """Describe what a program computes at once: strains of a node, the warps that share them, and their registers."""

    strains: int
    warps: int
    stages: int = 3
    registers: int | None = None

    @property
    def options(self) -> dict[str, int | None]:
        """Return the options of a launch."""
        return {"num_warps": self.warps, "num_stages": self.stages, "maxnreg": self.registers}


def tile_of(strains: int, dtype: torch.dtype, *, backward: bool) -> Tile:
    """Return the tile that leaves the fewest rows empty, as large as registers allow without spilling."""
    size = min((32, 16), key=lambda size: -(-strains // size) * size)
    if dtype == torch.float32:
        return Tile(16 if backward else size, 8)
    # On an H100 this forward pass took 0.77 ms for nine relations of 6,607 genes in 28 strains, and 0.93 as backward.
    return Tile(size, 4) if backward else Tile(size, 4, stages=1, registers=104)


def runs_on(device: torch.device) -> bool:
    """Return whether the kernel runs on a device: a GPU of NVIDIA with matrix units for bfloat16, where Triton is."""
    return device.type in DEVICES and _triton_runs(device)


DEVICES: tuple[str, ...] = ("cuda",)
"""Types of devices on which rows are computed so."""


@cache
def _triton_runs(device: torch.device) -> bool:
    if importlib.util.find_spec("triton") is None:
        return False
    return device.type != "cuda" or (torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0))


# The text of the kernels.


@cache
def kernels(kinds: tuple[str, ...]) -> tuple[Any, Any]:
    """Return the forward and the backward kernel of a chain."""
    import triton

    from dglcell.kernels import row_chain_triton

    name = f"<dglcell row chain {' '.join(kinds)}>"
    text = f"{_forward_text(kinds)}\n\n{_backward_text(kinds)}"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name  # Triton reads the text from there
    found: dict[str, Any] = {**vars(row_chain_triton), "__name__": row_chain_triton.__name__}
    exec(compile(text, name, "exec"), found)
    return triton.jit(found["forward"]), triton.jit(found["backward"])


def _arguments(kinds: Sequence[str]) -> list[str]:
    weights = [f"weight{i}" for i, kind in enumerate(kinds) if kind in (LINEAR, NORM)]
    return [*weights, *(f"base{i}" for i, kind in enumerate(kinds) if kind in CURVED)]


def _input_text() -> list[str]:
    return [
        "d = load_rows(received, r * N + node, strains, columns, there, B, H)",
        "scale_r = tl.load(scale + r)",
        "if HAS_X:",
        "    x_rows = load_rows(x, node, strains, columns, there, B, H)",
        "    d += scale_r * x_rows",
    ]


def _steps_text(kinds: Sequence[str], kept: bool) -> list[str]:
    """Return the lines that compute the chain; ``kept`` where each step's input has a name of its own."""
    lines = []
    for i, kind in enumerate(kinds):
        out, given = (f"d{i + 1}", f"d{i}") if kept else ("d", "d")
        if kind == LINEAR:
            weight = f"tl.trans(w{i})" if kept else f"tl.load(weight{i} + r * H * H + across)"
            # Rounded here, so that a backward pass keeps half as many registers for it.
            lines += [f"{given} = {given}.to(TYPE)", f"{out} = product({given}, {weight})"]
            continue
        lines.append(f"a{i} = tl.load(base{i} + (r * P + node) * H + columns)")
        if kind == NORM:
            lines.append(f"n{i} = norm_difference({given}, a{i}, eps{i}, H)")
            gamma = f"gamma{i}" if kept else f"tl.load(weight{i} + r * H + columns)"
            lines.append(f"{out} = n{i} * {gamma}[None, :]")
        else:
            lines.append(f"{out} = {kind}_difference({given}, a{i})")
    return lines


def _eps(kinds: Sequence[str]) -> list[str]:
    return [f"eps{i}: tl.constexpr" for i, kind in enumerate(kinds) if kind == NORM]


def _indented(lines: Sequence[str], depth: int) -> list[str]:
    return ["    " * depth + line for line in lines]


def _forward_text(kinds: tuple[str, ...]) -> str:
    sizes = "N, P, B, R, HAS_X: tl.constexpr, TYPE: tl.constexpr, BB: tl.constexpr, H: tl.constexpr"
    head = ["x", "received", "scale", "out", *_arguments(kinds), sizes, *_eps(kinds)]
    body = [
        "node = tl.program_id(0).to(tl.int64)",
        "strains = tl.program_id(1) * BB + tl.arange(0, BB)",
        "columns = tl.arange(0, H)",
        "across = columns[None, :] * H + columns[:, None]",
        "there = strains < B",
        "total = tl.zeros((BB, H), tl.float32)",
        "for r in range(R):",
        *_indented([*_input_text(), *_steps_text(kinds, kept=False), "total += d"], 1),
        "rows = out + (node * B + strains)[:, None] * H + columns[None, :]",
        "tl.store(rows, total.to(out.dtype.element_ty), mask=there[:, None])",
    ]
    return "\n".join([f"def forward({', '.join(head)}):", *_indented(body, 1)])


def _backward_text(kinds: tuple[str, ...]) -> str:
    parameters = [i for i, kind in enumerate(kinds) if kind in (LINEAR, NORM)]
    curved = [i for i, kind in enumerate(kinds) if kind in CURVED]
    outs = [*(f"of_weight{i}" for i in parameters), *(f"of_base{i}" for i in curved)]
    sizes = "N, P, B, R, HAS_X: tl.constexpr, TYPE: tl.constexpr, BB: tl.constexpr, H: tl.constexpr"
    head = ["x", "received", "scale", "grad", "of_received", "of_scale", *_arguments(kinds), *outs, sizes, *_eps(kinds)]
    before, after = [], []
    for i in parameters:
        if kinds[i] == LINEAR:
            before.append(f"w{i} = tl.load(weight{i} + r * H * H + square)")
            before.append(f"t{i} = tl.zeros((H, H), tl.float32)")
            after.append(f"tl.store(of_weight{i} + place * H * H + square, t{i})")
        else:
            before.append(f"gamma{i} = tl.load(weight{i} + r * H + columns)")
            before.append(f"t{i} = tl.zeros((H,), tl.float32)")
            after.append(f"tl.store(of_weight{i} + place * H + columns, t{i})")
    back = []
    for i in reversed(range(len(kinds))):
        if kinds[i] == LINEAR:
            back += [f"t{i} = weight_gradient(d{i}, g.to(TYPE), t{i})", f"g = product(g.to(TYPE), w{i})"]
            continue
        if kinds[i] == NORM:
            back += [f"t{i} += tl.sum(g * n{i}, 0)", f"g *= gamma{i}[None, :]"]
            back.append(f"g, s{i} = norm_gradient(d{i}, a{i}, g, eps{i}, H)")
        else:
            back.append(f"g, s{i} = {kinds[i]}_gradient(d{i}, a{i}, g)")
        back.append(f"tl.store(of_base{i} + ((tile * R + r) * P + node) * H + columns, s{i})")
    loop = [
        *_input_text(),
        "d0 = d",
        *_steps_text(kinds, kept=True),
        "g = load_rows(grad, node, strains, columns, there, B, H)",
        *back,
        "if HAS_X:",
        "    of_scale_r += tl.sum(tl.sum(g * x_rows, 1), 0)",
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
        "of_scale_r = 0.0",
        *before,
        "for number in range(part, N, tl.num_programs(0)):",
        *_indented(["node = number + 0 * tile  # of 64 bits", *loop], 1),
        *after,
        "if HAS_X:",
        "    tl.store(of_scale + place, of_scale_r)",
    ]
    return "\n".join([f"def backward({', '.join(head)}):", *_indented(body, 1)])


# The kernels as a function of torch.


def chained(
    steps: Sequence[Step],
    x: Tensor | None,
    received: Tensor,
    scale_R: Tensor,
    weights: Sequence[Tensor],
    bases: Sequence[Tensor],
    num_strains: int,
) -> Tensor:
    """Return the sum over relations of a chain's differences, [N · B, H], in the type of ``received``.

    Args:
        steps: the chain.
        x: [N · B, H] differences of the nodes' own rows; None where there are none.
        received: [R, N · B, H] differences of what they receive, to which ``scale`` times ``x`` is added.
        scale_R: factors of ``x``.
        weights: [R, H, H] of every LINEAR and [R, H] of every NORM, in order; biases only move the base.
        bases: [R, P, H] the base's rows before every module that is not linear, in order; rows from N on are padding.
        num_strains: B.
    """
    out: Tensor = _Chain.apply(tuple(steps), num_strains, len(weights), x, received, scale_R, *weights, *bases)
    return out


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, steps: tuple[Step, ...], B: int, number: int, x: Tensor | None, received: Tensor, scale: Tensor,
        *tensors: Tensor,
    ) -> Tensor:  # fmt: skip
        received, x = received.contiguous(), None if x is None else x.to(received.dtype).contiguous()
        ctx.steps, ctx.B, ctx.number, ctx.has_x = steps, B, number, x is not None
        saved = received if x is None else x, received, scale, *tensors
        ctx.save_for_backward(*saved)
        launch = _Launch(ctx, saved, backward=False)
        out = torch.empty_like(received[0])
        run, _ = kernels(tuple(step.kind for step in steps))
        grid = (launch.N, launch.tiles)
        run[grid](launch.x, received, launch.scale, out, *launch.arguments, *launch.sizes, **launch.tile.options)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        launch, (_, received, scale, *tensors) = _Launch(ctx, ctx.saved_tensors, backward=True), ctx.saved_tensors
        R, parts = launch.R, max(1, min(launch.N, PROGRAMS // (launch.R * launch.tiles)))
        wide = {"dtype": torch.float32, "device": received.device}
        of_received, of_scale = torch.empty_like(received), torch.zeros(launch.tiles * parts, R, **wide)
        of_weights = [torch.empty(launch.tiles * parts, *t.shape, **wide) for t in tensors[: ctx.number]]
        of_bases = [torch.zeros(launch.tiles, *t.shape, **wide) for t in tensors[ctx.number :]]
        _, run = kernels(tuple(step.kind for step in ctx.steps))
        run[parts, R, launch.tiles](
            launch.x, received, launch.scale, grad.contiguous(), of_received, of_scale, *launch.arguments,
            *of_weights, *of_bases, *launch.sizes, **launch.tile.options,
        )  # fmt: skip
        of_tensors = [g.sum(0).to(t.dtype) for g, t in zip([*of_weights, *of_bases], tensors, strict=True)]
        of_x = _weighted_sum(of_received, launch.scale) if ctx.has_x else None
        return None, None, None, of_x, of_received, of_scale.sum(0).to(scale.dtype), *of_tensors


class _Launch:
    """Hold what both kernels are started with."""

    def __init__(self, ctx: Any, saved: Sequence[Tensor], *, backward: bool) -> None:
        import triton.language as tl

        self.x, received, scale, *tensors = saved
        self.R, rows, self.H = received.shape
        self.N, self.tile = rows // ctx.B, tile_of(ctx.B, received.dtype, backward=backward)
        self.tiles = -(-ctx.B // self.tile.strains)
        self.scale = scale.detach().float().contiguous()
        kind = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16}[received.dtype]
        linear = [step.kind == LINEAR for step in ctx.steps if step.kind in (LINEAR, NORM)]
        self.arguments = [
            t.detach().to(received.dtype if i < ctx.number and linear[i] else torch.float32).contiguous()
            for i, t in enumerate(tensors)
        ]
        eps = [step.eps for step in ctx.steps if step.kind == NORM]
        padded = tensors[-1].shape[1] if len(tensors) > ctx.number else self.N
        self.sizes = self.N, padded, ctx.B, self.R, ctx.has_x, kind, self.tile.strains, self.H, *eps


def _weighted_sum(x: Tensor, weight: Tensor) -> Tensor:
    from dglcell.kernels.row_chain_triton import weighted_sum

    out = torch.empty_like(x[0])
    weighted_sum[(-(-out.numel() // 1024),)](x, weight, out, out.numel(), out.numel(), len(x), 1024, num_warps=4)
    return out
