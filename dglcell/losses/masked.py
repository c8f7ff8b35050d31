"""Losses element by element, over labels of which some are missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from dglcell.losses.huber import huber
from dglcell.losses.log_cosh import log_cosh
from dglcell.losses.loss import Loss, LossConfig, LossTerms
from dglcell.losses.mse import squared_error
from dglcell.models.prediction import Prediction

ELEMENTS: dict[str, Callable[[Tensor], Tensor]] = {"mse": squared_error, "huber": huber, "log_cosh": log_cosh}


@dataclass
class MaskedConfig(LossConfig):
    """An element-wise loss."""

    name: str = "mse"  # mse | huber | log_cosh


class MaskedLoss(Loss):
    """Mean of an element-wise loss over the labels that are there.

    Args:
        config: names a key of ``ELEMENTS``.
        epochs: of the whole training.
    """

    def __init__(self, config: MaskedConfig, epochs: int) -> None:
        super().__init__()
        self.element = ELEMENTS[config.name]

    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
        """NaN targets are missing. A batch without any label gives zero, with zero gradient."""
        return LossTerms(masked_mean(self.element, prediction.phenotypes, target_BT))


def masked_mean(element: Callable[[Tensor], Tensor], prediction_BT: Tensor, target_BT: Tensor) -> Tensor:
    """Mean of ``element(prediction − target)`` over the labels that are there; zero where there is none."""
    present_BT = ~target_BT.isnan()
    error_BT = (prediction_BT - target_BT).masked_fill(~present_BT, 0.0)
    return element(error_BT).sum() / present_BT.sum().clamp(min=1)
