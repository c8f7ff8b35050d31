"""Compute DANGO's loss, which weighs the networks' reconstruction first and the phenotypes after."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from dglcell.losses.config import DangoLossConfig
from dglcell.losses.elementwise import log_cosh, masked_mean
from dglcell.losses.loss import Loss, LossTerms
from dglcell.models.model import Prediction


class DangoLoss(Loss):
    r"""Sum reconstruction and interaction, weighted by epoch.

    .. math:: \alpha_e \, L_\text{reconstruction} + (1 - \alpha_e)\,
        \operatorname{mean} \log\cosh (\hat y - y)

    With T the transition epoch, α is 1 before T and 0 after (``pre_then_post``), or falls from 1 along a line until T,
    to 0.5 (``linear_until_uniform``) or 0 (``linear_until_flipped``).

    In evaluation mode the loss is the interaction alone: it is the same function of predictions in every epoch, so that
    checkpoints, plateaus and early stopping compare like with like.

    Args:
        config: validated.
        epochs: number of epochs of the whole training.
    """

    Config = DangoLossConfig

    def __init__(self, config: DangoLossConfig, epochs: int) -> None:
        super().__init__()
        self.config = config

    def changes_by(self, epoch: int) -> float:
        return self.config.alpha(epoch)

    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
        """Compute the loss; NaN targets are missing."""
        alpha, interaction = self.config.alpha(epoch), masked_mean(log_cosh, prediction.phenotypes, target_BT)
        if not self.training:
            return LossTerms(interaction, {"interaction": interaction.detach()})
        total = (1 - alpha) * interaction
        terms = {
            "interaction": interaction.detach(),
            "weighted_interaction": total.detach(),
            "alpha": torch.full_like(interaction.detach(), alpha),
        }
        # Several devices expect a gradient of every parameter, even of zeros; one device skips a weight of 0.
        if alpha > 0 or dist.is_initialized():
            reconstruction = prediction.auxiliary["reconstruction"]
            weighted = alpha * reconstruction
            terms |= {"reconstruction": reconstruction.detach(), "weighted_reconstruction": weighted.detach()}
            total = total + weighted
        return LossTerms(total, terms)
