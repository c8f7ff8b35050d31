"""Attention pooling over the kept nodes of every strain."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dglcell.nn.mlp import mlp
from dglcell.perturbation.row_wise import RowWise
from dglcell.perturbation.state_sums import map_states
from dglcell.perturbation.states import States


class AttentionPooling(nn.Module):
    r"""Gated attention pooling (Li et al. 2016, *Gated graph sequence neural networks*, eq. 7, with a softmax gate).

    .. math:: z_b = \sum_{v \text{ kept in } b} \operatorname{softmax}_v\big(g(h_{vb})\big)\; f(h_{vb})

    Args:
        width: H.
        activation: inside gate and value networks.
        dropout: inside gate and value networks.

    Shapes:
        states [N, B, H], keep [N, B] → [B, H].
    """

    def __init__(self, width: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.gate = mlp([width, width // 2, 1], activation, dropout)
        self.value = nn.Linear(width, width)

    def forward(self, states: States, keep_NB: Tensor) -> Tensor:
        """[B, H] pooled states; zero for a strain that keeps no node of this type."""
        pooled_BH = states.softmax_pool(map_states(RowWise(self.gate, self.gate), states), keep_NB)
        # A weighted mean of linear maps is the linear map of the weighted mean: B rows instead of N · B.
        has_nodes_B1 = keep_NB.any(0).unsqueeze(1)
        return torch.where(has_nodes_B1, self.value(pooled_BH), 0.0)
