"""Losses by name."""

from __future__ import annotations

from typing import NamedTuple

from dglcell.losses.dango import DangoLoss, DangoLossConfig
from dglcell.losses.loss import Loss, LossConfig
from dglcell.losses.masked import ELEMENTS, MaskedConfig, MaskedLoss


class LossKind(NamedTuple):
    """A loss and what its section of a configuration may say."""

    config: type[LossConfig]
    module: type[Loss]


LOSSES: dict[str, LossKind] = {
    **{name: LossKind(MaskedConfig, MaskedLoss) for name in ELEMENTS},
    "dango": LossKind(DangoLossConfig, DangoLoss),
}


def make_loss(config: LossConfig, epochs: int) -> Loss:
    """The loss of a configuration.

    Args:
        config: validated.
        epochs: of the whole training, for schedules.
    """
    return LOSSES[config.name].module(config, epochs)
