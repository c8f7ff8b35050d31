"""Compute distances between the distributions of predictions and labels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

GRID = 512
"""The density's distribution function is taken at so many points, over the range of the labels."""


def distribution_matching(prediction_TN: Tensor, target_TN: Tensor, bandwidth: float) -> Tensor:
    r"""Return the mean squared difference between sorted predictions and quantiles of the labels.

    The n sorted predictions are compared with the label quantiles at (i − ½)/n, both ascending.

    The method is that of Nie et al. 2024, *Dist Loss: Enhancing regression in few-shot region through distribution
    distance constraint*.

    Args:
        prediction_TN: N strains, T phenotypes.
        target_TN: labels; where one is missing (NaN), neither it nor its prediction counts.
        bandwidth: see ``label_quantiles``.

    Returns:
        [T]; 0 for a phenotype without labels.
    """
    present_TN = ~target_TN.isnan()
    count_T1 = present_TN.sum(-1, keepdim=True)
    sorted_TN = prediction_TN.masked_fill(~present_TN, math.inf).sort(-1).values
    error_TN = sorted_TN - label_quantiles(target_TN, bandwidth)
    left_out_TN = torch.arange(target_TN.shape[-1], device=target_TN.device) >= count_T1
    return error_TN.masked_fill(left_out_TN, 0.0).square().sum(-1) / count_T1.squeeze(-1).clamp(min=1)


@torch.no_grad()
def label_quantiles(target_TN: Tensor, bandwidth: float) -> Tensor:
    """Return quantiles (i − ½)/n of the density of n labels, between the smallest and the largest of them.

    The density is a sum of Gaussians whose standard deviation is ``bandwidth`` times the labels' (n − 1 in its
    denominator), as of ``scipy.stats.gaussian_kde`` with a number for ``bw_method``. Its distribution function is
    taken at ``GRID`` points and inverted linearly.

    Args:
        target_TN: labels of T phenotypes; NaN where missing.
        bandwidth: in units of the labels' standard deviation.

    Returns:
        [T, N], ascending; values from position n on have no meaning.
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
    share_G = torch.linspace(0, 1, GRID, dtype=target_TN.dtype, device=target_TN.device)
    grid_TG = torch.lerp(low_T1, high_T1, share_G)
    scaled_TGN = (grid_TG.unsqueeze(2) - labels_TN.unsqueeze(1)) / (bandwidth * sd_T1).clamp(min=smallest).unsqueeze(2)
    cdf_TG = torch.special.ndtr(scaled_TGN).masked_fill(~present_TN.unsqueeze(1), 0.0).sum(-1)
    # Only the density between the labels counts: the function runs from 0 to 1 there.
    cdf_TG = cdf_TG - cdf_TG[:, :1]
    cdf_TG = cdf_TG / cdf_TG[:, -1:].clamp(min=smallest)
    level_TN = (torch.arange(target_TN.shape[-1], dtype=target_TN.dtype, device=target_TN.device) + 0.5) / count_T1
    return _inverse(grid_TG, cdf_TG, level_TN)


def _inverse(grid_TG: Tensor, cdf_TG: Tensor, level_TN: Tensor) -> Tensor:
    """Return where the distribution function reaches ``level``, linear between grid points, [T, N]."""
    right_TN = torch.searchsorted(cdf_TG.contiguous(), level_TN.contiguous()).clamp(1, cdf_TG.shape[-1] - 1)
    left_TN = right_TN - 1
    low_TN, high_TN = cdf_TG.gather(-1, left_TN), cdf_TG.gather(-1, right_TN)
    share_TN = (level_TN - low_TN) / (high_TN - low_TN).clamp(min=torch.finfo(level_TN.dtype).tiny)
    return torch.lerp(grid_TG.gather(-1, left_TN), grid_TG.gather(-1, right_TN), share_TN.clamp(0, 1))


def transport_cost(x_TN: Tensor, y_TM: Tensor, has_x_TN: Tensor, has_y_TM: Tensor, p: int) -> Tensor:
    r"""Return the exact cost :math:`\tfrac1p W_p^p` of moving the values x onto the values y.

    On a line the best plan keeps the order (Peyré and Cuturi 2019, *Computational optimal transport*, §2.6), so the
    cost is that between the quantile functions. These step at multiples of 1/n and 1/m; in units of 1/(nm) all steps
    are integers, and numbers of values may differ. With the factor 1/p it is what geomloss' ``SamplesLoss`` comes to
    for a vanishing blur: half the squared distance for p = 2.

    Args:
        x_TN, y_TM: T pairs of samples.
        has_x_TN, has_y_TM: bool, which values count.
        p: 1 or 2.

    Returns:
        [T]; 0 where one of the two samples is empty.
    """
    n_T1, m_T1 = has_x_TN.sum(-1, keepdim=True), has_y_TM.sum(-1, keepdim=True)
    x_TN = x_TN.masked_fill(~has_x_TN, math.inf).sort(-1).values
    y_TM = y_TM.masked_fill(~has_y_TM, math.inf).sort(-1).values
    x_ends_TN, y_ends_TM = _steps(x_TN, n_T1) * m_T1, _steps(y_TM, m_T1) * n_T1
    ends_TK = torch.cat([x_ends_TN, y_ends_TM], dim=-1).sort(-1).values
    starts_TK = torch.cat([torch.zeros_like(n_T1), ends_TK[:, :-1]], dim=-1)
    width_TK = ends_TK - starts_TK
    gap_TK = _value_at(x_TN, x_ends_TN, starts_TK) - _value_at(y_TM, y_ends_TM, starts_TK)
    gap_TK = gap_TK.masked_fill(width_TK == 0, 0.0)
    cost_TK = gap_TK.abs() if p == 1 else 0.5 * gap_TK.square()
    return (cost_TK * width_TK).sum(-1) / (n_T1 * m_T1).squeeze(-1).clamp(min=1)


def _steps(sorted_TN: Tensor, count_T1: Tensor) -> Tensor:
    """Return 1, 2, … up to the number of values that count, then that number, [T, N]."""
    return torch.arange(1, sorted_TN.shape[-1] + 1, device=sorted_TN.device).minimum(count_T1)


def _value_at(sorted_TN: Tensor, ends_TN: Tensor, starts_TK: Tensor) -> Tensor:
    """Return the value of a quantile function right of ``starts``, [T, K]."""
    step_TK = torch.searchsorted(ends_TN, starts_TK, right=True)
    return sorted_TN.gather(-1, step_TK.clamp(max=sorted_TN.shape[-1] - 1))
