"""Compute the supervised contrast and its settings that change over the epochs."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def supcr(embedding_ND: Tensor, target_TN: Tensor, temperature: float) -> Tensor:
    r"""Return SupCR: the mean contrastive loss over pairs i and j ≠ i, for each phenotype.

    In a pair, j is compared with all strains that are at least as far from i by their labels.

    .. math:: -\log \frac{\exp s_{ij}}{\sum_{k \ne i,\; d_{ik} \ge d_{ij}} \exp s_{ik}},\qquad
              s_{ij} = \cos(e_i, e_j) / \tau,\quad d_{ij} = |y_i - y_j|

    Zha et al. 2023, *Rank-N-Contrast: Learning continuous representations for regression*, eq. 1 with cosines. All
    denominators of an i are sums over the ends of one sorted row; strains at equal distances are in each other's
    denominators. The computation is in logarithms, so that no temperature makes it overflow or vanish.

    Args:
        embedding_ND: embeddings of N strains; a vector of zeros has cosine 0 with every other.
        target_TN: labels of T phenotypes; NaN where missing.
        temperature: τ.

    Returns:
        [T]; 0 for a phenotype with fewer than two labels.
    """
    present_TN = ~target_TN.isnan()
    pair_TNN = present_TN.unsqueeze(2) & present_TN.unsqueeze(1)
    pair_TNN = pair_TNN & ~torch.eye(len(embedding_ND), dtype=torch.bool, device=embedding_ND.device)
    distance_TNN = (target_TN.unsqueeze(2) - target_TN.unsqueeze(1)).abs()
    # Entries that are no pairs come first, so that they are in no denominator of a pair.
    distance_TNN, order_TNN = distance_TNN.masked_fill(~pair_TNN, -1.0).sort(dim=-1)
    with torch.autocast(embedding_ND.device.type, enabled=False):
        unit_ND = _normalised(embedding_ND)
        similarity_NN = unit_ND @ unit_ND.T / temperature
    similarity_TNN = similarity_NN.expand_as(order_TNN).gather(-1, order_TNN)
    tail_TNN = similarity_TNN.flip(-1).logcumsumexp(-1).flip(-1)
    cost_TNN = tail_TNN.gather(-1, _first_of_equals(distance_TNN)) - similarity_TNN
    pairs_T = pair_TNN.sum((1, 2))
    return cost_TNN.masked_fill(distance_TNN < 0, 0.0).sum((1, 2)) / pairs_T.clamp(min=1)


def _first_of_equals(sorted_TNN: Tensor) -> Tensor:
    """Return for every element the position in its row of the first element that is equal."""
    position_N = torch.arange(sorted_TNN.shape[-1], device=sorted_TNN.device)
    differs_TNN = F.pad(sorted_TNN[..., 1:] != sorted_TNN[..., :-1], (1, 0))
    return torch.where(differs_TNN, position_N, 0).cummax(-1).values


def _normalised(rows_ND: Tensor) -> Tensor:
    """Scale rows to length one; zeros stay zeros, with zero gradient."""
    length_N1 = torch.linalg.vector_norm(rows_ND, dim=-1, keepdim=True)
    return rows_ND / length_N1.masked_fill(length_N1 == 0, math.inf)


def temperature_at(epoch: int, epochs: int, start: float, end: float, schedule: str) -> float:
    r"""Return τ of an epoch; it falls from ``start`` towards ``end``, which it would reach in epoch ``epochs``.

    Args:
        epoch: counted from 0.
        epochs: number of epochs of the whole training.
        start, end: τ₀ and τ₁.
        schedule: ``none`` keeps τ₀; ``exponential`` is :math:`\tau_0 (\tau_1/\tau_0)^{e/E}`; ``cosine`` is half a wave.
    """
    share = min(epoch / epochs, 1.0)
    if schedule == "exponential":
        return start * (end / start) ** share
    if schedule == "cosine":
        return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
    return start


def buffer_share(epoch: int, epochs: int, warmup: int | None, stable: int | None) -> float:
    r"""Return w, the share of buffered strains among those compared.

    It is small while predictions still change quickly.

    It rises from 0.1 to 0.3 in a straight line during the warm-up. Then it is
    :math:`0.3 + 0.6\,\sigma(10 (p - \tfrac12))` with p from 0 to 1, then 0.9.

    Args:
        epoch: counted from 0.
        epochs: number of epochs of the whole training.
        warmup: epochs of the straight line; a tenth of all where None.
        stable: the first epoch with 0.9; at half of all where None, but not before the end of the warm-up.
    """
    begin = 0.1 * epochs if warmup is None else warmup
    end = max(0.5 * epochs, begin) if stable is None else stable
    if epoch < begin:
        return 0.1 + 0.2 * epoch / begin
    if epoch < end:
        return 0.3 + 0.6 / (1 + math.exp(-10 * ((epoch - begin) / (end - begin) - 0.5)))
    return 0.9
