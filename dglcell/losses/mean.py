"""Means over labels of which some are missing, and over phenotypes."""

from __future__ import annotations

import torch
from torch import Tensor


def label_sums(cost_BT: Tensor, present_BT: Tensor) -> Tensor:
    """[2, T] sums and numbers of the costs of the labels that are there. Sums of parts of a batch add up."""
    return torch.stack([cost_BT.masked_fill(~present_BT, 0.0).sum(0), present_BT.sum(0).to(cost_BT.dtype)])


def mean_cost(sums_2T: Tensor, weight_T: Tensor | None) -> Tensor:
    """Scalar mean of what ``label_sums`` summed; zero where there is no label.

    Without weights every label counts alike. With weights it is the weighted mean over the phenotypes that have
    labels, each with the mean of its own, however many these are.
    """
    total_T, count_T = sums_2T
    if weight_T is None:
        return total_T.sum() / count_T.sum().clamp(min=1)
    return mean_over_phenotypes(total_T / count_T.clamp(min=1), count_T > 0, weight_T)


def mean_over_phenotypes(cost_T: Tensor, counts_T: Tensor, weight_T: Tensor | None) -> Tensor:
    """Scalar mean over the phenotypes that count, weighted where weights are given; zero where none counts."""
    weight_T = counts_T.to(cost_T.dtype) if weight_T is None else weight_T * counts_T
    whole = weight_T.sum()
    return (cost_T * weight_T).sum() / whole.masked_fill(whole == 0, 1.0)
