"""Sets of (node, strain) pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class RowIndex:
    """K different (node, strain) pairs of one node type, ordered by strain, then node.

    Strain by strain, because a strain's rows then lie side by side: products over one strain's graph stay in the
    cache.

    Attributes:
        mask_BN: [B, N] bool, which pairs.
    """

    mask_BN: Tensor

    @classmethod
    def where(cls, mask_NB: Tensor) -> RowIndex:
        """The pairs for which a [N, B] mask is true."""
        return cls(mask_NB.T.contiguous())

    @classmethod
    def none(cls, like: RowIndex) -> RowIndex:
        """No pair at all."""
        return cls(torch.zeros_like(like.mask_BN))

    @property
    def num_strains(self) -> int:
        """B."""
        return self.mask_BN.shape[0]

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.mask_BN.shape[1]

    @cached_property
    def keys(self) -> Tensor:
        """[K] int64 ``strain · N + node``, ascending."""
        return self.mask_BN.flatten().nonzero().squeeze(1)

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def strains(self) -> Tensor:
        """[K] int64."""
        return self.keys.div(self.num_nodes, rounding_mode="floor")

    @cached_property
    def nodes(self) -> Tensor:
        """[K] int64."""
        return self.keys - self.strains * self.num_nodes

    @cached_property
    def table(self) -> Tensor:
        """[B, N] int32 position of every pair, K for those that are not here."""
        return self.positions(missing=len(self))

    def positions(self, *, missing: int, first: int = 0) -> Tensor:
        """[B, N] int32 position of every pair, counted from ``first``; ``missing`` for those that are not here."""
        table = torch.full(self.mask_BN.shape, missing, dtype=torch.int32, device=self.mask_BN.device)
        numbers = torch.arange(first, first + len(self), dtype=torch.int32, device=table.device)
        table.view(-1).index_copy_(0, self.keys, numbers)
        return table


def union(indices: Sequence[RowIndex]) -> RowIndex:
    """The pairs in any of the indices; the very same object where there is only one."""
    different = list({id(index): index for index in indices}.values())
    if len(different) == 1:
        return different[0]
    mask_BN = different[0].mask_BN.clone()
    for index in different[1:]:
        mask_BN |= index.mask_BN
    return RowIndex(mask_BN)
