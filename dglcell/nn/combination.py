"""One prediction from two."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dglcell.nn.mlp import mlp


class Combination(nn.Module):
    """The mean of two predictions, or their sum with weights that depend on both.

    Args:
        outputs: T.
        gated: learn the weights.
        width: inside the gate.
        activation, dropout: inside the gate.

    Shapes:
        [B, T], [B, T] → [B, T] and the weights [B, T, 2], or None for the mean.
    """

    def __init__(self, outputs: int, *, gated: bool, width: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.outputs = outputs
        self.gate = mlp([2 * outputs, width, 2 * outputs], activation, dropout) if gated else None

    def forward(self, first_BT: Tensor, second_BT: Tensor) -> tuple[Tensor, Tensor | None]:
        """Prediction and weights."""
        if self.gate is None:
            return 0.5 * (first_BT + second_BT), None
        logits = self.gate(torch.cat([first_BT, second_BT], dim=-1))
        gates_BT2 = torch.softmax(logits.view(-1, self.outputs, 2), dim=-1)
        return (gates_BT2 * torch.stack([first_BT, second_BT], dim=-1)).sum(-1), gates_BT2
