"""Compute losses that compare the strains of a batch, and of earlier batches, with each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dglcell.losses.config import CoupledConfig, MleWassSupcrConfig
from dglcell.losses.loss import ELEMENTS, Loss, LossTerms, element_sums, gather_rows, make_saved, mean_cost, world_size
from dglcell.models.model import Prediction

BANDWIDTH = 0.5
"""Standard deviation of the Gaussians in the labels' density, in standard deviations of the labels."""


def distribution_matching(prediction_TN: Tensor, target_TN: Tensor) -> Tensor:
    """Return the mean squared difference between the n sorted predictions and the label quantiles at (i − ½)/n, [T].

    The method is that of Nie et al. 2024, *Dist Loss: Enhancing regression in few-shot region through distribution
    distance constraint*. Where a label is missing (NaN), neither it nor its prediction counts; 0 where all are.
    """
    return _mean_in_order(prediction_TN, label_quantiles(target_TN), target_TN)


def transport_cost(prediction_TN: Tensor, target_TN: Tensor) -> Tensor:
    r"""Return the exact cost :math:`\tfrac12 W_2^2` of moving the predictions onto the labels, [T].

    On a line the best plan keeps the order (Peyré and Cuturi 2019, *Computational optimal transport*, §2.6). Half the
    squared distance is what geomloss' ``SamplesLoss`` comes to for a vanishing blur.
    Where a label is missing (NaN), neither it nor its prediction counts; 0 where all are.
    """
    in_order_TN = target_TN.nan_to_num(math.inf).sort(-1).values
    return 0.5 * _mean_in_order(prediction_TN, in_order_TN, target_TN)


def _mean_in_order(prediction_TN: Tensor, ordered_TN: Tensor, target_TN: Tensor) -> Tensor:
    """Return the mean squared difference between sorted predictions and ``ordered``, where labels are there."""
    present_TN = ~target_TN.isnan()
    count_T1 = present_TN.sum(-1, keepdim=True)
    sorted_TN = prediction_TN.masked_fill(~present_TN, math.inf).sort(-1).values
    left_out_TN = torch.arange(target_TN.shape[-1], device=target_TN.device) >= count_T1
    error_TN = (sorted_TN - ordered_TN).masked_fill(left_out_TN, 0.0)
    return error_TN.square().sum(-1) / count_T1.squeeze(-1).clamp(min=1)


@torch.no_grad()
def label_quantiles(target_TN: Tensor) -> Tensor:
    """Return quantiles (i − ½)/n of the density of n labels, between the smallest and the largest, [T, N] ascending.

    The density is a sum of Gaussians whose standard deviation is ``BANDWIDTH`` times the labels' (n − 1 in its
    denominator), as of ``scipy.stats.gaussian_kde`` with a number for ``bw_method``. Its distribution function is
    taken at 512 points over the range of the labels and inverted linearly. Labels are NaN where missing, and values
    from position n on have no meaning.
    """
    present_TN = ~target_TN.isnan()
    count_T1 = present_TN.sum(-1, keepdim=True).clamp(min=1)
    low_T1 = target_TN.masked_fill(~present_TN, math.inf).amin(-1, keepdim=True)
    high_T1 = target_TN.masked_fill(~present_TN, -math.inf).amax(-1, keepdim=True)
    labels_TN = torch.where(present_TN, target_TN, 0.0)
    mean_T1 = labels_TN.sum(-1, keepdim=True) / count_T1
    deviation_TN = (labels_TN - mean_T1).masked_fill(~present_TN, 0.0)
    sd_T1 = (deviation_TN.square().sum(-1, keepdim=True) / (count_T1 - 1).clamp(min=1)).sqrt()
    smallest = torch.finfo(target_TN.dtype).tiny
    share_G = torch.linspace(0, 1, 512, dtype=target_TN.dtype, device=target_TN.device)
    grid_TG = torch.lerp(low_T1, high_T1, share_G)
    scaled_TGN = (grid_TG.unsqueeze(2) - labels_TN.unsqueeze(1)) / (BANDWIDTH * sd_T1).clamp(min=smallest).unsqueeze(2)
    cdf_TG = torch.special.ndtr(scaled_TGN).masked_fill(~present_TN.unsqueeze(1), 0.0).sum(-1)
    # Only the density between the labels counts: the function runs from 0 to 1 there.
    cdf_TG = cdf_TG - cdf_TG[:, :1]
    cdf_TG = cdf_TG / cdf_TG[:, -1:].clamp(min=smallest)
    level_TN = (torch.arange(target_TN.shape[-1], dtype=target_TN.dtype, device=target_TN.device) + 0.5) / count_T1
    right_TN = torch.searchsorted(cdf_TG.contiguous(), level_TN.contiguous()).clamp(1, cdf_TG.shape[-1] - 1)
    left_TN = right_TN - 1
    low_TN, high_TN = cdf_TG.gather(-1, left_TN), cdf_TG.gather(-1, right_TN)
    share_TN = (level_TN - low_TN) / (high_TN - low_TN).clamp(min=smallest)
    return torch.lerp(grid_TG.gather(-1, left_TN), grid_TG.gather(-1, right_TN), share_TN.clamp(0, 1))


