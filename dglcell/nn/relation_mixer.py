"""Learned combinations of the relations that end in a node type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from dglcell.kernels.chain import Chain, PlainUpdate, RowUpdate, Step
from dglcell.perturbation.row_wise import RowWise
from dglcell.perturbation.state_sums import Addend, sum_updates
from dglcell.perturbation.states import States

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

    @property
    def row_width(self) -> int:
        """How many numbers of a row its widest layer has."""

    def __call__(self, *h: Tensor) -> Tensor:
        """K rows [N, H] → [N, H]."""

    def weights(self, *h: Tensor) -> Tensor:
        """[N, options] or [N, K, K]."""

    def compiled(self) -> RowUpdate | None:
        """The same for compiled code; None where there is none."""


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

    def combine(self, updates: Sequence[Addend], residual: Sequence[States]) -> States:
        """The mixture of row-wise functions, plus a residual.

        What the functions give exists for some rows at a time.
        """
        states = list({id(s): s for _, arguments in updates for s in arguments}.values())
        position = {id(s): i for i, s in enumerate(states)}
        inputs = [[position[id(s)] for s in arguments] for _, arguments in updates]
        mixture = self._row_wise([update for update, _ in updates], inputs)
        kept = [(None, [x]) for x in residual]
        if isinstance(self.norm, nn.Identity):
            return sum_updates([(mixture, states), *kept])
        norm = RowWise(self.norm, self.norm, mixture.recompute)
        return sum_updates([(norm, [sum_updates([(mixture, states)])]), *kept])

    @torch.no_grad()
    def mean_weights(self, updates: Sequence[Addend]) -> Tensor:
        """[options] or [K, K] what nodes give to the options, on average.

        Args:
            updates: of the states of one strain.
        """
        tables = [[s.dense().flatten(0, 1).split(NODES_AT_ONCE) for s in arguments] for _, arguments in updates]
        total, number = torch.zeros(()), 0
        for portion in zip(*(zip(*table, strict=True) for table in tables), strict=True):
            rows = [_apply(update, arguments) for (update, _), arguments in zip(updates, portion, strict=True)]
            total = total.to(rows[0]) + cast(Mix, self.mix).weights(*rows).sum(0)
            number += len(rows[0])
        return total / number

    def _row_wise(self, updates: Sequence[RowWise | None], inputs: Sequence[Sequence[int]]) -> RowWise:
        """The updates, each of some of the arguments, and their mixture, as one function."""

        def function(*rows: Tensor) -> Tensor:
            h = [_apply(update, [rows[i] for i in mine]) for update, mine in zip(updates, inputs, strict=True)]
            out: Tensor = self.mix(*h)
            return out

        module = nn.ModuleList([*(update.module for update in updates if update is not None), self.mix])
        recompute = all(update is None or update.recompute for update in updates)
        return RowWise(function, module, recompute, self._chain(updates, inputs), cast(Mix, self.mix).row_width)

    def _chain(self, updates: Sequence[RowWise | None], inputs: Sequence[Sequence[int]]) -> Chain | None:
        """The same for compiled code; None where no part of it is compiled."""
        mix = cast(Mix, self.mix).compiled()
        if mix is None and not any(update is not None and update.compiled for update in updates):
            return None
        steps = [Step(_compiled(update), mine) for update, mine in zip(updates, inputs, strict=True)]
        return Chain(steps, mix or PlainUpdate(self.mix, self.mix))


def _apply(update: RowWise | None, rows: Sequence[Tensor]) -> Tensor:
    return rows[0] if update is None else update.function(*rows)


def _compiled(update: RowWise | None) -> RowUpdate | None:
    """For compiled code, by torch's operators where that is all there is."""
    return None if update is None else update.compiled or PlainUpdate(update.function, update.module)
