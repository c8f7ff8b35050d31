"""Compute attention of all nodes to a few keys of every strain, of which only sums over the nodes are needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from dglcell.kernels.rows import COMPILED_DEVICES
from dglcell.kernels.threads import run_tasks

BLOCK_LOGITS = 1 << 23
"""So many logits are held at a time; they are computed once more in the backward pass."""

TASKS = 8
"""A block is cut into this fixed number of tasks, so that sums are the same for any number of threads."""


def pooled_shares(query_hNd: Tensor, key_hGd: Tensor, slot_BK: Tensor, present_BK: Tensor, weight_NB: Tensor) -> Tensor:
    r"""Return weighted sums over nodes of the shares that they give to the keys of a strain, [B, heads, K].

    .. math:: s_{bhk} = \sum_n p_{nb} \frac{\exp(q_{hn}^\top k_{hg(b,k)})}{1 + \sum_i \exp(q_{hn}^\top k_{hg(b,i)})}

    Sums in the denominator are over the keys that the strain has. No tensor is of size N · B · K; compiled code takes
    the products of queries and keys once for all strains.

    Args:
        query_hNd: [heads, N, d] queries of the nodes.
        key_hGd: [heads, G, d] keys of all strains.
        slot_BK: [B, K] int64, which of the G keys each key of a strain is.
        present_BK: [B, K] bool; shares of absent keys are zero.
        weight_NB: [N, B] weights p of the nodes.
    """
    if query_hNd.device.type in COMPILED_DEVICES:
        dtype = torch.promote_types(torch.promote_types(query_hNd.dtype, weight_NB.dtype), torch.float32)
        tensors = [x.to(dtype) for x in (query_hNd, key_hGd, weight_NB)]
        # The sums are of single precision at least; autocast would take the products in less.
        with torch.autocast(query_hNd.device.type, enabled=False):
            out: Tensor = _PooledShares.apply(*tensors, slot_BK, present_BK)
        return out
    heads, N, _ = query_hNd.shape
    B, K = slot_BK.shape
    key_hBKd = key_hGd[:, slot_BK.flatten()].view(heads, B, K, key_hGd.shape[2])
    strains = max(1, BLOCK_LOGITS // max(1, heads * N * K))
    blocks = zip(
        key_hBKd.split(strains, dim=1), present_BK.split(strains), weight_NB.split(strains, dim=1), strict=True
    )
    return torch.cat([checkpoint(_some_strains, query_hNd, *block, use_reentrant=False) for block in blocks])


def distinct(keys_BK: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys [G], and which of them each is, [B, K].

    Equal keys occur once where that does not wait for the device.
    """
    if keys_BK.device.type in COMPILED_DEVICES:
        return torch.unique(keys_BK, return_inverse=True)
    return every(keys_BK)


def every(keys_BK: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys [B · K], and which of them each is, [B, K]: ``distinct`` where equal keys are kept apart."""
    return keys_BK.flatten(), torch.arange(keys_BK.numel(), device=keys_BK.device).view_as(keys_BK)


def _some_strains(query_hNd: Tensor, key_hBKd: Tensor, present_BK: Tensor, weight_NB: Tensor) -> Tensor:
    """Compute ``pooled_shares`` with all logits of some strains at once."""
    heads, B, K, wide = key_hBKd.shape
    N = query_hNd.shape[1]
    logits = (query_hNd @ key_hBKd.reshape(heads, B * K, wide).transpose(1, 2)).view(heads, N, B, K)
    logits = logits.masked_fill(~present_BK, float("-inf"))
    share_hNBK = torch.softmax(F.pad(logits, (1, 0)), dim=-1)[..., 1:]
    return torch.einsum("hnbk,nb->bhk", share_hNBK, weight_NB)


class _PooledShares(torch.autograd.Function):
    """Take some nodes at a time: first their logits for all keys, then each strain."""

    @staticmethod
    def forward(
        ctx: Any, query_hNd: Tensor, key_hGd: Tensor, weight_NB: Tensor, slot_BK: Tensor, present_BK: Tensor
    ) -> Tensor:
        from dglcell.kernels.pooled_shares_numba import forward

        ctx.save_for_backward(query_hNd, key_hGd, weight_NB, slot_BK, present_BK)
        out_BhK = query_hNd.new_zeros(len(slot_BK), len(query_hNd), slot_BK.shape[1])
        for span, logits_hGn in _blocks(query_hNd, key_hGd):
            tensors = (logits_hGn, slot_BK, present_BK, weight_NB[span].T.contiguous(), out_BhK)
            _run(forward, tensors, len(slot_BK))
        return out_BhK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BhK: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(grad_BhK.device.type, enabled=False):
            return _PooledShares.gradients(ctx.saved_tensors, grad_BhK.contiguous())

    @staticmethod
    def gradients(saved: tuple[Tensor, ...], grad_BhK: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the three tensors that have one."""
        from dglcell.kernels.pooled_shares_numba import backward

        query_hNd, key_hGd, weight_NB, slot_BK, present_BK = saved
        of_query, of_key, of_weight = map(torch.zeros_like, (query_hNd, key_hGd, weight_NB))
        for span, logits_hGn in _blocks(query_hNd, key_hGd):
            of_logits, weight_Bn = torch.zeros_like(logits_hGn), weight_NB[span].T.contiguous()
            of_weight_Bn = torch.zeros_like(weight_Bn)
            tensors = (logits_hGn, slot_BK, present_BK, weight_Bn, grad_BhK, of_logits, of_weight_Bn)
            _run(backward, tensors, logits_hGn.shape[2])
            of_weight[span] = of_weight_Bn.T
            of_query[:, span] = of_logits.transpose(1, 2) @ key_hGd
            of_key += of_logits @ query_hNd[:, span]
        return of_query, of_key, of_weight, None, None


def _blocks(query_hNd: Tensor, key_hGd: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield ranges of nodes, and their logits, [heads, G, n]."""
    heads, N, _ = query_hNd.shape
    nodes = max(1, BLOCK_LOGITS // max(1, heads * key_hGd.shape[1]))
    for first in range(0, N, nodes):
        span = slice(first, min(first + nodes, N))
        yield span, key_hGd @ query_hNd[:, span].transpose(1, 2)


def _run(function: Any, tensors: tuple[Tensor, ...], number: int) -> None:
    """Run a function on threads, each of which takes a share of ``number`` strains or nodes."""
    arrays = [x.detach().numpy() for x in tensors]
    cuts = [number * i // TASKS for i in range(TASKS + 1)]
    run_tasks(function, [(*arrays, *span) for span in itertools.pairwise(cuts) if span[1] > span[0]])
