"""Updates of rows by a small network, compiled: forward, or recomputed and backward, each as one call.

What a convolution does to every row, with the norm and activation after it, is some forty torch operators, and most of
their time is not arithmetic. Compiled, it is one call that holds no lock and keeps what lies between in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

COMPILED_DEVICES: tuple[str, ...] = ("cpu",)
"""Device types on which updates are compiled; without any, torch's operators are used everywhere."""

_EVERY = np.empty(0, np.int64)


@dataclass(frozen=True)
class Network:
    """Linear layers of the rows x of a node type and the rows r that it receives.

    Attributes:
        epsilon: [1] of the input (1 + ε)x + r; None for [x | r] side by side.
        weights: per layer [H', H]; several are side by side.
        biases: per layer [H'] or None.
        activation: between the layers.
    """

    epsilon: Tensor | None
    weights: Sequence[Sequence[Tensor]]
    biases: Sequence[Tensor | None]
    activation: nn.Module


@dataclass(frozen=True)
class Taken:
    """Rows of a table: ``index[i]``, or as they are.

    Attributes:
        table: [S, H].
        index: [K] int64 or None.
        shift: is added to every index.
    """

    table: Tensor
    index: Tensor | None = None
    shift: int = 0


@dataclass(frozen=True)
class Into:
    """Where gradients of taken rows are added.

    Attributes:
        own: [S, H]; None where they are not needed.
        index: [K] int64 or None.
        shared: [N, H] that takes the rows below N.
    """

    own: Tensor | None
    index: Tensor | None = None
    shared: Tensor | None = None


@dataclass(frozen=True)
class _Place:
    """Where a parameter is in the array of all: its offset and, of matrices, the distance of its rows."""

    parameter: Tensor
    offset: int
    stride: int

    def of(self, flat: Tensor) -> Tensor:
        strides = (self.stride, 1)[2 - self.parameter.dim() :]
        return flat.as_strided(self.parameter.shape, strides, self.offset)


def is_known(activation: nn.Module) -> bool:
    """Whether compiled code has the activation."""
    exact = getattr(activation, "approximate", "none") == "none"
    return exact and type(activation) in (nn.Identity, nn.ReLU, nn.GELU, nn.SiLU)


def activation_code(activation: nn.Module) -> int:
    """What compiled code calls the activation."""
    from dglcell.kernels import math_numba

    codes: dict[type, int] = {
        nn.Identity: math_numba.IDENTITY,
        nn.ReLU: math_numba.RELU,
        nn.GELU: math_numba.GELU,
        nn.SiLU: math_numba.SILU,
    }
    return codes[type(activation)]


def on_compiled_device(tensors: Sequence[Tensor]) -> bool:
    """Whether compiled code can be used: on a CPU, with all tensors in the same single or double precision."""
    dtype = tensors[0].dtype
    if dtype not in (torch.float32, torch.float64):
        return False
    return all(t.device.type in COMPILED_DEVICES and t.dtype == dtype for t in tensors)


