"""Index sets of (node, strain) pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class RowIndex:
    """Hold K different (node, strain) pairs of one node type, ordered by node, then strain.

    Because of this order, the strains' rows of a node lie together, beside the base's row of the node.

    Attributes:
        mask_NB: [N, B] bool, which pairs are in the set.
    """

    mask_NB: Tensor

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes, N."""
        return self.mask_NB.shape[0]

    @property
    def num_strains(self) -> int:
        """Return the number of strains, B."""
        return self.mask_NB.shape[1]

    @cached_property
    def keys(self) -> Tensor:
        """Return ``node · B + strain`` of every pair, [K] int64, ascending."""
        return self.mask_NB.flatten().nonzero().squeeze(1)

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def nodes(self) -> Tensor:
        """Return the node of every pair, [K] int64."""
        return self.keys.div(self.num_strains, rounding_mode="floor")

    @cached_property
    def strains(self) -> Tensor:
        """Return the strain of every pair, [K] int64."""
        return self.keys - self.nodes * self.num_strains

    @cached_property
    def starts(self) -> Tensor:
        """Return where each node's pairs start, [N + 1] int64; those of node v are ``starts[v]:starts[v + 1]``."""
        counts = self.mask_NB.sum(1)
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    @cached_property
    def table(self) -> Tensor:
        """Return the position of every pair, [N, B] int32; −1 for pairs that are not in the set."""
        table = torch.full(self.mask_NB.shape, -1, dtype=torch.int32, device=self.mask_NB.device)
        numbers = torch.arange(len(self), dtype=torch.int32, device=table.device)
        table.view(-1).index_copy_(0, self.keys, numbers)
        return table

    def positions(self, of: RowIndex) -> Tensor:
        """Return the positions here of the pairs of another index, [K'] int64; −1 for those that are not here."""
        return self.table.flatten()[of.keys].long()


def union(indices: Sequence[RowIndex]) -> RowIndex:
    """Return the pairs that are in any of the indices; if one of them has all, it is that object itself."""
    different = list({id(index): index for index in indices}.values())
    if len(different) == 1:
        return different[0]
    mask_NB = different[0].mask_NB.clone()
    for index in different[1:]:
        mask_NB |= index.mask_NB
    number = int(mask_NB.sum())
    return next((index for index in different if len(index) == number), RowIndex(mask_NB))
