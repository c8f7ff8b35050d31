"""Losses over labels of which some are missing."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from dglcell.errors import ConfigError
from dglcell.losses.huber import huber
from dglcell.losses.log_cosh import log_cosh
from dglcell.losses.mse import squared_error

LOSSES: dict[str, Callable[[Tensor], Tensor]] = {"mse": squared_error, "huber": huber, "log_cosh": log_cosh}


class MaskedLoss:
    """Mean of an element-wise loss over the labels that are there.

    Args:
        name: a key of ``LOSSES``.

    Raises:
        ConfigError: unknown name.
    """

    def __init__(self, name: str) -> None:
        if name not in LOSSES:
            raise ConfigError("`loss` is unknown", got=name, expected=", ".join(LOSSES))
        self.element = LOSSES[name]

    def __call__(self, prediction_BT: Tensor, target_BT: Tensor) -> Tensor:
        """Scalar loss; NaN targets are missing. A batch without any label gives zero, with zero gradient."""
        present_BT = ~target_BT.isnan()
        error_BT = (prediction_BT - target_BT).masked_fill(~present_BT, 0.0)
        return self.element(error_BT).sum() / present_BT.sum().clamp(min=1)
