"""Losses by name."""

from __future__ import annotations

from typing import NamedTuple

from dglcell.losses.config import (
    BceConfig,
    DangoLossConfig,
    IcConfig,
    LossConfig,
    MaskedConfig,
    MleDistSupcrConfig,
    MleWassSupcrConfig,
)
from dglcell.losses.coupled import DistributionLoss, MleWassSupcrLoss
from dglcell.losses.dango import DangoLoss
from dglcell.losses.elementwise import ELEMENTS, BceLoss, MaskedLoss
from dglcell.losses.loss import Loss


class LossKind(NamedTuple):
    """A loss and what its section of a configuration may say."""

    config: type[LossConfig]
    module: type[Loss]


LOSSES: dict[str, LossKind] = {
    **{name: LossKind(MaskedConfig, MaskedLoss) for name in ELEMENTS},
    "bce": LossKind(BceConfig, BceLoss),
    "ic": LossKind(IcConfig, DistributionLoss),
    "mle_dist_supcr": LossKind(MleDistSupcrConfig, DistributionLoss),
    "mle_wass_supcr": LossKind(MleWassSupcrConfig, MleWassSupcrLoss),
    "dango": LossKind(DangoLossConfig, DangoLoss),
}


def make_loss(config: LossConfig, epochs: int, batch_size: int | None = None) -> Loss:
    """The loss of a configuration.

    Args:
        config: validated.
        epochs: of the whole training, for schedules.
        batch_size: most strains that a rank can have in a training step; see ``Loss.batch_size``.
    """
    loss = LOSSES[config.name].module(config, epochs)
    loss.batch_size = batch_size
    return loss
