"""Attention of all genes to the deleted genes of a strain."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

BLOCK_LOGITS = 1 << 22
"""Logits that are held at a time; they are computed once more in the backward pass."""


class DeletionAttention(nn.Module):
    r"""How the deletion of a set S changes the weighted mean of all kept genes' states.

    Every kept gene attends to the deleted ones, and to nothing at all with logit 0, so that genes which a deletion does
    not concern stay as they are and the empty set changes none:

    .. math:: h_n(S) = x_n + W_o \sum_{j \in S} a_{nj} W_v x_j, \qquad
        a_{nj} = \frac{\exp(q_n^\top k_j / \sqrt d)}{1 + \sum_{i \in S} \exp(q_n^\top k_i / \sqrt d)}

    (Vaswani et al. 2017, *Attention is all you need*, eq. 1, per head of width d, with one more key whose logit and
    value are zero.) Out comes :math:`\sum_n p_n (h_n(S) - x_n)` for weights p. Sums over n are taken of the shares
    :math:`a` first, which is the same because updates are linear in them: per strain there is one row [N] for each head
    and deleted gene, and never a tensor [B, N, H].

    Args:
        width: H.
        heads: must divide H.

    Shapes:
        states [N, H], weights p [N, B], deleted genes' states [B, K, H], present [B, K] → [B, H].
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x_NH: Tensor, weight_NB: Tensor, deleted_BKH: Tensor, present_BK: Tensor) -> Tensor:
        """Weighted mean of all genes' updates."""
        (N, H), (B, K) = x_NH.shape, present_BK.shape
        heads, wide = self.heads, H // self.heads
        query_hNd = self.query(x_NH).view(N, heads, wide).transpose(0, 1) * wide**-0.5
        key_hBKd = self.key(deleted_BKH).view(B, K, heads, wide).permute(2, 0, 1, 3)
        strains = max(1, BLOCK_LOGITS // max(1, heads * N * K))
        blocks = zip(
            key_hBKd.split(strains, dim=1), present_BK.split(strains), weight_NB.split(strains, dim=1), strict=True
        )
        # A pooled share per strain, head and deleted gene.
        shares = [checkpoint(_pooled_shares, query_hNd, *block, use_reentrant=False) for block in blocks]
        value_BKhd = self.value(deleted_BKH).view(B, K, heads, wide)
        mixed_BH = torch.einsum("bhk,bkhd->bhd", torch.cat(shares), value_BKhd).reshape(B, H)
        out: Tensor = self.out(mixed_BH)
        return out


def _pooled_shares(query_hNd: Tensor, key_hBKd: Tensor, present_BK: Tensor, weight_NB: Tensor) -> Tensor:
    """[B, heads, K] weighted means over n of what gene n gives each deleted gene."""
    heads, B, K, wide = key_hBKd.shape
    N = query_hNd.shape[1]
    logits = (query_hNd @ key_hBKd.reshape(heads, B * K, wide).transpose(1, 2)).view(heads, N, B, K)
    logits = logits.masked_fill(~present_BK, float("-inf"))
    share_hNBK = torch.softmax(F.pad(logits, (1, 0)), dim=-1)[..., 1:]
    return torch.einsum("hnbk,nb->bhk", share_hNBK, weight_NB)
