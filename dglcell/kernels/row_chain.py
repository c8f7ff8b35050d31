"""Apply a chain of row modules to differences in one Triton kernel, for all relations of a layer at once.

A layer's rows go through Linear, activation, Linear, norm, activation, once for each relation. One operation after the
other, each of them reads and writes all rows. Here the rows of a node are read once, stay in registers through the
whole chain and through the sum over relations, and are computed again in the backward pass. The chain is that of the
layer's own torch modules, and ``row_chain_text`` puts the kernels together from it. The base's rows go through kernels
of the same chain, in single precision.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dglcell.kernels.row_chain_text import CURVED, GELU, LINEAR, NORM, RELU, WEIGHTED, kernels

WIDTHS = (16, 32, 64)
"""Rows this wide fit into registers, as their weights into shared memory, and are as wide as matrix units want them."""

NODES = 32
"""Nodes whose rows of the base a program computes at once."""

PROGRAMS = 792
"""Most programs that share the nodes in the backward pass: three rounds of two for each processor of an H100."""


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


def tile_of(strains: int, dtype: torch.dtype, *, backward: bool, products: int = 2) -> Tile:
    """Return the tile that leaves the fewest rows empty, as large as registers allow without spilling.

    ``products`` are the weights whose gradients are held in registers.
    """
    size = min((32, 16), key=lambda size: -(-strains // size) * size)
    if dtype == torch.float32:
        return Tile(16 if backward else size, 8, stages=3 if products < 3 else 1)
    return Tile(size, 4, stages=3 if products < 3 else 2) if backward else Tile(size, 4, stages=1, registers=80)


def runs_on(device: torch.device) -> bool:
    """Return whether the kernel runs on a device: a GPU of NVIDIA with matrix units for bfloat16, where Triton is."""
    return device.type in DEVICES and _triton_runs(device)


DEVICES: tuple[str, ...] = ("cuda",)
"""Types of devices on which rows are computed so."""

TYPES = (torch.float32, torch.bfloat16)
"""Differences are of these types, and their base in single precision."""


@cache
def _triton_runs(device: torch.device) -> bool:
    if importlib.util.find_spec("triton") is None:
        return False
    return device.type != "cuda" or (torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0))


def fits(steps: Sequence[Step], width: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether the kernels compute differences of a type on a device: their tiles fit into its shared memory."""
    if dtype not in TYPES or not runs_on(device):
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

    Args:
        steps: the chain.
        bases: the base's own rows [N, H], and what they receive, [R, N, H]; float32.
        deltas: the differences of the strains, [N · B, H], or None where there are none, and [R, N · B, H].
        scale_R: the factors of the nodes' own rows.
        parameters: weight and bias of every step that has them, in order: [R, H, H] and [R, H] of LINEAR, [R, H] twice
            of NORM.
        num_strains: B.
        summed: whether results are summed over the relations.

    Returns:
        The base's rows [N, H], and the differences [N · B, H] in the type of those given; with R in front if not
        ``summed``.
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
        tile, sizes = call.tile(backward=False)
        call.kernels["forward"][call.N, -(-B // tile.strains)](
            *given, out, *call.rounded, *before, *sizes, **tile.options
        )
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

    def tile(self, *, backward: bool) -> tuple[Tile, tuple[object, ...]]:
        """Return the tile of a pass over the differences, and the sizes that its kernel is told."""
        import triton.language as tl

        kind = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16}[self.dtype]
        products = sum(w.dim() == 3 for w in self.weights)
        tile = tile_of(self.B, self.dtype, backward=backward, products=products)
        return tile, (self.N, self.B, self.R, self.has_x, self.summed, kind, tile.strains, self.H, *self.eps)

    def backward(
        self, own: Tensor, delta: Tensor, factor: Tensor, grad: Tensor, before: list[Tensor]
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
        """Return the gradients of differences, scale, weights, and the base's rows before modules."""
        tile, sizes = self.tile(backward=True)
        tiles = -(-self.B // tile.strains)
        parts = max(1, min(self.N, PROGRAMS // (self.R * tiles)))
        of_delta, of_factor = torch.empty_like(delta), factor.new_empty(tiles * parts, self.R)
        of_weights = [w.new_empty(tiles * parts, *w.shape) for w in self.weights]
        of_before = [rows.new_empty(tiles, *rows.shape) for rows in before]
        self.kernels["backward"][parts, self.R, tiles](
            own, delta, factor, grad, of_delta, of_factor, *self.rounded, *before, *of_weights, *of_before, *sizes,
            **tile.options,
        )  # fmt: skip
        return of_delta, of_factor.sum(0), [g.sum(0) for g in of_weights], [_total(g) for g in of_before]

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


def _total(parts: Tensor) -> Tensor:
    return parts[0] if len(parts) == 1 else parts.sum(0)


def _weighted_sum(x: Tensor, weight: Tensor) -> Tensor:
    from dglcell.kernels.row_chain_triton import weighted_sum

    out = torch.empty_like(x[0])
    weighted_sum[(-(-out.numel() // 1024),)](x, weight, out, out.numel(), out.numel(), len(x), 1024, num_warps=4)
    return out
