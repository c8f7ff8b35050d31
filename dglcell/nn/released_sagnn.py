"""Scoring of gene sets as in the code that DANGO's authors released."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dglcell.nn.registry import make_activation


class ReleasedSAGNN(nn.Module):
    """Score a set of genes after one round of attention among all of them, each to itself too.

    What the released code computes (github.com/ma-compbio/DANGO, ``Hyper_SAGNN`` in ``Modules.py``), which is not what
    the paper says (``HyperSAGNN``): its switch for leaving out a gene's attention to itself and for comparing static
    with dynamic states is never on, so the score is read from the dynamic states alone. Heads are as wide as states,
    layer norms come first, and a set's score is a sum.

    Args:
        width: H.
        outputs: T scores per set.
        heads: A.
        activation: inside the feed-forward network.
        dropout: after attention, inside the feed-forward network and before the score.

    Shapes:
        genes' states [B, K, H], present [B, K] → [B, T]; zero for an empty set.
    """

    def __init__(self, width: int, outputs: int, *, heads: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.projections = nn.ModuleList(nn.Linear(width, heads * width, bias=False) for _ in range(3))
        for projection in self.projections:
            assert isinstance(projection, nn.Linear)
            nn.init.normal_(projection.weight, std=width**-0.5)
        self.mix = nn.Linear(heads * width, width, bias=False)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, width),
            make_activation(activation),
            nn.Dropout(dropout),
            nn.Linear(width, width),
        )
        self.beta = nn.Parameter(torch.zeros(1))
        self.norm = nn.LayerNorm(width)
        self.score = nn.Linear(width, outputs)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BKH: Tensor, present_BK: Tensor) -> Tensor:
        """[B, T] scores."""
        B, K, H = x_BKH.shape
        query, key, value = (
            project(norm(x_BKH)).view(B, K, self.heads, H).transpose(1, 2)
            for project, norm in zip(self.projections, self.norms, strict=True)
        )
        # A finite floor keeps empty sets free of NaN; their rows count for nothing.
        logits = (query @ key.transpose(-1, -2)) * H**-0.5
        share = torch.softmax(logits.masked_fill(~present_BK[:, None, None], torch.finfo(logits.dtype).min), dim=-1)
        dynamic = self.dropout(self.mix((share @ value).transpose(1, 2).reshape(B, K, -1)))
        dynamic = dynamic + self.beta * self.feed_forward(dynamic)
        score_BKT = self.score(self.dropout(self.norm(dynamic)))
        out: Tensor = (score_BKT * present_BK.unsqueeze(-1)).sum(1)
        return out
