"""States of any strategy from plain tensors, and what the tests of strategies have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dglcell.kernels.rows import RowIndex
from dglcell.perturbation import differences
from dglcell.perturbation import states as states_module
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.states import DifferenceStates, States, WholeStates
from dglcell.perturbation.targets import Targets
from tests.random_cells import RandomCell


@dataclass
class Values:
    """States of all nodes of a type in plain tensors, of which gradients can be taken."""

    base_NH: Tensor  #: of the base
    delta_NBH: Tensor | None = None  #: by how much strains differ from it; None where none does
    mask_NB: Tensor | None = None  #: the pairs that differ, where they are listed; None for all

    @property
    def leaves(self) -> list[Tensor]:
        return [self.base_NH] if self.delta_NBH is None else [self.base_NH, self.delta_NBH]

    def whole(self, strains: int) -> Tensor:
        """[N, B, H]."""
        base_N1H = self.base_NH.unsqueeze(1)
        if self.delta_NBH is None:
            return base_N1H.expand(-1, strains, -1)
        return base_N1H + (self.delta_NBH if self.mask_NB is None else self.delta_NBH * self.mask_NB.unsqueeze(-1))

    def under(self, start: States) -> States:
        """As a strategy keeps them, whose states are ``start`` before anything differs."""
        if self.delta_NBH is None:
            return start
        if isinstance(start, WholeStates):
            whole_NBH = self.whole(start.num_strains)
            return WholeStates(torch.cat([self.base_NH.unsqueeze(1), whole_NBH], dim=1), start.num_strains)
        assert isinstance(start, DifferenceStates)
        if self.mask_NB is None:
            return start.with_difference(self.base_NH, self.delta_NBH)
        index = RowIndex(self.mask_NB)
        return start.with_difference(self.base_NH, self.delta_NBH.flatten(0, 1)[index.keys], index)


@st.composite
def values_of(draw: st.DrawFn, nodes: int, strains: int, width: int) -> Values:
    """No pair differs, all of them do, or no, some or all pairs are listed."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    how = draw(st.sampled_from(["same", "dense", 0.0, 0.3, 1.0]))
    if how == "same":
        return Values(random(nodes, width))
    mask_NB = None if how == "dense" else torch.rand(nodes, strains, generator=generator) < how
    return Values(random(nodes, width), random(nodes, strains, width), mask_NB)


@dataclass(frozen=True)
class Engine:
    """Limits that change how results are found, but not the results."""

    push_cost: float
    rows_in_block: int

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(differences, "PUSH_COST", self.push_cost)
            patch.setattr(differences, "MARK_COST", self.push_cost)
            patch.setitem(states_module.ROWS_IN_BLOCK, "cpu", self.rows_in_block)
            yield


ENGINES = st.builds(Engine, st.sampled_from([0.0, 2.0, float("inf")]), st.sampled_from([7, 4096]))
DENSE_SHARES = st.sampled_from([0.0, 0.2, 1e9, 1e9])
"""From which share of listed pairs on all are computed."""


def gradients(outs: Tensor | Sequence[Tensor], leaves: Sequence[Tensor], retain: bool = False) -> list[Tensor]:
    """Of a fixed combination of the results."""
    outs = [outs] if isinstance(outs, Tensor) else outs
    if not any(x.requires_grad for x in outs):
        return [torch.zeros_like(leaf) for leaf in leaves]
    total = sum((x * torch.cos(torch.arange(x.numel(), dtype=x.dtype)).view_as(x)).sum() for x in outs)
    assert isinstance(total, Tensor)
    return list(torch.autograd.grad(total, leaves, None, retain, allow_unused=True, materialize_grads=True))


def agree(found: Sequence[Tensor], expected: Sequence[Tensor], where: str = "") -> None:
    """To 1e-10 of the largest number: gradients that are zero by symmetry carry the rounding of the largest ones."""
    scale = max([1.0, *(float(x.detach().abs().max()) for x in expected if x.numel())])
    for number, (x, y) in enumerate(zip(found, expected, strict=True)):
        assert x.shape == y.shape
        error = float((x - y).detach().abs().max()) if x.numel() else 0.0
        assert error <= 1e-10 * scale, f"{where}: number {number} differs by {error}"


class LargestResult(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operator makes (views do not count)."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        held = {x.untyped_storage().data_ptr() for x in args if isinstance(x, Tensor)}
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in held:
                self.largest = max(self.largest, x.untyped_storage().nbytes() // x.element_size(), prod(x.shape))
        return out


Strain = dict[int, Tensor]
"""Gene or reaction → its activity, a scalar of which gradients can be taken."""


def amount(draw: Any, special: bool) -> Tensor:
    """Return an activity; 0 and 1 only where ``special``, as gradients there are of one side."""
    values = st.floats(0.05, 2.0).filter(lambda x: x != 1)
    drawn = draw(st.one_of(st.sampled_from([0.0, 1.0]), values) if special else values)
    return torch.tensor(drawn, dtype=torch.float64, requires_grad=True)


@st.composite
def strains_of(draw: Any, cell: RandomCell, special: bool) -> tuple[list[Strain], list[Strain]]:
    """Weakened genes, and weakened reactions, of a few strains; different numbers, so that no two genes tie."""
    genes, reactions = [], []
    for _ in range(draw(st.integers(1, 4))):
        for into, number in ((genes, cell.sizes["gene"]), (reactions, cell.sizes["reaction"])):
            chosen = draw(st.lists(st.integers(0, number - 1), max_size=4, unique=True))
            into.append({node: amount(draw, special) for node in chosen})
    return genes, reactions


def batch_of(genes: list[Strain], reactions: list[Strain]) -> GenotypeBatch:
    """Return the strains as a batch through which gradients flow."""

    def concatenated(strains: list[Strain]) -> tuple[Tensor, Tensor, Tensor]:
        nodes = torch.tensor([node for strain in strains for node in strain], dtype=torch.int64)
        offsets = torch.tensor([0, *(len(strain) for strain in strains)]).cumsum(0)
        values = [value for strain in strains for value in strain.values()]
        return nodes, offsets, torch.stack(values) if values else torch.zeros(0, dtype=torch.float64)

    nodes, offsets, left = concatenated(genes)
    reaction, starts, own_left = concatenated(reactions)
    own = Targets(reaction, starts, max(map(len, reactions)), own_left)
    return GenotypeBatch(nodes, offsets, max(map(len, genes)), left, reactions=own)
