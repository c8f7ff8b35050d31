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

    Node by node, so that the strains' rows of some nodes lie together, beside the base's rows of these nodes.

    Attributes:
        mask_NB: [N, B] bool, which pairs.
        most: an upper bound of K, one at least, that the host knows, so that it need not ask the device. Lists are as
            long as that: behind the K pairs they are filled with the first of all pairs, and what is computed there is
            never read.
    """

    mask_NB: Tensor
    most: int | None = None

    @property
    def num_nodes(self) -> int:
        """The number of nodes, N."""
        return self.mask_NB.shape[0]

    @property
    def num_strains(self) -> int:
        """The number of strains, B."""
        return self.mask_NB.shape[1]

    @cached_property
    def keys(self) -> Tensor:
        """[K] int64 ``node · B + strain``, ascending."""
        if self.most is None:
            return self.mask_NB.flatten().nonzero().squeeze(1)
        # One place more takes what is in no list.
        places = torch.where(self.mask_NB.flatten(), self._ends - 1, self.most)
        keys = torch.zeros(self.most + 1, dtype=torch.int64, device=places.device)
        return keys.scatter_(0, places, torch.arange(len(places), device=places.device))[: self.most]

    @cached_property
    def _ends(self) -> Tensor:
        """[N · B] number of pairs up to and with each."""
        return self.mask_NB.flatten().cumsum(0)

    @cached_property
    def present(self) -> Tensor | None:
        """[K] bool, false for what fills the list up to ``most``; None where nothing does."""
        if self.most is None:
            return None
        return torch.arange(self.most, device=self.mask_NB.device) < self._ends[-1]

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

    @cached_property
    def starts(self) -> Tensor:
        """[N + 1] int64; the pairs of node v are ``starts[v]:starts[v + 1]``."""
        counts = self.mask_NB.sum(1)
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    @cached_property
    def table(self) -> Tensor:
        """[N, B] int32 position of every pair; -1 for those that are not here."""
        if self.most is not None:
            return torch.where(self.mask_NB, self._ends.view_as(self.mask_NB) - 1, -1).int()
        table = torch.full(self.mask_NB.shape, -1, dtype=torch.int32, device=self.mask_NB.device)
        numbers = torch.arange(len(self), dtype=torch.int32, device=table.device)
        table.view(-1).index_copy_(0, self.keys, numbers)
        return table

    def positions(self, of: RowIndex) -> Tensor:
        """[K'] int64 where the pairs of another index stand here; -1 for those that do not."""
        return self.table.flatten()[of.keys].long()


def union(indices: Sequence[RowIndex]) -> RowIndex:
    """The pairs in any of the indices; the very same object where one of them has all."""
    different = list({id(index): index for index in indices}.values())
    if len(different) == 1:
        return different[0]
    mask_NB = different[0].mask_NB.clone()
    for index in different[1:]:
        mask_NB |= index.mask_NB
    bounds = [index.most for index in different if index.most is not None]
    if len(bounds) == len(different):
        return RowIndex(mask_NB, min(sum(bounds), mask_NB.numel()))
    number = int(mask_NB.sum())
    return next((index for index in different if len(index) == number), RowIndex(mask_NB))
