"""Pools of metabolites that are turned over much faster than they are made."""

from __future__ import annotations

import numpy as np
import pytest
from cobra.io import load_model
from cobra.util import create_stoichiometric_matrix
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from dglcell.graph.pools import FASTEST, Pools, _slow_pools, conserved_pools
from dglcell.graph.wild_type import wild_type_fluxes
from tests.examples import examples

OXIDISED, REDUCED, SUGAR, PRODUCT, IDLE, OTHER = range(6)
STOICHIOMETRY = np.array(
    [
        # made  reduce oxidise drained eaten  product idle  waste
        [1.0, -1.0, 1.0, -1.0, 0.0, 0.0, 0.0, 0.0],  # oxidised cofactor
        [0.0, 1.0, -1.0, 0.0, 0.0, 0.0, -1.0, 0.0],  # reduced cofactor
        [0.0, -1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0],  # sugar
        [0.0, 0.0, 1.0, 0.0, 0.0, -1.0, 0.0, 0.0],  # product
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, -1.0],  # bound cofactor, which the wild type does not use
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],  # what it would become
    ]
)


def found(drain: float) -> Pools:
    fluxes = np.array([drain, 1.0, 1.0, drain, 1.0, 1.0, 0.0, 0.0])
    return conserved_pools(csr_array(STOICHIOMETRY), fluxes)


def test_a_cofactor_that_is_made_slowly_is_a_pool_which_its_unused_forms_join() -> None:
    pools = found(1e-4)
    assert pools.pool.tolist() == [0, 0, -1, -1, 0, 0]
    assert pools.weight.tolist() == pytest.approx([1, 1, 0, 0, 1, 1])


@pytest.mark.parametrize("drain", [0.02, 0.0])
def test_what_is_made_fast_or_never_is_no_pool(drain: float) -> None:
    assert (found(drain).pool == -1).all()
    assert (found(drain).weight == 0).all()


def test_the_core_model_makes_no_cofactor() -> None:
    model = load_model("textbook")
    fluxes = wild_type_fluxes(model)
    stoichiometry = csr_array(create_stoichiometric_matrix(model))
    pools = conserved_pools(stoichiometry, np.array([fluxes[reaction.id] for reaction in model.reactions]))
    assert (pools.pool == -1).all()


def least_made(stoichiometry: NDArray[np.float64], fluxes: NDArray[np.float64], seed: int) -> float:
    """Return which share of the turnover of a metabolite is made of its pool, by the definition of pools."""
    M, R = stoichiometry.shape
    rows = np.block([[stoichiometry.T, -np.eye(R)], [-stoichiometry.T, -np.eye(R)]])
    bounds = [(1.0, 1.0) if i == seed else (0.0, None) for i in range(M)] + [(0.0, None)] * R
    solution = linprog(np.concatenate([np.zeros(M), fluxes]), A_ub=rows, b_ub=np.zeros(2 * R), bounds=bounds)
    return float(solution.fun / (np.abs(stoichiometry[seed]) @ fluxes))


def network(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return three cofactors of two forms each, turned over by reactions that they share and drained slowly."""
    columns, fluxes = [], []
    for first in range(0, 6, 2):
        other = (first + 2) % 6
        for flux in rng.uniform(0.5, 2, 2):
            column = np.zeros(6)
            column[[first, first + 1]] = -1, 1
            if rng.random() < 0.5:
                column[[other, other + 1]] = -1, 1
            columns += [column, -column]
            fluxes += [flux, flux]
        columns += [np.eye(6)[first], np.eye(6)[first + 1] - np.eye(6)[first], -np.eye(6)[first + 1]]
        fluxes += [10 ** rng.uniform(-6, -1.5)] * 3
    return np.array(columns).T, np.array(fluxes)


@examples(8)
@given(st.integers(0, 2**32 - 1))
def test_pools_are_those_of_which_the_least_is_made(seed: int) -> None:
    stoichiometry, fluxes = network(np.random.default_rng(seed))
    found = {tuple(np.flatnonzero(weight)): share for share, weight in _slow_pools(csr_array(stoichiometry), fluxes)}
    for pair in ((0, 1), (2, 3), (4, 5)):
        least = least_made(stoichiometry, fluxes, pair[0])
        assert (pair in found) == (least < FASTEST)
        assert found.pop(pair, least) == pytest.approx(least, rel=1e-3, abs=1e-7)
    assert not found
