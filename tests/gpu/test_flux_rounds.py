"""Rounds of fluxes and prices on a GPU find the growth that they find on a CPU."""

from __future__ import annotations

import copy

import pytest
import torch

from dglcell.graph.resident import ResidentCell
from dglcell.perturbation.genotype import GenotypeBatch
from tests.gpu.devices import ExplicitDevices
from tests.gpu.test_model import deterministic
from tests.nn.test_flux_rounds import RESIDENT, STRAINS, rounds_of

BATCH = GenotypeBatch.from_lists(STRAINS[:9])


def cell_on(device: str) -> ResidentCell:
    """Return a copy, because ``to`` would move the cell that other tests have on the CPU."""
    return copy.deepcopy(RESIDENT).to(device)


def test_the_growth_equals_that_of_a_cpu(device: str) -> None:
    expected = rounds_of(64)(RESIDENT, BATCH)[0]
    rounds = rounds_of(64).to(device)
    with deterministic(True), ExplicitDevices():
        first, second = (rounds(cell_on(device), BATCH.to(device))[0] for _ in range(2))
    torch.testing.assert_close(first.cpu(), expected, atol=1e-4, rtol=0)
    assert torch.equal(first, second)


def test_what_was_solved_before_the_model_moved_is_known(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = rounds_of(16)
    expected = rounds(RESIDENT, BATCH)
    rounds._problems = []  # a CPU makes them anew, too, as after a move
    monkeypatch.setattr("dglcell.nn.flux_rounds._Problem.solve", None)
    found = rounds.to(device)(cell_on(device), BATCH.to(device))
    for one, same in zip(found, expected, strict=True):
        assert torch.equal(one.cpu(), same)
