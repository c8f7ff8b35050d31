"""Squared error, Wasserstein distance and supervised contrast with a buffer of earlier strains."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dglcell.errors import ConfigError
from dglcell.losses.coupled import CoupledLoss
from dglcell.losses.coupled_config import BufferedConfig
from dglcell.losses.wasserstein import transport_cost

ORDERS = (1, 2)


@dataclass
class MleWassSupcrConfig(BufferedConfig):
    """Squared error + Wasserstein distance + SupCR, the latter two over a buffer as well."""

    name: str = "mle_wass_supcr"
    supcr: float = 0.0
    temperature: float = 1.0
    temperature_schedule: str = "exponential"
    wasserstein: float = 0.1  # weight of the distance
    p: int = 2  # its order: 1, or 2 for half the squared distance

    def validate(self) -> None:
        """See ``BufferedConfig.validate``."""
        super().validate()
        if self.p not in ORDERS:
            raise ConfigError("`loss.p` is no order of the distance", got=self.p, expected="1 or 2")

    @property
    def distance_key(self) -> str:
        """See ``CoupledConfig.distance_key``."""
        return "wasserstein"


class MleWassSupcrLoss(CoupledLoss):
    """``mse`` + ``wasserstein`` + ``supcr`` with a buffer; after MleWassSupCR of the torchcell project.

    The distance is exact, where that project's was a Sinkhorn divergence with a blur of 0.05, on the same scale. What
    else differs is said in ``CoupledLoss``.

    Args:
        config: validated.
        epochs: of the whole training.
    """

    def __init__(self, config: MleWassSupcrConfig, epochs: int) -> None:
        def distance(prediction_TN: Tensor, target_TN: Tensor) -> Tensor:
            present_TN = ~target_TN.isnan()
            return transport_cost(prediction_TN, target_TN, present_TN, present_TN, config.p)

        super().__init__(config, epochs, distance)
