"""Weights of phenotypes, which most losses take."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dglcell.errors import ConfigError
from dglcell.losses.loss import LossConfig


@dataclass
class WeightedConfig(LossConfig):
    """A loss over phenotypes that need not count alike."""

    phenotype_weights: list[float] | None = None  # one per phenotype; every label counts alike where null

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        super().validate()
        weights = self.phenotype_weights
        if weights is not None and not (all(0 <= w < math.inf for w in weights) and sum(weights) > 0):
            raise ConfigError(
                "`loss.phenotype_weights` are no weights", got=weights, expected="0 or more each, not all of them 0"
            )

    def check_labels(self, labels_ST: Tensor, phenotypes: tuple[str, ...]) -> None:
        """See ``LossConfig.check_labels``."""
        super().check_labels(labels_ST, phenotypes)
        if self.phenotype_weights is not None and len(self.phenotype_weights) != len(phenotypes):
            raise ConfigError(
                "`loss.phenotype_weights` do not fit the phenotypes",
                got=self.phenotype_weights,
                expected=f"{len(phenotypes)}: one each for {', '.join(phenotypes)}",
            )

    def weight_T(self) -> Tensor | None:
        """[T] the weights as a tensor."""
        return None if self.phenotype_weights is None else torch.tensor(self.phenotype_weights)
