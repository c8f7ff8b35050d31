"""Mix relations by self-attention among them, for every node."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RelationAttention(nn.Module):
    r"""Self-attention over the K relations that end in a node, then their mean.

    .. math::
        x_k = h_k + e_k, \quad
        h' = \tfrac{1}{K} \sum_k W_o \Big[ \sum_l \operatorname{softmax}_l\big(q_k^\top k_l / \sqrt{d}\big)\, v_l \Big]
        + b_o

    with heads side by side (Vaswani et al. 2017, *Attention is all you need*, eq. 1) and a learned embedding
    :math:`e_k` of every relation. After ``SelfAttentionGraphAggregation`` of the torchcell project. As means and linear
    maps commute, shares are averaged over k before values are summed.

    Args:
        relations: K.
        width: H.
        heads: must divide H.

    Shapes:
        K rows [N, H] → [N, H].
    """

    def __init__(self, relations: int, width: int, heads: int) -> None:
        super().__init__()
        self.relations, self.width, self.heads = relations, width, heads
        self.embedding = nn.Parameter(0.02 * torch.randn(relations, width))
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    @staticmethod
    def options(names: list[str]) -> list[str]:
        """What rows and columns of ``weights`` are called."""
        return names

    def forward(self, *h: Tensor) -> Tensor:
        """[N, H] the mixture."""
        share_NAKL, value_NAKD = self._attention(h)
        mixed_NA1D = share_NAKL.mean(2, keepdim=True) @ value_NAKD
        out: Tensor = self.out(mixed_NA1D.flatten(1))
        return out

    def weights(self, *h: Tensor) -> Tensor:
        """[N, K, K] how much of each relation (columns) goes to each (rows), the mean over heads."""
        return self._attention(h)[0].mean(1)

    def _attention(self, h: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """[N, heads, K, K] shares and [N, heads, K, d] values."""
        x_NKH = torch.stack(h, 1) + self.embedding
        projected = self.project(x_NKH).unflatten(-1, (3, self.heads, -1))
        query, key, value = (part.transpose(1, 2) for part in projected.unbind(2))
        logits = (query @ key.transpose(-1, -2)) * query.shape[-1] ** -0.5
        return torch.softmax(logits, dim=-1), value
