"""Add the errors of values of nodes, such as fluxes of reactions, to the loss of phenotypes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from dglcell.losses.config import LossConfig
from dglcell.losses.loss import LossTerms, sum_over_ranks


def node_loss(predicted_BM: Tensor, target_BM: Tensor) -> Tensor:
    """Return the mean squared error over all measured values of all strains, each of which counts alike.

    Args:
        predicted_BM: differences from the wild type in units of their spread.
        target_BM: likewise, NaN where nothing was measured or nothing changes.
    """
    measured_BM = ~target_BM.isnan()
    squared_BM = (predicted_BM - target_BM.nan_to_num()).square() * measured_BM
    total, number = sum_over_ranks(torch.stack([squared_BM.sum(), measured_BM.sum().to(squared_BM)]))
    return total / number.clamp(min=1)


def with_nodes(
    loss: LossTerms, predicted: Mapping[str, Tensor], targets: Mapping[str, Tensor], config: LossConfig
) -> LossTerms:
    """Return the loss of phenotypes and of values of nodes, weighted as configured.

    Args:
        loss: loss of the phenotypes.
        predicted: name → [B, M] predictions.
        targets: name → [B, M] what they should be; without any, the loss is returned as it is.
        config: weights.
    """
    if not targets:
        return loss
    of_nodes = {name: node_loss(predicted[name], target) for name, target in targets.items()}
    weighted = [config.nodes.get(name, 1.0) * value for name, value in of_nodes.items()]
    total = config.phenotypes * loss.total + torch.stack(weighted).sum()
    return LossTerms(total, loss.terms | {name: value.detach() for name, value in of_nodes.items()})
