"""One state per gene from those that several networks give it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dglcell.nn.mlp import mlp


class MetaEmbedding(nn.Module):
    r"""Weighted mean over networks, with weights from the states themselves (Zhang et al. 2020, *DANGO*).

    .. math:: E_i = \sum_k \operatorname{softmax}_k\big(f(E_i^{(k)})\big)\, E_i^{(k)}

    Args:
        width: H.
        layers: Linear layers of f: 2 (H → H/2 → 1, as published), or 1.
        activation: between them.

    Shapes:
        states [N, K, H] of K networks → [N, H].
    """

    def __init__(self, width: int, layers: int, activation: str) -> None:
        super().__init__()
        self.weight = mlp([width, *[max(1, width // 2)] * (layers - 1), 1], activation)
        for module in self.weight:
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, gain=math.sqrt(2))
                nn.init.zeros_(module.bias)

    def forward(self, x_NKH: Tensor) -> Tensor:
        """Gene states."""
        share_NK1 = torch.softmax(self.weight(x_NKH), dim=1)
        return (share_NK1 * x_NKH).sum(1)
