"""DANGO's training step: equal to that on a CPU, in blocks of edges, with every tensor made where it belongs."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from dglcell.kernels import pair_error
from dglcell.losses.config import DangoLossConfig
from dglcell.losses.elementwise import DangoLoss
from dglcell.models.config import DangoConfig
from dglcell.models.dango import Dango
from dglcell.perturbation.genotype import GenotypeBatch
from tests.gpu.cells import STRAINS
from tests.gpu.devices import ExplicitDevices
from tests.models.plain_dango import random_networks
from tests.models.test_dango import make_cell
from tests.random_cells import randomise

TARGETS = torch.linspace(-1, 1, len(STRAINS), dtype=torch.float64).unsqueeze(1)


def results(model: Dango, device: str) -> dict[str, Tensor]:
    """Loss, its terms and all gradients of a copy of the model, on the host."""
    model, genotypes = copy.deepcopy(model).to(device), GenotypeBatch.from_lists(STRAINS).to(device)
    target_BT = TARGETS.to(device)
    with ExplicitDevices():
        loss = DangoLoss(DangoLossConfig(), 20)(model(genotypes), target_BT, 5)
        loss.total.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return {name: x.detach().cpu() for name, x in ({"total": loss.total, **loss.terms} | gradients).items()}


def test_a_step_equals_that_of_a_cpu(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    networks = random_networks(np.random.default_rng(0), 60, ["a", "b", "c"])
    config = DangoConfig(hidden=8, heads=2, gain=0.5, kernel="csr", zero_weights={"a": 0.1, "b": 1.0, "c": 0.5})
    torch.manual_seed(0)
    model = randomise(Dango(make_cell(networks, 60), config).double())
    monkeypatch.setattr(pair_error, "BLOCK_EDGES", 50)
    got = results(model, device)
    expected = results(model, "cpu")
    assert set(got) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, atol=1e-10, rtol=1e-10, msg=name)
