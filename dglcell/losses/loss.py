"""Define the base class of losses, sums over all ranks, and the losses that compare each label alone."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from dglcell.losses.config import LOSSES, DangoLossConfig, GaussianConfig, LossConfig, MaskedConfig
from dglcell.models.model import Prediction
from dglcell.plugins import class_of


@dataclass(frozen=True)
class LossTerms:
    """Hold a loss and its terms."""

    total: Tensor  #: scalar with gradient
    #: name → detached scalar, recorded per epoch as ``train/loss/<name>``
    terms: dict[str, Tensor] = field(default_factory=dict)


class Loss(nn.Module):
    """Compute a loss over labels of which some are missing, in normalised units.

    With several ranks it is the loss of all their batches together, the same number on each of them, and its gradient
    is right once DistributedDataParallel has averaged it. It is made with two arguments, ``config`` and ``epochs``, the
    number of the whole training.

    Attributes:
        Config: class of the loss section of a configuration.
        batch_size: most strains that a rank can have in a step; needed where ranks compare each other's strains.
    """

    Config: ClassVar[type[LossConfig]] = LossConfig
    batch_size: int | None = None

    def changes_by(self, epoch: int) -> Hashable:
        """Return what of an epoch the loss depends on; a GPU records a step anew where this is another."""
        return epoch

    @abstractmethod
    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
        """Compute the loss of one batch; zero, with zero gradient, where it has no label.

        Args:
            prediction: the model's prediction of B strains.
            target_BT: [B, T], NaN where missing.
            epoch: counted from 0.
        """


def make_loss(config: LossConfig, epochs: int, batch_size: int | None = None) -> Loss:
    """Make the loss of a configuration for a training of ``epochs``; for ``batch_size`` see ``Loss``."""
    loss: Loss = class_of("loss", config.name, LOSSES)(config, epochs)
    loss.batch_size = batch_size
    return loss


def make_saved(module: nn.Module, names: Iterable[str], state_dict: dict[str, Tensor], prefix: str) -> None:
    """Make buffers, which a module has only once it needed them, as a checkpoint has them; to be filled from it."""
    for name in names:
        saved = state_dict.get(prefix + name)
        setattr(module, name, None if saved is None else torch.empty_like(saved))


# Every rank that trains takes the loss of the *global* batch, the same number on all of them. DistributedDataParallel
# then averages their gradients; so what a rank's own values receive is multiplied by the number of ranks, and nothing
# needs to be sent in the backward pass. The result is the gradient that a single process has on the global batch.

_sees_all = False


@contextmanager
def all_rows_here() -> Iterator[None]:
    """Say that every rank has the rows of all, for the length of a ``with`` block: sums over the ranks are its own."""
    global _sees_all
    _sees_all = True
    try:
        yield
    finally:
        _sees_all = False


def world_size() -> int:
    """Return the number of processes whose rows belong together."""
    return 1 if _sees_all or not (dist.is_available() and dist.is_initialized()) else dist.get_world_size()


def sum_over_ranks(values: Tensor) -> Tensor:
    """Return the sum of the ranks' ``values``, on every rank; this is one small all-reduce."""
    return values if world_size() == 1 else _SumOverRanks.apply(values)


def gather_rows(rows_BX: Tensor) -> Tensor:
    """Return the ranks' ``rows``, as many of each, on every rank: all first rows come first, then the second rows.

    This is the order in which the ranks were dealt their strains: a buffer forgets the same ones as in one process.
    """
    return rows_BX if world_size() == 1 else _GatherRows.apply(rows_BX)


class _SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.detach().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * world_size()


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows_BX: Tensor) -> Tensor:
        rows_BX = rows_BX.detach().contiguous()
        everyone_RBX = rows_BX.new_empty(world_size(), *rows_BX.shape)
        dist.all_gather(list(everyone_RBX.unbind()), rows_BX)
        return everyone_RBX.transpose(0, 1).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0][dist.get_rank() :: world_size()] * world_size()


def mean_cost(sums_2T: Tensor) -> Tensor:
    """Return the scalar mean over all labels of what ``element_sums`` summed; zero where there is none."""
    total_T, count_T = sums_2T
    return total_T.sum() / count_T.sum().clamp(min=1)


# Losses label by label.

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

    def __init__(self, config: MaskedConfig, epochs: int) -> None:
        super().__init__()
        self.element = ELEMENTS[config.name]

    def changes_by(self, epoch: int) -> None:
        return None

    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
        return LossTerms(masked_mean(self.element, prediction.phenotypes, target_BT))


def masked_mean(element: Element, prediction_BT: Tensor, target_BT: Tensor) -> Tensor:
    """Return the mean of ``element`` over the labels of all ranks that are not missing; it is zero for none."""
    return mean_cost(sum_over_ranks(element_sums(element, prediction_BT, target_BT)))


def element_sums(element: Element, prediction_BT: Tensor, target_BT: Tensor) -> Tensor:
    """Return sums and numbers of ``element`` over this rank's labels, [2, T], without missing ones; parts add up."""
    present_BT, dtype = ~target_BT.isnan(), torch.promote_types(prediction_BT.dtype, target_BT.dtype)
    prediction_BT, target_BT = (x.masked_fill(~present_BT, 0.0).to(dtype) for x in (prediction_BT, target_BT))
    cost_BT = element(prediction_BT, target_BT)
    return torch.stack([cost_BT.masked_fill(~present_BT, 0.0).sum(0), present_BT.sum(0).to(cost_BT.dtype)])


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
            reconstruction = prediction.auxiliary["reconstruction"]()
            weighted = alpha * reconstruction
            terms |= {"reconstruction": reconstruction.detach(), "weighted_reconstruction": weighted.detach()}
            total = total + weighted
        return LossTerms(total, terms)
