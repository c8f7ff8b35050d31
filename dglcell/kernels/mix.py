"""Mixtures of K rows of equal width by compiled code, forward, or recomputed and backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from dglcell.kernels.chain import add_gradient, put_rows, rows_of
from dglcell.kernels.update import Into, Taken, on_compiled_device


class MixCode(Protocol):
    """What a mixture computes."""

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters, in an order."""

    def pack(self, dtype: torch.dtype) -> Any:
        """A named tuple of contiguous tensors that compiled code reads instead of the parameters."""

    def unpack(self, of_packed: Any) -> list[Tensor]:
        """Gradients of the parameters, in order, from those of ``pack``'s tensors."""

    def forward(self, blas: int, packed: Any, h: Any, number: int, out: Any) -> None:
        """Write rows to ``out`` [N, H], for ``h`` [K, N, H]; all are arrays."""

    def backward(self, blas: int, packed: Any, h: Any, number: int, grad: Any, of_packed: Any, of_h: Any) -> None:
        """Add gradients to ``of_packed`` and ``of_h`` [K, N, H], for ``grad`` [N, H]; all are arrays."""


class CompiledMix:
    """A mixture as a ``dglcell.kernels.chain.RowUpdate``.

    Args:
        code: what it computes.
    """

    def __init__(self, code: MixCode) -> None:
        self.code = code

    def applies(self, tables: Sequence[Tensor]) -> bool:
        """See ``RowUpdate.applies``."""
        return on_compiled_device([*tables, *self.code.parameters])

    def pack(self, dtype: torch.dtype) -> Any:
        """See ``RowUpdate.pack``."""
        return self.code.pack(dtype)

    def forward(self, packed: Any, inputs: Sequence[Taken], number: int, out: Taken, *, add: bool) -> None:
        """See ``RowUpdate.forward``."""
        h_KNH = _stacked(inputs, number)
        rows_NH = torch.empty_like(h_KNH[0])
        self.code.forward(_blas(h_KNH), _arrays(packed), h_KNH.numpy(), number, rows_NH.numpy())
        put_rows(rows_NH, out, add=add)

    def backward(
        self, packed: Any, inputs: Sequence[Taken], number: int, grad: Taken, into: Sequence[Into]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """See ``RowUpdate.backward``."""
        h_KNH, grad_NH = _stacked(inputs, number), rows_of(grad, number).contiguous()
        of_h, of_packed = torch.zeros_like(h_KNH), type(packed)(*map(torch.zeros_like, packed))
        arrays = _arrays(of_packed), of_h.numpy()
        self.code.backward(_blas(h_KNH), _arrays(packed), h_KNH.numpy(), number, grad_NH.numpy(), *arrays)
        for x_NH, target in zip(of_h, into, strict=True):
            add_gradient(x_NH, target)
        return zip(self.code.parameters, self.code.unpack(of_packed), strict=True)


def _stacked(inputs: Sequence[Taken], number: int) -> Tensor:
    """[K, n, H]."""
    return torch.stack([rows_of(source, number).detach() for source in inputs])


def _arrays(packed: Any) -> Any:
    return type(packed)(*(x.numpy() for x in packed))


def _blas(like: Tensor) -> int:
    from dglcell.kernels import blas_numba

    return blas_numba.gemm_address(like.dtype == torch.float64)
