"""Learned combinations of the relations that end in a node type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor, nn

NODES_AT_ONCE = 2048
"""For how many nodes weights are computed at a time."""


@dataclass(frozen=True)
class RelationWeights:
    """What a layer's learned combination of relations gives to each of its options.

    Attributes:
        layer: number of the layer, from 0.
        node_type: in which the relations end.
        options: names; of ``cross_attention`` the relations', of ``pairwise_interaction`` also their pairs' and "mean".
        weights: means over nodes: [options], of ``cross_attention`` [K, K], where row k is how much relation k takes
            of each. Rows sum to one.
    """

    layer: int
    node_type: str
    options: list[str]
    weights: Tensor


class Mix(Protocol):
    """What a mixture of K relations offers beside being a module."""

    def options(self, names: list[str]) -> list[str]:
        """What its weights are called, for relations of these names."""

    def __call__(self, *h: Tensor) -> Tensor:
        """K rows [N, H] → [N, H]."""

    def weights(self, *h: Tensor) -> Tensor:
        """[N, options] or [N, K, K]."""


class RelationMixer(nn.Module):
    """A mixture of relations, and the norm after it.

    Args:
        mix: see ``Mix``.
        norm: of rows.
    """

    def __init__(self, mix: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.mix, self.norm = mix, norm

    def options(self, names: list[str]) -> list[str]:
        """What the weights are called, for relations of these names."""
        return cast(Mix, self.mix).options(names)

    def forward(self, *h: Tensor) -> Tensor:
        """[N, H] the mixture of K rows [N, H] at once."""
        out: Tensor = self.norm(self.mix(*h))
        return out

    @torch.no_grad()
    def mean_weights(self, *h: Tensor) -> Tensor:
        """[options] or [K, K] what nodes give to the options, on average.

        Args:
            h: K rows [N, H].
        """
        portions = zip(*(rows.split(NODES_AT_ONCE) for rows in h), strict=True)
        return torch.stack([cast(Mix, self.mix).weights(*rows).sum(0) for rows in portions]).sum(0) / len(h[0])
