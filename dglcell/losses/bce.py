"""Binary cross-entropy, for phenotypes that are there or not."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from dglcell.errors import DataError
from dglcell.losses.gather import sum_over_ranks
from dglcell.losses.loss import Loss, LossTerms
from dglcell.losses.mean import label_sums, mean_cost
from dglcell.losses.weighted import WeightedConfig
from dglcell.models.prediction import Prediction


@dataclass
class BceConfig(WeightedConfig):
    """Binary cross-entropy; the model predicts logits, labels are 0 to 1 and are not normalised."""

    name: str = "bce"

    def predicts_logits(self) -> bool:
        """See ``LossConfig.predicts_logits``."""
        return True

    def check_labels(self, labels_ST: Tensor, phenotypes: tuple[str, ...]) -> None:
        """See ``LossConfig.check_labels``."""
        super().check_labels(labels_ST, phenotypes)
        for name, labels_S in zip(phenotypes, labels_ST.unbind(1), strict=True):
            labels_S = labels_S[~labels_S.isnan()]
            if len(labels_S) and not (labels_S.min() >= 0 and labels_S.max() <= 1):
                raise DataError(
                    f"`loss.name: bce`: labels of phenotype '{name}' are no probabilities",
                    got=f"{float(labels_S.min()):.4g} … {float(labels_S.max()):.4g}",
                    expected="0 … 1",
                    do="leave it out of `data.phenotypes`, or choose a loss for numbers, e.g. `loss.name: mse`",
                )


class BceLoss(Loss):
    """Mean of ``−y log σ(x) − (1 − y) log(1 − σ(x))`` over the labels that are there, of all ranks.

    Args:
        config: validated.
        epochs: of the whole training.
    """

    weight_T: Tensor | None

    def __init__(self, config: BceConfig, epochs: int) -> None:
        super().__init__()
        self.register_buffer("weight_T", config.weight_T(), persistent=False)

    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
        """NaN targets are missing. A batch without any label gives zero, with zero gradient."""
        present_BT = ~target_BT.isnan()
        label_BT = target_BT.masked_fill(~present_BT, 0.0)
        cost_BT = F.binary_cross_entropy_with_logits(
            prediction.phenotypes.to(label_BT.dtype), label_BT, reduction="none"
        )
        return LossTerms(mean_cost(sum_over_ranks(label_sums(cost_BT, present_BT)), self.weight_T))
