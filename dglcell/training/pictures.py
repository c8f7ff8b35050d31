"""Pictures of the validation part while a model learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from dglcell.plots import Embedding, Predictions, Subject, epoch_picture
from dglcell.training.directory import RunDirectory


@dataclass(frozen=True)
class EpochPictures:
    """Draws after every so many epochs.

    Attributes:
        directory: of the run.
        title: names the run.
        every: epochs from one picture to the next; 0: none is drawn.
        units: phenotype → unit.
        points: single points in a panel at most.
        seed: of their choice.
    """

    directory: RunDirectory
    title: str
    every: int
    units: dict[str, str]
    points: int
    seed: int

    def due(self, epoch: int) -> bool:
        """Whether ``epoch``, counted from 0, is to be drawn."""
        return self.every > 0 and (epoch + 1) % self.every == 0

    def draw(
        self,
        epoch: int,
        phenotypes: Sequence[str],
        predicted_ST: Tensor,
        measured_ST: Tensor,
        embedding_SD: Tensor | None,
    ) -> None:
        """Draw the validation part.

        Args:
            epoch: counted from 0.
            phenotypes: T names.
            predicted_ST, measured_ST: in original units, NaN where not measured.
            embedding_SD: of the same strains, if the model has one.
        """
        predicted, measured = predicted_ST.cpu().numpy(), measured_ST.cpu().numpy()
        unknown = np.zeros(len(predicted), dtype=np.int64)  # numbers of deletions, which no panel here shows
        subjects = [
            Subject(
                Predictions(measured[:, t], predicted[:, t], unknown), name, self.units.get(name, ""), "validation",
                self.points,
            )
            for t, name in enumerate(phenotypes)
        ]  # fmt: skip
        embedding = None
        if embedding_SD is not None:
            embedding = Embedding(np.arange(len(predicted)), embedding_SD.cpu().numpy())
        path = self.directory.epoch_picture(epoch + 1)
        epoch_picture(path, f"{self.title}, epoch {epoch + 1}", subjects, embedding, self.seed)
