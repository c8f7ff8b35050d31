"""What is varied: one setting is one block of the results' table."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from dglcell.models.config import HeteroCellConfig

CONVS = ("gin", "sage")

GRID_BATCHES, GRID_HIDDEN, GRID_LAYERS = (8, 16, 28, 64, 256), (64, 128), (2, 3)


@dataclass(frozen=True)
class Setting:
    """One configuration, under which all methods are compared.

    Attributes:
        conv: ``gin`` or ``sage``.
        batch: B, strains per step; the wild type comes on top.
        hidden: H.
        layers: L.
        deletions: genes deleted in every strain; None for an experiment's own strains.
        device: ``cpu`` or ``cuda``.
        dtype: ``float32``, or ``bfloat16`` under autocast.
    """

    conv: str
    batch: int
    hidden: int
    layers: int
    deletions: int | None
    device: str = "cpu"
    dtype: str = "float32"

    def model(self, metabolism: bool) -> HeteroCellConfig:
        """The model's configuration: defaults, without dropout."""
        return HeteroCellConfig(
            hidden=self.hidden, layers=self.layers, conv=self.conv, metabolism=metabolism, dropout=0.0
        )

    def title(self) -> str:
        """One line for the table."""
        deletions = "the experiment's" if self.deletions is None else str(self.deletions)
        return (
            f"{self.conv}  B = {self.batch}  H = {self.hidden}  L = {self.layers}  "
            f"deletions = {deletions}  {self.dtype} on {self.device}"
        )


def settings(
    *,
    convs: Sequence[str],
    batches: Sequence[int],
    hidden: Sequence[int],
    layers: Sequence[int],
    deletions: Sequence[int | None],
    device: str,
    dtype: str,
) -> list[Setting]:
    """All combinations, the largest first.

    Memory that a method has freed is used again by the next one, but only in pieces that are no larger: from large
    to small nothing runs out of memory because of what ran before it.
    """
    combinations = itertools.product(convs, batches, hidden, layers, deletions)
    every = [Setting(c, b, h, n, k, device, dtype) for c, b, h, n, k in dict.fromkeys(combinations)]
    return sorted(every, key=lambda s: (s.batch * s.hidden, s.layers), reverse=True)
