"""Compute attention of all nodes to a few keys of every strain, of which only sums over the nodes are needed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

BLOCK_LOGITS = 1 << 23
"""So many logits are held at a time; they are computed once more in the backward pass."""


def pooled_shares(query_hNd: Tensor, key_hBKd: Tensor, present_BK: Tensor, weight_NB: Tensor) -> Tensor:
    r"""Return weighted sums over nodes of the shares that they give to the keys of a strain, [B, heads, K].

    .. math:: s_{bhk} = \sum_n p_{nb} \frac{\exp(q_{hn}^\top k_{hbk})}{1 + \sum_i \exp(q_{hn}^\top k_{hbi})}

    Sums in the denominator are over the keys that the strain has.

    Args:
        query_hNd: [heads, N, d] queries of the nodes.
        key_hBKd: [heads, B, K, d] keys of the strains.
        present_BK: [B, K] bool; shares of absent keys are zero.
        weight_NB: [N, B] weights p of the nodes.
    """
    heads, N, _ = query_hNd.shape
    strains = max(1, BLOCK_LOGITS // max(1, heads * N * present_BK.shape[1]))
    blocks = zip(
        key_hBKd.split(strains, dim=1), present_BK.split(strains), weight_NB.split(strains, dim=1), strict=True
    )
    return torch.cat([checkpoint(_some_strains, query_hNd, *block, use_reentrant=False) for block in blocks])


def _some_strains(query_hNd: Tensor, key_hBKd: Tensor, present_BK: Tensor, weight_NB: Tensor) -> Tensor:
    """Compute ``pooled_shares`` with all logits of some strains at once."""
    heads, B, K, wide = key_hBKd.shape
    N = query_hNd.shape[1]
    logits = (query_hNd @ key_hBKd.reshape(heads, B * K, wide).transpose(1, 2)).view(heads, N, B, K)
    logits = logits.masked_fill(~present_BK, float("-inf"))
    share_hNBK = torch.softmax(F.pad(logits, (1, 0)), dim=-1)[..., 1:]
    return torch.einsum("hnbk,nb->bhk", share_hNBK, weight_NB)
