"""What a step asks of the bus: bytes copied to the device, and waits of the host for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

SYNC_WARNING = "called a synchronizing CUDA operation"


@dataclass
class StepCounts:
    """Of one step.

    Attributes:
        bytes_to_device: copied from the host to another device; 0 on a CPU.
        synchronisations: times that the host waited for a GPU; None on a CPU, where there is nothing to wait for.
    """

    bytes_to_device: int = 0
    synchronisations: int | None = None


class CountCopies(TorchDispatchMode):
    """Adds up the bytes of tensors that are copied from the host to another device."""

    def __init__(self, counts: StepCounts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and look whether it is a copy."""
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name == "_to_copy":
            self._count(args[0], out)
        elif name == "copy_":
            self._count(args[1], args[0])
        return out

    def _count(self, source: Tensor, target: Tensor) -> None:
        if source.device.type == "cpu" != target.device.type:
            self.counts.bytes_to_device += target.numel() * target.element_size()


@contextmanager
def counted(device: torch.device) -> Iterator[StepCounts]:
    """Count what happens inside; slows it down, so that it must not be timed."""
    counts = StepCounts()
    if device.type != "cuda":
        yield counts
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with CountCopies(counts):
                yield counts
        finally:
            torch.cuda.set_sync_debug_mode(before)
            counts.synchronisations = sum(SYNC_WARNING in str(warning.message) for warning in caught)
