"""A whole run of the tiny experiment."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from dglcell.losses.config import DangoLossConfig
from dglcell.losses.loss import DangoLoss
from dglcell.models import dango
from dglcell.models.config import DangoConfig
from dglcell.models.dango import Dango
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs import RunDirectory
from dglcell.training import task as task_module
from dglcell.training.evaluate import evaluate_run
from tests.gpu.devices import ExplicitDevices, needs_gpu
from tests.models.test_dango import make_cell, random_networks
from tests.random_cells import STRAINS, randomise
from tests.tiny import Tiny, history

ACCELERATORS = {"cuda": "gpu", "cpu": "cpu"}


@pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning")
def test_a_run_learns_what_one_on_a_cpu_does(tiny_run: RunDirectory, tiny: Tiny, tmp_path: Path, device: str) -> None:
    options = [f"trainer.accelerator={ACCELERATORS[device]}", "model.strategy=node_mask"]
    result = tiny.train(tmp_path, *options)
    for row, expected in zip(history(result.directory), history(tiny_run), strict=True):
        for key in ("train/loss", "validation/loss"):
            assert row[key] == pytest.approx(expected[key], rel=0.02)
    again = evaluate_run(result.directory.path)
    assert again[0].metrics["mse"] == pytest.approx(result.rows[0].metrics["mse"], rel=1e-3)


@needs_gpu
@pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning")
@pytest.mark.parametrize("schedule", ["scheduler.name=none", "scheduler={name: cosine_restarts, interval: step}"])
def test_a_recorded_step_is_a_step(tiny: Tiny, tmp_path: Path, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose steps are CUDA graphs ends with the same weights; its checkpoints have plain numbers."""
    ends = []
    for worth in (2, 10**9):
        monkeypatch.setattr(task_module, "WORTH", worth)
        options = ["trainer.accelerator=gpu", "model.strategy=node_mask", "model.dropout=0.1", "data.batch_size=20"]
        directory = tiny.train(tmp_path / str(worth), *options, schedule).directory
        ends.append(torch.load(directory.last, weights_only=True, map_location="cpu"))
    recorded, plain = (end["state_dict"] for end in ends)
    assert all(torch.equal(recorded[name], weight) for name, weight in plain.items())
    (group,) = ends[0]["optimizer_states"][0]["param_groups"]
    assert isinstance(group["lr"], float)


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
    monkeypatch.setattr(dango, "BLOCK_EDGES", 50)
    got = results(model, device)
    expected = results(model, "cpu")
    assert set(got) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, atol=1e-10, rtol=1e-10, msg=name)
