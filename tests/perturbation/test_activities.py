"""Weakened genes and reactions under all strategies, against sums over edges one by one, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from dglcell.errors import GenotypeError
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import Choices, perturb
from dglcell.perturbation.targets import Targets
from tests.random_cells import RandomCell, resident_cell

WIDTH = 4

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


@pytest.mark.parametrize("strategy", ["node_mask", "difference"])
@pytest.mark.parametrize("left", [0.1, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)], ids=["float32", "bfloat16"]
)
def test_means_stay_where_all_sources_weaken_alike(
    strategy: str, left: float, dtype: torch.dtype, bound: float
) -> None:
    """The first node's sources all weaken, half of the second's, and the third's last one stays alone."""
    physical = ("gene", "physical", "gene")
    u, v = [3, 4, 5, 6, 3, 4, 7, 8, 3, 4, 5, 6, 7], [0] * 4 + [1] * 4 + [2] * 5
    cell = resident_cell({physical: (u, v)}, {"gene": 9})
    x_NH = torch.randn(9, WIDTH, generator=torch.Generator().manual_seed(0)) + 3
    strains = GenotypeBatch.from_lists([dict.fromkeys([3, 4, 5, 6], left), {3: left}])
    perturbed = perturb(
        cell, strains, strategy, choices=Choices(strategy, half=dtype == torch.bfloat16, dense_share=1.0)
    )
    found = perturbed.aggregate(physical, perturbed.start(x_NH), "mean").whole()[:3]
    a_BN = torch.ones(2, 9, dtype=torch.float64)
    a_BN[0, 3:7], a_BN[1, 3] = left, left
    for node in range(3):
        sources = [one for one, to in zip(u, v, strict=True) if to == node]
        expected = (a_BN[:, sources] @ x_NH[sources].double()) / a_BN[:, sources].sum(1, keepdim=True)
        torch.testing.assert_close(found[node].double(), expected, rtol=bound, atol=0)


def test_lists_of_activities_are_checked() -> None:
    batch = GenotypeBatch.from_lists([{3: 0.3, 1: 2.0}, [5], {}])
    assert batch.activities is not None
    assert (batch.genes.tolist(), batch.offsets.tolist()) == ([3, 1, 5], [0, 2, 3, 3])
    assert batch.activities.tolist() == [0.3, 2.0, 0.0]
    genes_BK, removed_BK = batch.padded()
    assert genes_BK.tolist() == [[3, 1], [5, 0], [0, 0]]
    assert removed_BK.tolist() == [[0.7, -1.0], [1.0, 0.0], [0.0, 0.0]]
    for wrong in (-0.1, 1e-9, float("nan"), float("inf")):
        with pytest.raises(
            GenotypeError,
            match=r"an activity of genes is no amount\n  got:      .*\n  expected: 0 for a deletion, 1 for",
        ):
            GenotypeBatch.from_lists([{3: 0.3}, {4: wrong}])
