"""Predict by null models that are fitted once, before a model is trained, and then stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dglcell.perturbation.genotype import GenotypeBatch

Predictor = Callable[..., NDArray[np.float64]]
"""A predictor maps changed genes, offsets, strengths and conditions of S strains to their phenotypes, [S, T]."""


class NullShare(nn.Module):
    """Keep null models as bytes among the weights, so that a checkpoint needs nothing beside it.

    They compute in numpy. An evaluation on a GPU waits for them, and no training step does.

    Args:
        outputs: number T of phenotypes.
        seen: conditions that strains have → their categories.
        names: names of the null models to choose among; none for all that apply.

    Attributes:
        packed: the null models.
        shift, scale: [T] units in which the model predicts: (phenotype − shift) / scale.
        read: function that makes a predictor of the bytes; must be set before the first prediction.
    """

    packed: Tensor
    shift: Tensor
    scale: Tensor
    read: Callable[[bytes], Predictor] | None = None

    def __init__(
        self,
        outputs: int,
        seen: Mapping[str, Sequence[str]] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.names = tuple(names)
        self.seen = {name: tuple(categories) for name, categories in (seen or {}).items()}
        self.register_buffer("packed", torch.zeros(0, dtype=torch.uint8))
        self.register_buffer("shift", torch.zeros(outputs))
        self.register_buffer("scale", torch.ones(outputs))
        self._predictor: Predictor | None = None

    def make_room(self, size: int) -> None:
        """Give the bytes the size that they have in a checkpoint, whose values are then loaded."""
        self.packed = self.packed.new_zeros(size)
        self._predictor = None

    def take(self, packed: bytes, shift: Tensor, scale: Tensor) -> None:
        """Store null models, and the units of the model."""
        self.packed = torch.frombuffer(bytearray(packed), dtype=torch.uint8).to(self.packed.device)
        self.shift.copy_(shift)
        self.scale.copy_(scale)
        self._predictor = None

    def predictor(self) -> Predictor:
        """Return the predictor; it is read from the bytes when it is first asked for.

        Raises:
            ValueError: the bytes are no null models.
        """
        if self._predictor is None:
            assert self.read is not None
            self._predictor = self.read(self.packed.cpu().numpy().tobytes())
        return self._predictor

    @torch.no_grad()
    def forward(self, genotypes: GenotypeBatch) -> Tensor:
        """Return the predictions of the null models, in the units of the model, [B, T]."""
        offsets = genotypes.offsets.cpu().numpy()
        genes = genotypes.genes.cpu().numpy()[: offsets[-1]]
        left, values = genotypes.strengths, genotypes.conditions
        strengths = None if left is None else left.cpu().numpy()[: len(genes)]
        conditions = {} if values is None else dict(zip(self.seen.items(), values.cpu().numpy().T, strict=True))
        found = self.predictor()(genes, offsets, strengths, conditions)
        return (torch.as_tensor(found).to(self.shift) - self.shift) / self.scale
