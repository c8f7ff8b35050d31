"""Growth by linear programs on the cell graph, against those of cobra on the metabolic model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import OptimizeResult

from dglcell.errors import ConfigError
from dglcell.models.config import HeteroCellConfig
from dglcell.nn.exact_growth import exact_growth
from tests.nn.test_flux_rounds import BATCH, RESIDENT, by_linear_programmes, rounds_of


@pytest.mark.parametrize("rounds", [1, 256])
def test_strains_that_the_rounds_leave_unsolved_are_solved_exactly(rounds: int) -> None:
    growth_BP, certain_B2 = rounds_of(rounds, exact=True)(RESIDENT, BATCH)
    np.testing.assert_allclose(growth_BP[:, -1], by_linear_programmes(), atol=6e-5)
    assert torch.equal(certain_B2, growth_BP[:, -1:].expand(-1, 2))


def test_a_strain_without_balanced_fluxes_does_not_grow() -> None:
    balances = sparse.csr_array(np.array([[1.0, -1.0]]))  # the second reaction uses what the first one makes
    gain = torch.tensor([0.0, 2.0])
    least = torch.tensor([[0.0, 0.0, 3.0], [0.0, 1.0, 0.0]])
    largest = torch.tensor([[3.0, 0.5, 3.0], [2.5, 9.0, 1.0]])
    assert exact_growth(balances, gain, least, largest).tolist() == [5.0, 0.0, 0.0]
    assert exact_growth(balances, gain, least, torch.tensor([[3.0, 1.5, 9.0], [9.0, 9.0, 9.0]])).tolist() == [
        6.0,
        3.0,
        18.0,
    ]


def test_what_the_solver_gives_up_stays_as_the_rounds_left_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_, **__: OptimizeResult(status=4, x=None, fun=None))
    found = [rounds_of(64, exact=exact)(RESIDENT, BATCH) for exact in (False, True)]
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert (found[1][1][:, 0] != found[1][1][:, 1]).any()


def test_it_completes_rounds() -> None:
    with pytest.raises(ConfigError, match=r"(?s)`model.flux_exact` needs rounds.*flux_rounds: 0.*flux_exact: false"):
        HeteroCellConfig(flux_exact=True).validate()
    control = HeteroCellConfig(flux_rounds=8, flux_exact=True).without_messages()
    assert control is not None
    control.validate()
