"""Distribution matching: sorted predictions against the quantiles that the labels' density expects."""

from __future__ import annotations

import math

import torch
from torch import Tensor

GRID = 512
"""Points of the density's distribution function, over the range of the labels."""


def distribution_matching(prediction_TN: Tensor, target_TN: Tensor, bandwidth: float) -> Tensor:
    r"""Mean squared difference between n sorted predictions and the label quantiles at (i − ½)/n, both ascending.

    Nie et al. 2024, *Dist Loss: Enhancing regression in few-shot region through distribution distance constraint*.

    Args:
        prediction_TN: N strains, T phenotypes.
        target_TN: NaN where missing: prediction and label then count for nothing.
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
    """Quantiles (i − ½)/n of the density of n labels, between the smallest and the largest of them.

    The density is a sum of Gaussians whose standard deviation is ``bandwidth`` times the labels' (n − 1 in its
    denominator), as of ``scipy.stats.gaussian_kde`` with a number for ``bw_method``. Its distribution function is
    taken at ``GRID`` points and inverted linearly.

    Args:
        target_TN: labels of T phenotypes; NaN where missing.
        bandwidth: in units of the labels' standard deviation.

    Returns:
        [T, N], ascending; without meaning from n on.
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
    # Only what lies between the labels counts: the function runs from 0 to 1 there.
    cdf_TG = cdf_TG - cdf_TG[:, :1]
    cdf_TG = cdf_TG / cdf_TG[:, -1:].clamp(min=smallest)
    level_TN = (torch.arange(target_TN.shape[-1], dtype=target_TN.dtype, device=target_TN.device) + 0.5) / count_T1
    return _inverse(grid_TG, cdf_TG, level_TN)


def _inverse(grid_TG: Tensor, cdf_TG: Tensor, level_TN: Tensor) -> Tensor:
    """[T, N] where the distribution function reaches ``level``, linear between grid points."""
    right_TN = torch.searchsorted(cdf_TG.contiguous(), level_TN.contiguous()).clamp(1, cdf_TG.shape[-1] - 1)
    left_TN = right_TN - 1
    low_TN, high_TN = cdf_TG.gather(-1, left_TN), cdf_TG.gather(-1, right_TN)
    share_TN = (level_TN - low_TN) / (high_TN - low_TN).clamp(min=torch.finfo(level_TN.dtype).tiny)
    return torch.lerp(grid_TG.gather(-1, left_TN), grid_TG.gather(-1, right_TN), share_TN.clamp(0, 1))
