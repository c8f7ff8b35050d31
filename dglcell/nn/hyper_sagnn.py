"""Self-attention among the deleted genes of a strain."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dglcell.nn.registry import make_activation


class SetAttention(nn.Module):
    """Multi-head attention of every gene to the *other* genes of its strain, with a ReZero residual.

    ``d ← d + β · out(attention(d))`` (Bachlechner et al. 2021, *ReZero is all you need*); a gene without partners
    stays as it is.

    Args:
        width: H.
        heads: must divide H.
        gain: initial β.

    Shapes:
        [B, K, H], present [B, K] → [B, K, H].
    """

    def __init__(self, width: int, heads: int, gain: float) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.beta = nn.Parameter(torch.full((1,), gain))

    def forward(self, x_BKH: Tensor, present_BK: Tensor) -> Tensor:
        """One round of attention."""
        B, K, H = x_BKH.shape
        query, key, value = self.project(x_BKH).view(B, K, 3, self.heads, H // self.heads).permute(2, 0, 3, 1, 4)
        others_KK = ~torch.eye(K, dtype=torch.bool, device=x_BKH.device)
        partner_BKK = present_BK.unsqueeze(1) & present_BK.unsqueeze(2) & others_KK
        # A finite floor keeps rows without partners free of NaN; the product below sets them to zero.
        logits = (query @ key.transpose(-1, -2)) * (H // self.heads) ** -0.5
        floor = torch.finfo(logits.dtype).min
        share = torch.softmax(logits.masked_fill(~partner_BKK.unsqueeze(1), floor), dim=-1)
        mixed_BKH = ((share * partner_BKK.unsqueeze(1)) @ value).transpose(1, 2).reshape(B, K, H)
        has_partner_BK1 = partner_BKK.any(-1, keepdim=True)
        return x_BKH + self.beta * self.out(mixed_BKH) * has_partner_BK1


class HyperSAGNN(nn.Module):
    r"""Score a set of genes by how far each moves when it sees the others.

    Zhang, Zou & Ma 2020, *Hyper-SAGNN*: with static embeddings :math:`s_i = \sigma(W x_i)` and dynamic ones
    :math:`d_i` (attention within the set), the score of the set is the mean over its genes of
    :math:`w^\top (d_i - s_i)^2 + c`.

    Args:
        width: H.
        outputs: T scores per set.
        layers: rounds of attention.
        heads: must divide H.
        gain: initial share of the attention; the genes' interaction is learnt through it.
        activation: of the static embedding.
        dropout: on the input.

    Shapes:
        genes' states [B, K, H], present [B, K] → [B, T]; zero for an empty set.
    """

    def __init__(
        self, width: int, outputs: int, *, layers: int, heads: int, gain: float, activation: str, dropout: float
    ) -> None:
        super().__init__()
        self.static = nn.Sequential(nn.Linear(width, width), make_activation(activation))
        self.attention = nn.ModuleList(SetAttention(width, heads, gain) for _ in range(layers))
        self.score = nn.Linear(width, outputs)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BKH: Tensor, present_BK: Tensor) -> Tensor:
        """[B, T] scores."""
        x_BKH = self.dropout(x_BKH)
        dynamic = x_BKH
        for attention in self.attention:
            dynamic = attention(dynamic, present_BK)
        score_BKT = self.score((dynamic - self.static(x_BKH)).square()) * present_BK.unsqueeze(-1)
        return score_BKT.sum(1) / present_BK.sum(1, keepdim=True).clamp(min=1)
