"""Distance between two distributions on a line, by sorting."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def transport_cost(x_TN: Tensor, y_TM: Tensor, has_x_TN: Tensor, has_y_TM: Tensor, p: int) -> Tensor:
    r"""What it costs to move the values x onto the values y, :math:`\tfrac1p W_p^p`, exactly.

    On a line the best plan keeps the order (Peyré and Cuturi 2019, *Computational optimal transport*, §2.6), so the
    cost is that between the quantile functions. These step at multiples of 1/n and 1/m; in units of 1/(nm) all steps
    are integers, and numbers of values may differ. With the factor 1/p it is what geomloss' ``SamplesLoss`` comes to
    for a vanishing blur: half the squared distance for p = 2.

    Args:
        x_TN, y_TM: T pairs of samples.
        has_x_TN, has_y_TM: which values count.
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
    """[T, N] 1, 2, … up to the number of values that count, then that number."""
    return torch.arange(1, sorted_TN.shape[-1] + 1, device=sorted_TN.device).minimum(count_T1)


def _value_at(sorted_TN: Tensor, ends_TN: Tensor, starts_TK: Tensor) -> Tensor:
    """[T, K] the value of a quantile function right of ``starts``."""
    step_TK = torch.searchsorted(ends_TN, starts_TK, right=True)
    return sorted_TN.gather(-1, step_TK.clamp(max=sorted_TN.shape[-1] - 1))
