"""Attention of all genes to the deleted genes of a strain."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dglcell.kernels.pooled_shares import distinct, pooled_shares


class DeletionAttention(nn.Module):
    r"""How the deletion of a set S changes the weighted mean of all kept genes' states.

    Every kept gene attends to the deleted ones, and to nothing at all with logit 0, so that genes which a deletion does
    not concern stay as they are and the empty set changes none:

    .. math:: h_n(S) = x_n + W_o \sum_{j \in S} a_{nj} W_v x_j, \qquad
        a_{nj} = \frac{\exp(q_n^\top k_j / \sqrt d)}{1 + \sum_{i \in S} \exp(q_n^\top k_i / \sqrt d)}

    (Vaswani et al. 2017, *Attention is all you need*, eq. 1, per head of width d, with one more key whose logit and
    value are zero.) Out comes :math:`\sum_n p_n (h_n(S) - x_n)` for weights p. Sums over n are taken of the shares
    :math:`a` first, which is the same because updates are linear in them; there is never a tensor [B, N, H]. See
    ``pooled_shares``.

    Args:
        width: H.
        heads: must divide H.

    Shapes:
        states [N, H], weights p [N, B], deleted genes [B, K], present [B, K] → [B, H].
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x_NH: Tensor, weight_NB: Tensor, genes_BK: Tensor, present_BK: Tensor) -> Tensor:
        """Weighted mean of all genes' updates."""
        (B, K), width, heads = genes_BK.shape, x_NH.shape[1], self.heads
        deleted_G, slot_BK = distinct(genes_BK)
        deleted_GH = F.embedding(deleted_G, x_NH)
        query_hNd = _by_head(self.query(x_NH), heads) * (width // heads) ** -0.5
        share_BhK = pooled_shares(query_hNd, _by_head(self.key(deleted_GH), heads), slot_BK, present_BK, weight_NB)
        value_BKhd = F.embedding(slot_BK, self.value(deleted_GH)).view(B, K, heads, width // heads)
        out: Tensor = self.out(torch.einsum("bhk,bkhd->bhd", share_BhK, value_BKhd).reshape(B, width))
        return out


def _by_head(x_NH: Tensor, heads: int) -> Tensor:
    """[heads, N, d]."""
    return x_NH.view(len(x_NH), heads, x_NH.shape[1] // heads).transpose(0, 1)