class Update:
    """``outer(norm(network(x, r)))`` on rows.

    Args:
        network: of x and r.
        norm: after it; LayerNorm, RMSNorm or Identity.
        activation: after that.
    """

    def __init__(self, network: Network, norm: nn.Module, activation: nn.Module) -> None:
        self.network, self.norm, self.activation = network, norm, activation
        self._places: list[_Place] = []
        layers, position = [], 2
        if network.epsilon is not None:
            self._places.append(_Place(network.epsilon, 0, 1))
        for weights, bias in zip(network.weights, network.biases, strict=True):
            entry, width = sum(w.shape[1] for w in weights), len(weights[0])
            layers.append((entry, width, position, position + entry * width))
            first = position
            for w in weights:
                self._places.append(_Place(w, first, entry))
                first += w.shape[1]
            position += entry * width
            if bias is not None:
                self._places.append(_Place(bias, position, 1))
            position += width
        self._layers = np.array(layers, np.int64)
        self._norm_at, self._width = position, int(layers[-1][1])
        self._size = position + 2 * self._width
        for offset, name in ((0, "weight"), (self._width, "bias")):
            parameter = getattr(norm, name, None)
            if parameter is not None:
                self._places.append(_Place(parameter, position + offset, 1))

    @staticmethod
    def of(network: Network, norm: nn.Module, activation: nn.Module) -> Update | None:
        """The compiled update, or None where there is none for these modules."""
        if type(norm) not in (nn.Identity, nn.LayerNorm, nn.RMSNorm):
            return None
        return Update(network, norm, activation) if is_known(network.activation) and is_known(activation) else None

    def applies(self, tables: Sequence[Tensor]) -> bool:
        """Whether it can be used on rows of these tables: on a CPU, all in the parameters' precision."""
        return on_compiled_device([*tables, *(place.parameter for place in self._places)])

    def pack(self, dtype: torch.dtype) -> Tensor:
        """All parameters as one array."""
        flat = torch.zeros(self._size, dtype=dtype)
        eps = getattr(self.norm, "eps", None)
        flat[1] = torch.finfo(dtype).eps if eps is None else eps
        flat[self._norm_at : self._norm_at + self._width] = 1
        for place in self._places:
            place.of(flat).copy_(place.parameter.detach())
        return flat

    def forward(self, flat: Tensor, inputs: Sequence[Taken], number: int, out: Taken, *, add: bool) -> None:
        """Write rows to ``out``, or add them.

        Args:
            flat: from ``pack``.
            inputs: x and r.
            number: K.
            out: where.
            add: to what is there.
        """
        x, r = (self._taken(source) for source in inputs)
        self._kernels(inputs).forward(
            self._blas(flat), self._form, self._layers, flat.numpy(), x, r, number, self._taken(out), add
        )

    def backward(
        self, flat: Tensor, inputs: Sequence[Taken], number: int, grad: Taken, into: Sequence[Into]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Add gradients of the inputs' rows, and give those of the parameters.

        Args:
            flat, inputs, number: as for ``forward``.
            grad: of the update's rows.
            into: for x and r.
        """
        of_flat = torch.zeros_like(flat)
        x, r = (self._taken(source) for source in inputs)
        of_x, of_r = (self._into(target, flat.dtype) for target in into)
        arrays = (flat.numpy(), x, r, number, self._taken(grad), of_x, of_r, of_flat.numpy())
        self._kernels(inputs).backward(self._blas(flat), self._form, self._layers, *arrays)
        return ((place.parameter, place.of(of_flat)) for place in self._places)

    @cached_property
    def _form(self) -> Any:
        from dglcell.kernels import update_numba

        norms = {
            nn.Identity: update_numba.NO_NORM,
            nn.LayerNorm: update_numba.LAYER_NORM,
            nn.RMSNorm: update_numba.RMS_NORM,
        }
        return update_numba.Form(
            side_by_side=self.network.epsilon is None,
            inner=activation_code(self.network.activation),
            norm=norms[type(self.norm)],
            outer=activation_code(self.activation),
            norm_at=self._norm_at,
        )

    def _kernels(self, inputs: Sequence[Taken]) -> Any:
        from dglcell.kernels import update_numba

        return update_numba.compiled({inputs[0].table.shape[1], *self._layers[:, 1].tolist()})

    def _blas(self, flat: Tensor) -> int:
        from dglcell.kernels import blas_numba

        return blas_numba.gemm_address(flat.dtype == torch.float64)

    def _taken(self, source: Taken) -> Any:
        from dglcell.kernels import update_numba

        rows = _EVERY if source.index is None else source.index.numpy()
        return update_numba.Taken(source.table.detach().numpy(), rows, source.shift)

    def _into(self, target: Into, dtype: torch.dtype) -> Any:
        from dglcell.kernels import update_numba

        nothing = torch.empty(0, self._width, dtype=dtype)
        own = nothing if target.own is None else target.own
        shared = nothing if target.shared is None else target.shared
        rows = _EVERY if target.index is None else target.index.numpy()
        return update_numba.Into(shared.numpy(), own.numpy(), rows, 0)
