"""Losses by name."""

from __future__ import annotations

from dglcell.losses.config import LossConfig
from dglcell.losses.coupled import DistributionLoss, MleWassSupcrLoss
from dglcell.losses.dango import DangoLoss
from dglcell.losses.elementwise import ELEMENTS, BceLoss, GaussianLoss, MaskedLoss
from dglcell.losses.loss import Loss
from dglcell.plugins import find_class

LOSSES: dict[str, type[Loss]] = {
    **dict.fromkeys(ELEMENTS, MaskedLoss),
    "bce": BceLoss,
    "gaussian": GaussianLoss,
    "mse_dist_supcr": DistributionLoss,
    "mle_dist_supcr": DistributionLoss,
    "mle_wass_supcr": MleWassSupcrLoss,
    "dango": DangoLoss,
}
"""`loss.name` → the loss; ``dglcell.losses.config.LOSS_CONFIGS`` says what its section may say."""


def make_loss(config: LossConfig, epochs: int, batch_size: int | None = None) -> Loss:
    """The loss of a configuration.

    Args:
        config: validated; a name that is none of ``LOSSES`` is a class of one's own.
        epochs: of the whole training, for schedules.
        batch_size: most strains that a rank can have in a training step; see ``Loss.batch_size``.
    """
    kind: type[Loss] = LOSSES.get(config.name) or find_class("loss", config.name)
    loss = kind(config, epochs)
    loss.batch_size = batch_size
    return loss
