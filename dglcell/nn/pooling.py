"""Pool the states of the nodes that strains keep."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from dglcell.nn.blocks import mlp
from dglcell.perturbation.rules import as_difference
from dglcell.perturbation.sent import Kept
from dglcell.perturbation.states import Pooled, States


class MeanPooling(nn.Module):
    """Take the mean over the nodes that a strain keeps, zero where it keeps none; one of activity a counts a times.

    Shapes:
        states [N, B, H] → [1, H] of the base and [B, H], by how much the strains differ from it.
    """

    def forward(self, states: States, kept: Kept) -> Pooled:
        return states.pool(states.map(lambda x: x[..., :1] * 0), kept)


class AttentionPooling(nn.Module):
    r"""Pool by gated attention.

    The method is that of Li et al. 2016, *Gated graph sequence neural networks*, eq. 7, with a softmax gate.

    .. math:: z_b = \sum_{v \text{ kept in } b} \operatorname{softmax}_v\big(g(h_{vb})\big)\; f(h_{vb})

    It is zero for a strain that keeps no node of this type. Activation and dropout are those inside g.

    Shapes:
        states [N, B, H] → [1, H] of the base and [B, H], by how much the strains differ from it.
    """

    def __init__(self, width: int, activation: str = "gelu", dropout: float = 0.0) -> None:
        super().__init__()
        self.gate = mlp([width, width // 2, 1], activation, dropout)
        self.value = nn.Linear(width, width)

    def forward(self, states: States, kept: Kept) -> Pooled:
        pooled = states.pool(states.map(self.gate), kept)
        # A weighted mean of linear maps is the linear map of the weighted mean: B rows instead of N · B.
        value_1H = torch.where(kept.base_N1.any(), self.value(pooled.base_1H), 0.0)
        has_nodes_B1 = kept.strains_NB.any(0).unsqueeze(1)
        difference_BH = F.linear(pooled.difference_BH, self.value.weight)
        return Pooled(value_1H, as_difference(torch.where(has_nodes_B1, difference_BH, -value_1H)))
