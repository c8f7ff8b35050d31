"""Sums and rows over all ranks, with gradients.

Every rank that trains takes the loss of the *global* batch, the same number on all of them. DistributedDataParallel
then averages their gradients; so what a rank's own values receive is multiplied by the number of ranks, and nothing
needs to be sent in the backward pass. The result is the gradient that a single process has on the global batch.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """Number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum of the ranks' ``values``, on every rank; one small all-reduce."""
    return values if world_size() == 1 else _SumOverRanks.apply(values)


def gather_rows(rows_BX: Tensor) -> Tensor:
    """The ranks' ``rows``, on every rank; as many of each.

    The first of every rank come first, then the second ones: the order in which the ranks were dealt their strains, so
    that what depends on it (which strains a buffer forgets) is as in a single process.
    """
    return rows_BX if world_size() == 1 else _GatherRows.apply(rows_BX)


def largest_over_ranks(number: int, device: torch.device) -> int:
    """The largest of the ranks' numbers. The host waits for it."""
    if world_size() == 1:
        return number
    largest = torch.tensor(number, device=device)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return int(largest)


class _SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.detach().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * world_size()


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows_BX: Tensor) -> Tensor:
        rows_BX = rows_BX.detach().contiguous()
        everyone_RBX = rows_BX.new_empty(world_size(), *rows_BX.shape)
        dist.all_gather(list(everyone_RBX.unbind()), rows_BX)
        return everyone_RBX.transpose(0, 1).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0][dist.get_rank() :: world_size()] * world_size()
