"""A loss that is not finite is found in the step it comes from, without waiting for the device in any step."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from dglcell.errors import DglcellError, listing

SHOWN = 20
"""Strains that the message names."""


@dataclass(frozen=True)
class BadBatch:
    """A batch with a loss that is not finite.

    Attributes:
        step: of the optimiser, from 1, that the batch is part of.
        epoch: from 1.
        batch: within the epoch, from 1.
        loss: its value.
        strains: their numbers in the data set.
    """

    step: int
    epoch: int
    batch: int
    loss: float
    strains: list[int]


@dataclass(frozen=True)
class _Pending:
    place: tuple[int, int, int]
    loss: Tensor  # on the host, as soon as the device has come there
    strains: Tensor
    arrived: torch.cuda.Event | None

    def is_there(self) -> bool:
        return self.arrived is None or self.arrived.query()


class LossWatch:
    """Losses of batches that the device may still be working on."""

    def __init__(self) -> None:
        self._pending: deque[_Pending] = deque()
        self._found: BadBatch | None = None

    def note(self, loss: Tensor, strains: Tensor, *, step: int, epoch: int, batch: int) -> None:
        """Begin to watch a batch; numbers as of ``BadBatch``."""
        loss, arrived = loss.detach(), None
        if loss.is_cuda:
            on_host = torch.empty(loss.shape, dtype=loss.dtype, pin_memory=True, device="cpu")
            on_host.copy_(loss, non_blocking=True)
            loss, arrived = on_host, torch.cuda.Event()
            arrived.record()
        self._pending.append(_Pending((step, epoch, batch), loss, strains, arrived))

    def found(self, *, wait: bool = False) -> BadBatch | None:
        """The first batch with a loss that is not finite, as far as the device has come.

        Args:
            wait: until it has come to the last one.
        """
        while self._found is None and self._pending and (wait or self._pending[0].is_there()):
            pending = self._pending.popleft()
            if pending.arrived is not None:
                pending.arrived.synchronize()
            loss = float(pending.loss)
            if not abs(loss) < float("inf"):
                self._found = BadBatch(*pending.place, loss, pending.strains.tolist())
        return self._found


def not_finite(bad: BadBatch, strains: list[int]) -> DglcellError:
    """The error of a loss that is not finite.

    Args:
        bad: where.
        strains: their numbers in the store, of all ranks.
    """
    return DglcellError(
        f"the training loss is not finite in epoch {bad.epoch}",
        got=f"{bad.loss} in step {bad.step}, batch {bad.batch}: strains {listing(strains, SHOWN)} of the store",
        do="lower `optimizer.lr`, set `trainer.clip`, or look for outliers with `dglcell data stats`; "
        "the checkpoints of earlier epochs are kept",
    )
