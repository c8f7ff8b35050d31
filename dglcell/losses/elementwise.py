"""Compute losses label by label: squared error, Huber, cross-entropy, Gaussian likelihood, and that of DANGO."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from dglcell.losses.config import DangoLossConfig, GaussianConfig, MaskedConfig, WeightedConfig
from dglcell.losses.loss import Loss, LossTerms, label_sums, make_saved, mean_cost, phenotype_weights, sum_over_ranks
from dglcell.models.model import Prediction

Element = Callable[[Tensor, Tensor], Tensor]
"""An element-wise loss takes predictions and labels of one shape and type, and returns costs of this shape."""


def log_cosh(prediction: Tensor, target: Tensor) -> Tensor:
    """Return ``log cosh(error)``, as ``|e| + softplus(−2|e|) − log 2``: the direct form overflows from 89 on."""
    magnitude = (prediction - target).abs()
    return magnitude + F.softplus(-2 * magnitude) - math.log(2)


ELEMENTS: dict[str, Element] = {
    "mse": partial(F.mse_loss, reduction="none"),
    # Huber 1964, "Robust estimation of a location parameter": beyond one unit of the normalised label it is linear.
    "huber": partial(F.huber_loss, reduction="none"),
    "bce": partial(F.binary_cross_entropy_with_logits, reduction="none"),
}


class MaskedLoss(Loss):
    """Average an element-wise loss, a key of ``ELEMENTS``, over the labels of all ranks; ``bce`` predicts logits."""

    Config = MaskedConfig
    weight_T: Tensor | None

    def __init__(self, config: WeightedConfig, epochs: int) -> None:
        super().__init__()
        self.element = ELEMENTS[config.name]
        self.register_buffer("weight_T", phenotype_weights(config), persistent=False)

    def changes_by(self, epoch: int) -> None:
        return None

    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
        return LossTerms(masked_mean(self.element, prediction.phenotypes, target_BT, self.weight_T))


def masked_mean(element: Element, prediction_BT: Tensor, target_BT: Tensor, weight_T: Tensor | None = None) -> Tensor:
    """Return the mean of ``element`` over the labels of all ranks; missing ones are left out, and zero is of none.

    It takes one all-reduce of 2 T numbers: a mean of the ranks' means would give labels of ranks with few labels more
    weight.
    """
    return mean_cost(sum_over_ranks(element_sums(element, prediction_BT, target_BT)), weight_T)


def element_sums(element: Element, prediction_BT: Tensor, target_BT: Tensor) -> Tensor:
    """Return sums and numbers of ``element`` over this rank's labels, [2, T]; missing labels are left out."""
    present_BT, dtype = ~target_BT.isnan(), torch.promote_types(prediction_BT.dtype, target_BT.dtype)
    prediction_BT, target_BT = (x.masked_fill(~present_BT, 0.0).to(dtype) for x in (prediction_BT, target_BT))
    return label_sums(element(prediction_BT, target_BT), present_BT)


class GaussianLoss(Loss):
    r"""Compute the negative log-likelihood of normally distributed labels, with a noise level σ_t for each phenotype.

    The loss is the mean of ``(error² / σ_t² + log σ_t²) / 2`` over all ranks' labels that are not missing. σ_t² is the
    running mean of the phenotype's squared error in training, starting from 1, the variance of normalised labels. It is
    the value that maximises the likelihood. A precise screen counts more than a noisy one (Kendall et al. 2018, eq. 7,
    with the noise estimated instead of learned).
    """

    Config = GaussianConfig
    variance_T: Tensor | None

    def __init__(self, config: GaussianConfig, epochs: int) -> None:
        super().__init__()
        self.smallest, self.memory = config.smallest_sd**2, config.memory
        self.register_buffer("variance_T", None)

    def changes_by(self, epoch: int) -> None:
        return None

    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
        sums_2T = sum_over_ranks(element_sums(ELEMENTS["mse"], prediction.phenotypes, target_BT))
        (total_T, _), (seen_T, count_T) = sums_2T, sums_2T.detach()
        if self.variance_T is None:
            self.variance_T = torch.ones_like(total_T)
        variance_T = self.variance_T.clamp(min=self.smallest)
        cost = (total_T / variance_T + count_T * variance_T.log()).sum() / (2 * count_T.sum().clamp(min=1))
        if self.training:
            error_T = torch.where(count_T > 0, seen_T / count_T.clamp(min=1), self.variance_T)
            self.variance_T = self.variance_T.lerp(error_T, 1 / self.memory)
        return LossTerms(cost)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        make_saved(self, ["variance_T"], state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)


class DangoLoss(Loss):
    r"""Sum reconstruction and interaction, weighted by epoch.

    .. math:: \alpha_e \, L_\text{reconstruction} + (1 - \alpha_e)\,
        \operatorname{mean} \log\cosh (\hat y - y)

    With T the transition epoch, α is 1 before T and 0 after (``pre_then_post``), or falls from 1 along a line until T,
    to 0.5 (``linear_until_uniform``) or 0 (``linear_until_flipped``).

    In evaluation mode the loss is the interaction alone: it is the same function of predictions in every epoch, so that
    checkpoints, plateaus and early stopping compare like with like.
    """

    Config = DangoLossConfig

    def __init__(self, config: DangoLossConfig, epochs: int) -> None:
        super().__init__()
        self.config = config

    def changes_by(self, epoch: int) -> float:
        return self.config.alpha(epoch)

    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
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
