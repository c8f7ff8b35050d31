"""Squared error, distribution matching and supervised contrast: within a batch, or with earlier strains as well."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from dglcell.errors import ConfigError
from dglcell.losses.coupled import CoupledLoss
from dglcell.losses.coupled_config import BufferedConfig, CoupledConfig
from dglcell.losses.distribution import distribution_matching


@dataclass
class DistributionConfig(CoupledConfig):
    """A ``CoupledConfig`` whose distance is the distribution matching."""

    distribution: float = 0.1  # weight of the distribution matching
    bandwidth: float = 0.5  # of the labels' density, in their standard deviations

    def validate(self) -> None:
        """See ``CoupledConfig.validate``."""
        super().validate()
        if not 0 < self.bandwidth < math.inf:
            raise ConfigError("`loss.bandwidth` must be positive", got=self.bandwidth, expected="e.g. 0.5")

    @property
    def distance_key(self) -> str:
        """See ``CoupledConfig.distance_key``."""
        return "distribution"


@dataclass
class IcConfig(DistributionConfig):
    """Squared error + distribution matching + SupCR, within a batch."""

    name: str = "ic"


@dataclass
class MleDistSupcrConfig(DistributionConfig, BufferedConfig):
    """Squared error + distribution matching + SupCR, the latter two over a buffer as well."""

    name: str = "mle_dist_supcr"
    min_samples: int | None = 64


class DistributionLoss(CoupledLoss):
    """``mse`` + ``distribution`` + ``supcr``; after ICLoss and MleDistSupCR of the torchcell project.

    There the gradient of the distribution matching had the wrong sign, predictions were sorted against labels in the
    other direction, and the labels' density was taken in steps of 1.0; see ``dglcell.losses.distribution``. What else
    differs is said in ``CoupledLoss``.

    Args:
        config: validated; a ``BufferedConfig`` compares earlier strains as well.
        epochs: of the whole training.
    """

    def __init__(self, config: DistributionConfig, epochs: int) -> None:
        super().__init__(config, epochs, partial(distribution_matching, bandwidth=config.bandwidth))