def supcr(embedding_ND: Tensor, target_TN: Tensor, temperature: float) -> Tensor:
    r"""Return SupCR, [T]: the mean contrastive loss over pairs i and j ≠ i, for each phenotype.

    In a pair, j is compared with all strains that are at least as far from i by their labels.

    .. math:: -\log \frac{\exp s_{ij}}{\sum_{k \ne i,\; d_{ik} \ge d_{ij}} \exp s_{ik}},\qquad
              s_{ij} = \cos(e_i, e_j) / \tau,\quad d_{ij} = |y_i - y_j|

    Zha et al. 2023, *Rank-N-Contrast: Learning continuous representations for regression*, eq. 1 with cosines. All
    denominators of an i are sums over the ends of one sorted row; strains at equal distances are in each other's
    denominators. The computation is in logarithms, so that no temperature makes it overflow or vanish.

    An embedding of zeros has cosine 0 with every other. Labels are NaN where missing; with fewer than two, it is 0.
    """
    present_TN = ~target_TN.isnan()
    pair_TNN = present_TN.unsqueeze(2) & present_TN.unsqueeze(1)
    pair_TNN = pair_TNN & ~torch.eye(len(embedding_ND), dtype=torch.bool, device=embedding_ND.device)
    distance_TNN = (target_TN.unsqueeze(2) - target_TN.unsqueeze(1)).abs()
    # Entries that are no pairs come first, so that they are in no denominator of a pair.
    distance_TNN, order_TNN = distance_TNN.masked_fill(~pair_TNN, -1.0).sort(dim=-1)
    with torch.autocast(embedding_ND.device.type, enabled=False):
        length_N1 = torch.linalg.vector_norm(embedding_ND, dim=-1, keepdim=True)
        unit_ND = embedding_ND / length_N1.masked_fill(length_N1 == 0, math.inf)  # zeros stay zeros
        similarity_NN = unit_ND @ unit_ND.T / temperature
    similarity_TNN = similarity_NN.expand_as(order_TNN).gather(-1, order_TNN)
    tail_TNN = similarity_TNN.flip(-1).logcumsumexp(-1).flip(-1)
    # Of strains at equal distances, the first in the row has the denominator of all.
    position_N = torch.arange(distance_TNN.shape[-1], device=distance_TNN.device)
    differs_TNN = F.pad(distance_TNN[..., 1:] != distance_TNN[..., :-1], (1, 0))
    first_TNN = torch.where(differs_TNN, position_N, 0).cummax(-1).values
    cost_TNN = tail_TNN.gather(-1, first_TNN) - similarity_TNN
    pairs_T = pair_TNN.sum((1, 2))
    return cost_TNN.masked_fill(distance_TNN < 0, 0.0).sum((1, 2)) / pairs_T.clamp(min=1)


def buffer_share(epoch: int, epochs: int) -> float:
    r"""Return w, the share of buffered strains among those compared, small while predictions still change quickly.

    In the first tenth of all epochs it rises from 0.1 to 0.3 in a straight line. Until half of them it is
    :math:`0.3 + 0.6\,\sigma(10 (p - \tfrac12))` with p from 0 to 1, and 0.9 from there on.
    """
    begin, end = 0.1 * epochs, 0.5 * epochs
    if epoch < begin:
        return 0.1 + 0.2 * epoch / begin
    if epoch < end:
        return 0.3 + 0.6 / (1 + math.exp(-10 * ((epoch - begin) / (end - begin) - 0.5)))
    return 0.9


COLUMNS = ("prediction", "target", "embedding")


