"""Define the base class of losses, weights of phenotypes, missing labels, and sums over all ranks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dglcell.losses.config import LOSSES, LossConfig, WeightedConfig
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
    kind: type[Loss] = class_of("loss", config.name, LOSSES)
    loss = kind(config, epochs)
    loss.batch_size = batch_size
    return loss


def make_saved(module: nn.Module, names: Iterable[str], state_dict: dict[str, Tensor], prefix: str) -> None:
    """Make buffers, which a module has only once it needed them, as a checkpoint has them; to be filled from it."""
    for name in names:
        saved = state_dict.get(prefix + name)
        setattr(module, name, None if saved is None else torch.empty_like(saved))


# Sums and rows over all ranks, with gradients.
#
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
    """Return the ranks' ``rows``, on every rank; each rank must have as many.

    The first row of every rank comes first, then the second rows: this is the order in which the ranks were dealt their
    strains. What depends on it (which strains a buffer forgets) is then as in a single process.
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


def label_sums(cost_BT: Tensor, present_BT: Tensor) -> Tensor:
    """Return sums and numbers of the costs of the labels that are not missing, [2, T]; those of parts add up."""
    return torch.stack([cost_BT.masked_fill(~present_BT, 0.0).sum(0), present_BT.sum(0).to(cost_BT.dtype)])


def mean_cost(sums_2T: Tensor, weight_T: Tensor | None) -> Tensor:
    """Return the scalar mean of what ``label_sums`` summed; zero where there is no label.

    Without weights every label counts alike. With weights it is the weighted mean over the phenotypes that have
    labels, each with the mean of its own, however many these are.
    """
    total_T, count_T = sums_2T
    if weight_T is None:
        return total_T.sum() / count_T.sum().clamp(min=1)
    return mean_over_phenotypes(total_T / count_T.clamp(min=1), count_T > 0, weight_T)


def mean_over_phenotypes(cost_T: Tensor, counts_T: Tensor, weight_T: Tensor | None) -> Tensor:
    """Return the scalar mean over the phenotypes that count, weighted where weights are given; zero where none does."""
    weight_T = counts_T.to(cost_T.dtype) if weight_T is None else weight_T * counts_T
    whole = weight_T.sum()
    return (cost_T * weight_T).sum() / whole.masked_fill(whole == 0, 1.0)


def phenotype_weights(config: WeightedConfig) -> Tensor | None:
    """Return the weights of phenotypes that a configuration gives, [T]; None where every label counts alike."""
    return None if config.phenotype_weights is None else torch.tensor(config.phenotype_weights)
