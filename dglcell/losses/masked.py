"""Losses label by label, over labels of which some are missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from dglcell.losses.gather import sum_over_ranks
from dglcell.losses.huber import huber
from dglcell.losses.log_cosh import log_cosh
from dglcell.losses.loss import Loss, LossTerms
from dglcell.losses.mean import label_sums, mean_cost
from dglcell.losses.mse import squared_error
from dglcell.losses.weighted import WeightedConfig
from dglcell.models.prediction import Prediction

ELEMENTS: dict[str, Callable[[Tensor], Tensor]] = {"mse": squared_error, "huber": huber, "log_cosh": log_cosh}


@dataclass
class MaskedConfig(WeightedConfig):
    """An element-wise loss."""

    name: str = "mse"  # mse | huber | log_cosh


class MaskedLoss(Loss):
    """Mean of an element-wise loss over the labels that are there, of all ranks; see ``dglcell.losses.mean``.

    Args:
        config: names a key of ``ELEMENTS``.
        epochs: of the whole training.
    """

    weight_T: Tensor | None

    def __init__(self, config: MaskedConfig, epochs: int) -> None:
        super().__init__()
        self.element = ELEMENTS[config.name]
        self.register_buffer("weight_T", config.weight_T(), persistent=False)

    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
        """NaN targets are missing. A batch without any label gives zero, with zero gradient."""
        return LossTerms(masked_mean(self.element, prediction.phenotypes, target_BT, self.weight_T))


def masked_mean(
    element: Callable[[Tensor], Tensor], prediction_BT: Tensor, target_BT: Tensor, weight_T: Tensor | None = None
) -> Tensor:
    """Mean of ``element(prediction − target)`` over the labels that are there, of all ranks; zero where there is none.

    One all-reduce of 2 T numbers: a mean of the ranks' own means would count a label the more, the fewer its rank has.
    """
    return mean_cost(sum_over_ranks(element_sums(element, prediction_BT, target_BT)), weight_T)


def element_sums(element: Callable[[Tensor], Tensor], prediction_BT: Tensor, target_BT: Tensor) -> Tensor:
    """[2, T] sums and numbers of ``element(prediction − target)`` over the labels that are there, of this rank."""
    present_BT = ~target_BT.isnan()
    return label_sums(element((prediction_BT - target_BT).masked_fill(~present_BT, 0.0)), present_BT)
