"""Squared error, distribution matching and supervised contrast with a buffer of earlier strains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dglcell.losses.coupled import CoupledLoss
from dglcell.losses.coupled_config import BufferedConfig, check_bandwidth
from dglcell.losses.distribution import distribution_matching


@dataclass
class MleDistSupcrConfig(BufferedConfig):
    """Squared error + distribution matching + SupCR, the latter two over a buffer as well."""

    name: str = "mle_dist_supcr"
    min_samples: int | None = 64
    distribution: float = 0.1  # weight of the distribution matching
    bandwidth: float = 0.5  # of the labels' density, in their standard deviations

    def validate(self) -> None:
        """See ``BufferedConfig.validate``."""
        super().validate()
        check_bandwidth(self.bandwidth)

    @property
    def distance_key(self) -> str:
        """See ``CoupledConfig.distance_key``."""
        return "distribution"


class MleDistSupcrLoss(CoupledLoss):
    """``mse`` + ``distribution`` + ``supcr`` with a buffer; after MleDistSupCR of the torchcell project.

    What differs from it is said in ``CoupledLoss`` and ``dglcell.losses.distribution``.

    Args:
        config: validated.
        epochs: of the whole training.
    """

    def __init__(self, config: MleDistSupcrConfig, epochs: int) -> None:
        super().__init__(config, epochs, partial(distribution_matching, bandwidth=config.bandwidth))