@dataclass(frozen=True)
class Rows:
    """Hold the predictions, labels and embeddings of N strains."""

    prediction: Tensor  #: [N, T] predictions
    target: Tensor  #: [N, T] labels, NaN where a label is missing or does not take part
    embedding: Tensor  #: [N, D] embeddings; D is 0 where embeddings are not compared

    @classmethod
    def of(cls, prediction: Prediction, target_BT: Tensor, *, embeds: bool) -> Rows:
        dtype = torch.promote_types(prediction.phenotypes.dtype, target_BT.dtype)
        embedding = target_BT.new_empty(len(target_BT), 0) if not embeds else prediction.embedding
        assert embedding is not None, "refused by the configuration: `LossConfig.needs`"
        return cls(prediction.phenotypes.to(dtype), target_BT.to(dtype), embedding.to(dtype))

    def each(self, change: Callable[..., Tensor], *others: Rows) -> Rows:
        return Rows(*(change(*(getattr(rows, column) for rows in (self, *others))) for column in COLUMNS))

    def gather(self, capacity: int | None) -> Rows:
        """Return the rows of all ranks, with gradient, each filled up to ``capacity`` by rows without labels."""
        if world_size() == 1:
            return self
        assert capacity is not None, "ranks compare each other's strains, and `Loss.batch_size` is not set"
        assert len(self.target) <= capacity, f"{len(self.target)} strains, where `Loss.batch_size` says {capacity}"
        lacking = (0, 0, 0, capacity - len(self.target))
        fills = {"prediction": 0.0, "target": torch.nan, "embedding": 0.0}
        filled = [F.pad(getattr(self, column), lacking, value=fill) for column, fill in fills.items()]
        widths = [x.shape[1] for x in filled]
        return Rows(*gather_rows(torch.cat(filled, dim=1)).split(widths, dim=1))

    def some(self, most: int) -> Rows:
        """Return the strains with a label, at equal steps where there are more than ``most``; the host waits."""
        rows = self.present.any(1).nonzero().squeeze(1)
        if len(rows) > most:
            rows = rows[torch.arange(most, device=rows.device) * len(rows) // most]
        return self.each(lambda x: x[rows])

    def __add__(self, other: Rows) -> Rows:
        return self.each(lambda *x: torch.cat(x), other)

    @property
    def present(self) -> Tensor:
        """Return which labels take part, [N, T]."""
        return ~self.target.isnan()


class RowBuffer(nn.Module):
    """Keep the last ``size`` labelled strains, oldest first, without gradient.

    Its rows are registered buffers: they follow the device and are saved with checkpoints. They are made when the
    first strains come, whose widths they take; until as many were seen, those in front have no labels. Ranks that add
    the same rows keep the same. ``seen`` [] counts the labelled strains added so far.
    """

    seen: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        for column in COLUMNS:
            self.register_buffer(column, None)

    def newest(self, count: Tensor | None, like: Rows) -> Rows:
        """Return all rows that are kept, of which only the last ``count`` ([]; all where None) have labels.

        Before any row was added there are none, of the widths of ``like``.
        """
        kept = [getattr(self, column) for column in COLUMNS]
        if kept[0] is None:
            return like.each(lambda x: x[:0])
        rows = Rows(*kept)
        if count is None:
            return rows
        age_N1 = torch.arange(self.size - 1, -1, -1, device=count.device).unsqueeze(1)
        return Rows(rows.prediction, rows.target.masked_fill(age_N1 >= count, torch.nan), rows.embedding)

    @torch.no_grad()
    def add(self, rows: Rows) -> None:
        """Put strains with at least one label in, in place of the oldest."""
        rows = rows.each(Tensor.detach)
        self.seen += rows.present.any(1).sum()
        if self.size == 0:
            return
        if self.prediction is None:
            for column in COLUMNS:
                example, fill = getattr(rows, column), torch.nan if column == "target" else 0.0
                setattr(self, column, example.new_full((self.size, *example.shape[1:]), fill))
        together = self.newest(None, like=rows) + rows
        # The sort is stable: rows without labels come first, all others by age.
        order = together.present.any(1).to(torch.uint8).sort(stable=True).indices[-self.size :]
        for column in COLUMNS:
            getattr(self, column).copy_(getattr(together, column)[order])

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        make_saved(self, COLUMNS, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)


class CoupledLoss(Loss):
    r"""Compute λ₁ · squared error + λ₂ · distance between distributions + λ₃ · SupCR.

    The distance is between the distributions of predictions and of labels.

    All terms are over the batches of all ranks together; a phenotype takes part in the last two if at least two of its
    labels are compared. The squared error is over the batch alone; the other two also compare earlier strains of
    training where the configuration has a buffer:

    - The distance takes the batch's n strains and the newest ⌊n w / (1 − w)⌋ of the buffer, w from ``buffer_share``.
      They are the least outdated, and the same on every rank.
    - SupCR takes the whole buffer; its weight is then multiplied by 1 − w/2.
    - Without ``adaptive`` both take the whole buffer, with their own weights.
    - Until as many labelled strains were seen as the buffer holds, both are zero, without gradient.
    - In evaluation strains are compared with each other alone, at most 2,048 of them by SupCR, which are taken at equal
      steps, with the weights of the configuration and the final temperature: no label of training enters a figure of
      validation, which is the same function of predictions in every epoch.

    In training τ and w are recorded among the terms, as ``temperature`` and ``buffer_share``.

    The losses follow those of the torchcell project, where ranks compared each other's strains without gradient. In its
    ICLoss and MleDistSupCR the gradient of the distribution matching had the wrong sign, predictions were sorted
    against labels in the other direction, and the labels' density was taken in steps of 1.0. The distance of its
    MleWassSupCR was a Sinkhorn divergence with a blur of 0.05, on the same scale as the exact one here.
    """

    Config = CoupledConfig

    def __init__(self, config: CoupledConfig, epochs: int) -> None:
        super().__init__()
        self.config, self.epochs = config, epochs
        self.distance_weight = float(getattr(config, config.distance_key))
        self.buffer = RowBuffer(config.buffer_size) if isinstance(config, MleWassSupcrConfig) else None

    def forward(self, prediction: Prediction, target_BT: Tensor, epoch: int) -> LossTerms:
        config = self.config
        batch = Rows.of(prediction, target_BT, embeds=config.supcr > 0).gather(self.batch_size)
        weighted: dict[str, tuple[float, Tensor]] = {}
        if config.mse > 0:
            sums_2T = element_sums(ELEMENTS["mse"], batch.prediction, batch.target)
            weighted["mse"] = (config.mse, mean_cost(sums_2T))
        few, many, enough = self._compared(batch, epoch)
        if self.distance_weight > 0:
            distance = transport_cost if config.distance_key == "wasserstein" else distribution_matching
            costs_T = distance(few.prediction.T.contiguous(), few.target.T.contiguous())
            weighted[config.distance_key] = (self.distance_weight, self._mean(costs_T, few, enough))
        if config.supcr > 0:
            share = self.share(epoch) if self.training else None
            costs_T = supcr(many.embedding, many.target.T.contiguous(), self.temperature(epoch))
            factor = config.supcr * (1.0 if share is None else 1 - share / 2)
            weighted["supcr"] = (factor, self._mean(costs_T, many, enough))
        total = torch.stack([weight * term for weight, term in weighted.values()]).sum()
        terms = {name: term.detach() for name, (_, term) in weighted.items()}
        if self.training:  # for the record
            changing = zip(("temperature", "buffer_share"), self.changes_by(epoch), strict=True)
            terms |= {name: torch.full_like(total.detach(), value) for name, value in changing if value is not None}
        return LossTerms(total, terms)

    def changes_by(self, epoch: int) -> tuple[float | None, float | None]:
        return self.temperature(epoch) if self.config.supcr > 0 else None, self.share(epoch)

    def temperature(self, epoch: int) -> float:
        r"""Return τ of an epoch, :math:`\tau_0 (\tau_1/\tau_0)^{e/E}`; in evaluation it is that of the last epoch."""
        start, end = self.config.temperature, self.config.temperature_final
        share = min(epoch / self.epochs, 1.0) if self.training else 1.0
        return start if end is None else start * (end / start) ** share

    def share(self, epoch: int) -> float | None:
        """Return w of an epoch of training; None without a buffer whose share follows the epoch."""
        config = self.config
        changes = isinstance(config, MleWassSupcrConfig) and config.adaptive and config.buffer_size
        return buffer_share(epoch, self.epochs) if changes else None

    def _mean(self, costs_T: Tensor, rows: Rows, enough: Tensor | None) -> Tensor:
        counts_T = (rows.present.sum(0) >= 2).to(costs_T.dtype)
        cost = (costs_T * counts_T).sum() / counts_T.sum().clamp(min=1)
        return cost if enough is None else torch.where(enough, cost, 0.0)

    def _compared(self, batch: Rows, epoch: int) -> tuple[Rows, Rows, Tensor | None]:
        """Return the strains that the distance and SupCR compare, and whether enough were seen (None: always), [] bool.

        The batch is put into the buffer.
        """
        if not self.training:
            return batch, batch.some(2048), None
        if self.buffer is None:
            return batch, batch, None
        share = self.share(epoch)
        labelled = batch.present.any(1).sum()
        count = None if share is None else (labelled.double() * (share / (1 - share)) + 1e-9).floor()
        few, many = batch + self.buffer.newest(count, like=batch), batch + self.buffer.newest(None, like=batch)
        self.buffer.add(batch)
        return few, many, self.buffer.seen >= self.buffer.size
