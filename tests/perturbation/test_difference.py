"""Corrections of the wild type against dense numpy on every strain's reduced graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.perturbation import difference
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import REDUCES, perturb
from dglcell.perturbation.row_index import RowIndex
from dglcell.perturbation.states import DenseStates, SharedStates, States
from tests.perturbation.test_strategies import TOLERANCE, WIDTH, dense_aggregate
from tests.random_cells import RandomCell, genotypes_of, random_cells

PHYSICAL = ("gene", "physical", "gene")


@settings(max_examples=60)
@given(
    data=st.data(),
    cell=random_cells(),
    reduce=st.sampled_from(REDUCES),
    changed=st.sampled_from([None, 0.0, 0.3, 1.0]),
    dense_share=st.sampled_from([0.0, 0.2, 1e9]),
)
def test_shared_states_aggregate_as_dense_ones(
    data, cell: RandomCell, reduce: str, changed: float | None, dense_share: float
) -> None:
    strains = data.draw(genotypes_of(cell))
    batch, generator = GenotypeBatch.from_lists(strains), torch.Generator().manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(difference, "DENSE_SHARE", dense_share)
        for relation in cell.edges:
            nodes = cell.sizes[relation[0]]
            mask = torch.rand(nodes, len(strains), generator=generator) < (changed or 0.0)
            index = None if changed is None else RowIndex.where(mask)
            base = torch.randn(nodes, WIDTH, dtype=torch.float64, generator=generator, requires_grad=True)
            rows = torch.randn(len(index or ()), WIDTH, dtype=torch.float64, generator=generator, requires_grad=True)
            states = SharedStates(base, rows, index)
            dense = states.dense().expand(-1, len(strains), -1)
            got = perturb(cell.resident, batch, "difference").aggregate(relation, states, reduce).dense()
            got = got.expand(-1, len(strains), -1)
            expected = dense_aggregate(cell, relation, strains, dense.detach().numpy(), reduce)
            torch.testing.assert_close(got.detach(), torch.as_tensor(expected), **TOLERANCE)
            reference = perturb(cell.resident, batch, "edge_subgraph").aggregate(relation, DenseStates(dense), reduce)
            if got.requires_grad or reference.dense().requires_grad:
                upstream = torch.randn(got.shape, dtype=torch.float64, generator=generator)
                for x, y in zip(
                    _gradients(got, upstream, [base, rows]),
                    _gradients(reference.dense(), upstream, [base, rows]),
                    strict=True,
                ):
                    torch.testing.assert_close(x, y, **TOLERANCE)


def _gradients(y: torch.Tensor, upstream: torch.Tensor, leaves: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    if not y.requires_grad:
        return tuple(torch.zeros_like(leaf) for leaf in leaves)
    return torch.autograd.grad(y, leaves, upstream, allow_unused=True, materialize_grads=True)


def ring(genes: int) -> RandomCell:
    """Gene i acts on gene i + 1."""
    source = np.arange(genes)
    return RandomCell({"gene": genes}, {PHYSICAL: (source, (source + 1) % genes)}, {})


def test_only_the_rows_next_to_a_deletion_are_stored() -> None:
    perturbed = perturb(ring(20).resident, GenotypeBatch.from_lists([[], [3], [3, 7]]), "difference")
    first = perturbed.aggregate(PHYSICAL, States.shared(torch.ones(20, 1, dtype=torch.float64)))
    assert isinstance(first, SharedStates)
    assert first.index is not None
    pairs = list(zip(first.index.nodes.tolist(), first.index.strains.tolist(), strict=True))
    assert pairs == [(3, 1), (3, 2), (4, 1), (4, 2), (7, 2), (8, 2)]
    assert not first.rows_KH.any()
    second = perturbed.aggregate(PHYSICAL, first)
    assert isinstance(second, SharedStates)
    assert second.index is not None
    assert set(second.index.nodes.tolist()) == {3, 4, 5, 7, 8, 9}


def test_no_row_is_stored_where_no_strain_lost_anything() -> None:
    perturbed = perturb(ring(4).resident, GenotypeBatch.from_lists([[], []]), "difference")
    states = perturbed.aggregate(PHYSICAL, States.shared(torch.ones(4, 1, dtype=torch.float64)), "mean")
    assert isinstance(states, SharedStates)
    assert len(states.rows_KH) == 0
    assert states.dense().flatten().tolist() == [1.0] * 8


def test_many_changes_are_computed_densely() -> None:
    everyone = GenotypeBatch.from_lists([[0, 1, 2, 3]] * 3)
    states = perturb(ring(4).resident, everyone, "difference").aggregate(
        PHYSICAL, States.shared(torch.ones(4, 1, dtype=torch.float64))
    )
    assert isinstance(states, DenseStates)
    assert not states.dense().any()
