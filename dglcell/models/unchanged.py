"""What may be kept while a module's weights do not change."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dglcell.perturbation.kept_base import KeptBase


class WildType:
    """The base rows that evaluation keeps.

    They are given up where a weight was written to or replaced, where precision changes, and on ``forget``.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew."""
        self._kept: KeptBase | None = None
        self._weights: list[Tensor] = []
        self._marks: list[object] = []

    def of(self, module: nn.Module) -> KeptBase | None:
        """What is kept of a module with these weights; None in training and where gradients are wanted."""
        if module.training or torch.is_grad_enabled():
            return None
        weights = [parameter.detach() for parameter in module.parameters()]
        # Writing to a tensor raises its version; weights that are replaced lie elsewhere, because these are held.
        marks: list[object] = [(_version(weight), weight.data_ptr(), weight.dtype) for weight in weights]
        device = weights[0].device.type
        marks.append((torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)))
        if self._kept is None or self._marks != marks:
            self._kept, self._marks, self._weights = KeptBase(), marks, weights
        return self._kept


def _version(weight: Tensor) -> int:
    """How often a tensor has been written to; those made in inference mode do not count."""
    return -1 if weight.is_inference() else weight._version
