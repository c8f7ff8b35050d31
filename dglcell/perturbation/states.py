"""Node states of every strain: what travels through the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class States:
    """States of the N nodes of one type in B strains.

    Attributes:
        x_NBH: [N, B, H]; or [N, 1, H] where every strain has the same states, as before the first aggregation.
    """

    x_NBH: Tensor

    @classmethod
    def shared(cls, x_NH: Tensor) -> States:
        """States that all strains have in common."""
        return cls(x_NH.unsqueeze(1))

    def map(self, function: Callable[[Tensor], Tensor]) -> States:
        """Apply a row-wise function (linear, norm, activation, dropout): [..., H] → [..., H']."""
        return States(function(self.x_NBH))

    @staticmethod
    def combine(function: Callable[..., Tensor], states: Sequence[States]) -> States:
        """Apply a row-wise function of several states of the same nodes, e.g. a sum over relations."""
        return States(function(*(s.x_NBH for s in states)))

    def rows(self, nodes: Tensor, strain: int) -> Tensor:
        """The states of chosen nodes in one strain.

        Args:
            nodes: any shape of node indices.
            strain: column; 0 is the wild type where the batch was made by ``GenotypeBatch.with_wild_type``.

        Returns:
            [*nodes.shape, H].
        """
        column = strain if self.x_NBH.shape[1] > 1 else 0
        return self.x_NBH[:, column][nodes]

    def softmax_pool(self, gate: States, keep_NB: Tensor) -> Tensor:
        """Softmax-weighted mean over the kept nodes of every strain.

        Args:
            gate: logits of the same nodes, H = 1.
            keep_NB: [N, B] bool.

        Returns:
            [B, H].
        """
        keep_NB1 = keep_NB.unsqueeze(-1)
        lowest = torch.finfo(gate.x_NBH.dtype).min
        logits_NB1 = gate.x_NBH.expand(-1, keep_NB.shape[1], -1).masked_fill(~keep_NB1, lowest)
        # The product matters only where a strain keeps no node at all: it pools to zero.
        share_NB1 = torch.softmax(logits_NB1, dim=0) * keep_NB1
        return torch.einsum("nb,nbh->bh", share_NB1.squeeze(-1), self.x_NBH.expand(-1, keep_NB.shape[1], -1))
