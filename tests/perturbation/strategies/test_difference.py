"""Which pairs are listed as different from the base, and when all are computed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import Choices, perturb
from dglcell.perturbation.states import DifferenceStates, States
from tests.random_cells import RandomCell

PHYSICAL = ("gene", "physical", "gene")


def ring(genes: int) -> RandomCell:
    """Gene i acts on gene i + 1."""
    source = np.arange(genes)
    return RandomCell({"gene": genes}, {PHYSICAL: (source, (source + 1) % genes)}, {})


def after_rounds(genes: int, batch: GenotypeBatch, rounds: int = 1, reduce: str = "sum") -> DifferenceStates:
    """States of a ring that starts from ones."""
    perturbed = perturb(ring(genes).resident, batch, "difference")
    states: States = perturbed.start(torch.ones(genes, 1, dtype=torch.float64))
    for _ in range(rounds):
        states = perturbed.aggregate(PHYSICAL, states, reduce)
    assert isinstance(states, DifferenceStates)
    return states


def listed(states: DifferenceStates) -> set[tuple[int, int]]:
    """(node, strain) pairs."""
    if states.delta is None:
        return set()
    assert states.index is not None
    return set(zip(states.index.nodes.tolist(), states.index.strains.tolist(), strict=True))


def test_only_the_pairs_next_to_a_deletion_are_listed() -> None:
    batch = GenotypeBatch.from_lists([[], [3], [3, 7]])
    first = after_rounds(20, batch)
    assert listed(first) == {(3, 1), (4, 1), (3, 2), (4, 2), (7, 2), (8, 2)}
    assert first.delta is not None
    assert first.delta.flatten().tolist() == [-1.0] * 6
    second = after_rounds(20, batch, rounds=2)
    assert {node for node, _ in listed(second)} == {3, 4, 5, 7, 8, 9}


def test_fewer_pairs_are_listed_beside_a_base_with_deletions_in_common() -> None:
    batch = dataclasses.replace(GenotypeBatch.from_lists([[3], [3, 7]]), shared=(3,))
    first = after_rounds(20, batch)
    assert listed(first) == {(7, 1), (8, 1)}
    assert first.base_NH.flatten().tolist() == [float(node not in (3, 4)) for node in range(20)]


def test_no_pair_is_listed_where_no_strain_lost_anything() -> None:
    states = after_rounds(4, GenotypeBatch.from_lists([[], []]), reduce="mean")
    assert listed(states) == set()
    assert states.whole().flatten().tolist() == [1.0] * 8


@pytest.mark.parametrize(("share", "dense"), [(0.2, True), (0.5, False)])
def test_all_pairs_are_computed_where_many_differ(share: float, dense: bool) -> None:
    batch = GenotypeBatch.from_lists([[0], [4]])  # 4 of 16 pairs differ
    perturbed = perturb(ring(8).resident, batch, "difference", choices=Choices("difference", dense_share=share))
    states = perturbed.aggregate(PHYSICAL, perturbed.start(torch.ones(8, 1, dtype=torch.float64)))
    assert isinstance(states, DifferenceStates)
    assert (states.index is None) == dense
    expected = [[b * 4 not in (v, (v - 1) % 8) for b in range(2)] for v in range(8)]
    assert states.whole().squeeze(-1).tolist() == expected
