"""A whole run of the tiny experiment."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dglcell.runs.directory import RunDirectory
from dglcell.training import whole_step
from dglcell.training.evaluate import evaluate_run
from tests.gpu.devices import needs_gpu
from tests.tiny import Tiny, history

ACCELERATORS = {"cuda": "gpu", "cpu": "cpu"}


@pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning")
@pytest.mark.parametrize("strategy", ["node_mask", "difference"])
def test_a_run_learns_what_one_on_a_cpu_does(
    tiny_run: RunDirectory, tiny: Tiny, tmp_path: Path, device: str, strategy: str
) -> None:
    options = [f"trainer.accelerator={ACCELERATORS[device]}", f"model.strategy={strategy}"]
    result = tiny.train(tmp_path, *options)
    for row, expected in zip(history(result.directory), history(tiny_run), strict=True):
        for key in ("train/loss", "validation/loss"):
            assert row[key] == pytest.approx(expected[key], rel=0.02)
    again = evaluate_run(result.directory.path)
    assert again[0].metrics["mse"] == pytest.approx(result.rows[0].metrics["mse"], rel=1e-3)


@needs_gpu
@pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning")
@pytest.mark.parametrize("schedule", ["scheduler.name=none", "scheduler={name: cosine_restarts, interval: step}"])
def test_a_recorded_step_is_the_step(
    tiny: Tiny, tmp_path: Path, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose steps are CUDA graphs ends with the same weights; its checkpoints have plain numbers."""
    ends = []
    for worth in (2, 10**9):
        monkeypatch.setattr(whole_step, "WORTH", worth)
        options = ["trainer.accelerator=gpu", "model.strategy=node_mask", "model.dropout=0.1", "data.batch_size=20"]
        directory = tiny.train(tmp_path / str(worth), *options, schedule).directory
        ends.append(torch.load(directory.last, weights_only=True, map_location="cpu"))
    recorded, plain = (end["state_dict"] for end in ends)
    assert all(torch.equal(recorded[name], weight) for name, weight in plain.items())
    (group,) = ends[0]["optimizer_states"][0]["param_groups"]
    assert isinstance(group["lr"], float)
