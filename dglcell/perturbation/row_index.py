"""Sets of (node, strain) pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class RowIndex:
    """K different (node, strain) pairs of one node type, ordered by node, then strain.

    Attributes:
        keys: [K] int64 ``node · B + strain``, ascending.
        num_strains: B.
    """

    keys: Tensor
    num_strains: int

    @classmethod
    def where(cls, mask_NB: Tensor) -> RowIndex:
        """The pairs for which a [N, B] mask is true."""
        return cls(mask_NB.flatten().nonzero().squeeze(1), mask_NB.shape[1])

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def nodes(self) -> Tensor:
        """[K] int64."""
        return self.keys.div(self.num_strains, rounding_mode="floor")

    @cached_property
    def strains(self) -> Tensor:
        """[K] int64."""
        return self.keys - self.nodes * self.num_strains

    def of(self, nodes: Tensor, strain: int) -> RowIndex:
        """Pairs of any nodes with one strain, in the order given."""
        return RowIndex(nodes * self.num_strains + strain, self.num_strains)

    def find(self, other: RowIndex) -> tuple[Tensor, Tensor]:
        """Where the pairs of ``other`` are in this index.

        Returns:
            [K'] bool whether they are, and [K'] their positions (anything in range where they are not).
        """
        if len(self) == 0:
            return torch.zeros_like(other.keys, dtype=torch.bool), torch.zeros_like(other.keys)
        position = torch.searchsorted(self.keys, other.keys).clamp(max=len(self) - 1)
        return self.keys[position] == other.keys, position


def union(indices: Sequence[RowIndex]) -> RowIndex:
    """The pairs in any of the indices; the very same object where there is only one."""
    different = list({id(index): index for index in indices}.values())
    if len(different) == 1:
        return different[0]
    return RowIndex(torch.unique(torch.cat([index.keys for index in different])), different[0].num_strains)
