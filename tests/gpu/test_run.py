"""A whole run of the tiny experiment."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dglcell.runs.directory import RunDirectory
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
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "64-true"])
def test_a_batch_size_is_found_on_a_gpu(tiny: Tiny, tmp_path: Path, precision: str) -> None:
    options = ["trainer.accelerator=gpu", f"trainer.precision={precision}", "data.batch_size=auto"]
    directory = tiny.train(tmp_path, *options).directory
    assert yaml.safe_load(directory.config.read_text())["data"]["batch_size"] in (16, 32)
    assert len(history(directory)) == 2
