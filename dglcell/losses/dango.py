"""DANGO's loss: the networks' reconstruction first, the phenotypes after."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from dglcell.errors import ConfigError
from dglcell.losses.log_cosh import log_cosh
from dglcell.losses.loss import Loss, LossConfig, LossTerms
from dglcell.losses.masked import masked_mean
from dglcell.models.prediction import Prediction

FINAL_ALPHA = {"pre_then_post": 0.0, "linear_until_uniform": 0.5, "linear_until_flipped": 0.0}
"""Schedule → weight of the reconstruction from the transition on."""


@dataclass
class DangoLossConfig(LossConfig):
    """Reconstruction and interaction, weighted by epoch; defaults as in experiment 006 of the torchcell project."""

    name: str = "dango"
    schedule: str = "linear_until_uniform"  # pre_then_post | linear_until_uniform | linear_until_flipped
    transition_epoch: int = 10  # T, from which on the weights stay as they are
    final_alpha: float | None = (
        None  # weight of the reconstruction from then on; the schedule's own (0, 0.5, 0) where null
    )

    def validate(self) -> None:
        """Check values.

        Raises:
            ConfigError: naming the key.
        """
        if self.schedule not in FINAL_ALPHA:
            raise ConfigError("`loss.schedule` is unknown", got=self.schedule, expected=", ".join(FINAL_ALPHA))
        if self.transition_epoch < 0:
            raise ConfigError("`loss.transition_epoch` is negative", got=self.transition_epoch, expected="0 or more")
        if self.final_alpha is not None and not 0 <= self.final_alpha <= 1:
            raise ConfigError("`loss.final_alpha` is no share", got=self.final_alpha, expected="0 to 1, or null")

    def needs(self) -> frozenset[str]:
        """See ``LossConfig.needs``."""
        return frozenset({"reconstruction"})

    def alpha(self, epoch: int) -> float:
        """Weight of the reconstruction in an epoch, counted from 0."""
        final = FINAL_ALPHA[self.schedule] if self.final_alpha is None else self.final_alpha
        if epoch >= self.transition_epoch:
            return final
        return 1.0 if self.schedule == "pre_then_post" else 1.0 - (1.0 - final) * epoch / self.transition_epoch


class DangoLoss(Loss):
    r"""The sum of reconstruction and interaction, weighted by epoch.

    .. math:: \alpha_e \, L_\text{reconstruction} + (1 - \alpha_e)\,
        \operatorname{mean} \log\cosh (\hat y - y)

    With T the transition epoch, α is 1 before T and 0 after (``pre_then_post``), or falls from 1 along a line until T,
    to 0.5 (``linear_until_uniform``) or 0 (``linear_until_flipped``).

    In evaluation mode the loss is the interaction alone: it is the same function of predictions in every epoch, so that
    checkpoints, plateaus and early stopping compare like with like.

    Args:
        config: validated.
        epochs: of the whole training.
    """

    def __init__(self, config: DangoLossConfig, epochs: int) -> None:
        super().__init__()
        self.config = config

    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
        """NaN targets are missing."""
        alpha, interaction = self.config.alpha(epoch), masked_mean(log_cosh, prediction.phenotypes, target_BT)
        if not self.training:
            return LossTerms(interaction, {"interaction": interaction.detach()})
        total = (1 - alpha) * interaction
        terms = {
            "interaction": interaction.detach(),
            "weighted_interaction": total.detach(),
            "alpha": torch.full_like(interaction.detach(), alpha),
        }
        # Several devices expect a gradient of every parameter, zeros too; else what counts for nothing is not computed.
        if alpha > 0 or dist.is_initialized():
            reconstruction = prediction.auxiliary["reconstruction"]
            weighted = alpha * reconstruction
            terms |= {"reconstruction": reconstruction.detach(), "weighted_reconstruction": weighted.detach()}
            total = total + weighted
        return LossTerms(total, terms)
