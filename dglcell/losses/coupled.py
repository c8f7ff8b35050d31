"""Losses that compare the strains of a batch with each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dglcell.losses.coupled_config import BufferedConfig, CoupledConfig
from dglcell.losses.loss import Loss, LossTerms
from dglcell.losses.masked import element_sums
from dglcell.losses.mean import mean_cost, mean_over_phenotypes
from dglcell.losses.mse import squared_error
from dglcell.losses.row_buffer import RowBuffer
from dglcell.losses.rows import Rows
from dglcell.losses.schedules import buffer_share, temperature_at
from dglcell.losses.supcr import supcr
from dglcell.models.prediction import Prediction

Distance = Callable[[Tensor, Tensor], Tensor]
"""Predictions [T, N], labels [T, N] (NaN where missing) → [T]."""


class CoupledLoss(Loss):
    r"""λ₁ · squared error + λ₂ · distance between the distributions of predictions and labels + λ₃ · SupCR.

    All terms are over the batches of all ranks together; a phenotype takes part in the last two if at least two of its
    labels are compared. The squared error is over the batch alone; the other two also compare earlier strains of
    training where the configuration has a buffer:

    - The distance takes the batch's n strains and the newest ⌊n w / (1 − w)⌋ of the buffer, w from ``buffer_share``.
      They are the least outdated, and the same on every rank.
    - SupCR takes the whole buffer; its weight is then multiplied by 1 − w/2.
    - Without ``adaptive`` both take the whole buffer, with their own weights.
    - Until ``min_samples`` labelled strains were seen, both are zero, without gradient.
    - In evaluation a batch is compared with itself alone, with the weights of the configuration and the temperature
      that the schedule leads to: no label of training enters a figure of validation, which is the same function of
      predictions in every epoch.

    In training τ and w are recorded among the terms, as ``temperature`` and ``buffer_share``.

    After the losses of the torchcell project, where ranks compared each other's strains without gradient.

    Args:
        config: validated.
        epochs: of the whole training.
        distance: between distributions.
    """

    weight_T: Tensor | None

    def __init__(self, config: CoupledConfig, epochs: int, distance: Distance) -> None:
        super().__init__()
        self.config, self.epochs, self.distance = config, epochs, distance
        self.distance_weight = float(getattr(config, config.distance_key))
        self.register_buffer("weight_T", config.weight_T(), persistent=False)
        self.buffer = RowBuffer(config.buffer_size) if isinstance(config, BufferedConfig) else None

    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
        """NaN targets are missing."""
        config = self.config
        batch = Rows.of(prediction, target_BT, embeds=config.supcr > 0)
        batch = batch.gather(self.batch_size if self.training else None)
        weighted: dict[str, tuple[float, Tensor]] = {}
        if config.mse > 0:
            sums_2T = element_sums(squared_error, batch.prediction, batch.target)
            weighted["mse"] = (config.mse, mean_cost(sums_2T, self.weight_T))
        compared = self._compare(batch, epoch)
        if self.distance_weight > 0:
            rows = compared.for_distance
            costs_T = self.distance(rows.prediction.T.contiguous(), rows.target.T.contiguous())
            weighted[config.distance_key] = (self.distance_weight, self._mean(costs_T, rows, compared.enough))
        if config.supcr > 0:
            rows = compared.for_supcr
            costs_T = supcr(rows.embedding, rows.target.T.contiguous(), self.temperature(epoch))
            weighted["supcr"] = (config.supcr * compared.supcr_factor, self._mean(costs_T, rows, compared.enough))
        total = torch.stack([weight * term for weight, term in weighted.values()]).sum()
        terms = {name: term.detach() for name, (_, term) in weighted.items()}
        return LossTerms(total, terms | self._schedules(epoch, like=total.detach()))

    def temperature(self, epoch: int) -> float:
        """τ of an epoch; the last in evaluation."""
        config, epoch = self.config, epoch if self.training else self.epochs
        start, end, schedule = config.temperature, config.temperature_final, config.temperature_schedule
        return temperature_at(epoch, self.epochs, start, end, schedule)

    def share(self, epoch: int) -> float | None:
        """w of an epoch of training; None without a buffer that follows it."""
        config = self.config
        if not isinstance(config, BufferedConfig) or not (config.adaptive and config.buffer_size):
            return None
        return buffer_share(epoch, self.epochs, config.adaptive_warmup, config.adaptive_stable)

    def _schedules(self, epoch: int, like: Tensor) -> dict[str, Tensor]:
        """What of the loss changes with the epoch, for the record of training."""
        if not self.training:
            return {}
        values = {
            "temperature": self.temperature(epoch) if self.config.supcr > 0 else None,
            "buffer_share": self.share(epoch),
        }
        return {name: torch.full_like(like, value) for name, value in values.items() if value is not None}

    def _mean(self, costs_T: Tensor, rows: Rows, enough: Tensor | None) -> Tensor:
        cost = mean_over_phenotypes(costs_T, rows.present.sum(0) >= 2, self.weight_T)
        return cost if enough is None else torch.where(enough, cost, 0.0)

    def _compare(self, batch: Rows, epoch: int) -> Compared:
        """Put buffered strains beside the batch, then the batch into the buffer."""
        config, buffer = self.config, self.buffer
        if buffer is None or not self.training:
            return Compared(batch, batch)
        assert isinstance(config, BufferedConfig)
        share = self.share(epoch)
        labelled = batch.present.any(1).sum()
        count = None if share is None else (labelled.double() * (share / (1 - share))).floor()
        few, many = batch + buffer.newest(count, like=batch), batch + buffer.newest(None, like=batch)
        buffer.add(batch)
        return Compared(few, many, buffer.seen >= config.enough, 1.0 if share is None else 1 - share / 2)


@dataclass(frozen=True)
class Compared:
    """Which strains are compared with each other.

    Attributes:
        for_distance: by their predictions.
        for_supcr: by their embeddings.
        enough: [] whether there are enough; always where None.
        supcr_factor: by which the weight of the contrast is multiplied.
    """

    for_distance: Rows
    for_supcr: Rows
    enough: Tensor | None = None
    supcr_factor: float = 1.0
