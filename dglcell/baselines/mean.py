"""Null model: every strain has the mean label of the training part."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dglcell.baselines.strains import Strains, labelled


@dataclass
class TrainingMean:
    """y = mean of the training labels."""

    mean: float = field(default=0.0, init=False)

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from the labelled strains; missing labels (NaN) are ignored."""
        self.mean = float(labelled(strains, y)[1].mean())
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """[S] predictions in the units of the labels."""
        return np.full(len(strains), self.mean)
