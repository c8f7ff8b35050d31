"""Squared error, distribution matching and supervised contrast within a batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dglcell.losses.coupled import CoupledLoss
from dglcell.losses.coupled_config import CoupledConfig, check_bandwidth
from dglcell.losses.distribution import distribution_matching


@dataclass
class IcConfig(CoupledConfig):
    """Squared error + distribution matching + SupCR, within a batch."""

    name: str = "ic"
    distribution: float = 0.1  # weight of the distribution matching
    bandwidth: float = 0.5  # of the labels' density, in their standard deviations

    def validate(self) -> None:
        """See ``CoupledConfig.validate``."""
        super().validate()
        check_bandwidth(self.bandwidth)

    @property
    def distance_key(self) -> str:
        """See ``CoupledConfig.distance_key``."""
        return "distribution"


class IcLoss(CoupledLoss):
    """``mse`` + ``distribution`` + ``supcr``, without a buffer; after ICLoss of the torchcell project.

    There the gradient of the distribution matching had the wrong sign, predictions were sorted against labels in the
    other direction, and the labels' density was taken in steps of 1.0; see ``dglcell.losses.distribution``.

    Args:
        config: validated.
        epochs: of the whole training.
    """

    def __init__(self, config: IcConfig, epochs: int) -> None:
        super().__init__(config, epochs, partial(distribution_matching, bandwidth=config.bandwidth))
