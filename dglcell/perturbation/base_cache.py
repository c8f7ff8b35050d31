"""What was computed of the wild type, or of another base, kept for the batches of an evaluation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class BasePass:
    """One pass over a batch: the base's tensors in the order in which they are asked for.

    The base is computed by the same operations in the same order for every batch. So the first pass fills a list, and
    the later ones read it from its start.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self._tensors, self._next = tensors, 0

    def once(self, make: Callable[[], Tensor]) -> Tensor:
        """The next tensor, made where no pass has come this far."""
        if self._next == len(self._tensors):
            self._tensors.append(make())
        self._next += 1
        return self._tensors[self._next - 1]


class BaseCache:
    """The base's tensors of a module, as long as its weights do not change.

    They are given up when a weight is written to or replaced, when the precision changes, and on ``forget``.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew."""
        self._lists: dict[tuple[int, ...], list[Tensor]] = {}
        self._weights: list[Tensor] = []
        self._marks: list[object] = []

    def replay(self, module: nn.Module, shared: tuple[int, ...] = ()) -> BasePass | None:
        """A pass of a module; None in training and where gradients are wanted, as nothing can be kept then.

        Args:
            module: whose weights the tensors depend on.
            shared: genes that the base lacks; beside the wild type only the last such base is kept.
        """
        if module.training or torch.is_grad_enabled():
            return None
        weights = [parameter.detach() for parameter in module.parameters()]
        # Writing to a tensor raises its version; weights that are replaced lie elsewhere, because these are held.
        marks: list[object] = [(_version(weight), weight.data_ptr(), weight.dtype) for weight in weights]
        device = weights[0].device.type
        marks.append((torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)))
        if self._marks != marks:
            self.forget()
            self._marks, self._weights = marks, weights
        if shared not in self._lists:
            self._lists = {genes: tensors for genes, tensors in self._lists.items() if not genes}
        return BasePass(self._lists.setdefault(shared, []))


def _version(weight: Tensor) -> int:
    """How often a tensor has been written to; those made in inference mode do not count."""
    return -1 if weight.is_inference() else weight._version
