"""Profiles on a GPU, whose own clock divides the steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from dglcell.profiling.measure import Schedule, profile
from tests.gpu.devices import needs_gpu
from tests.tiny import Tiny


@needs_gpu
def test_times_of_the_stream_sum_up_to_the_steps(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny.config(tmp_path, "trainer.accelerator=gpu", "data.batch_size=60")
    found = profile(config, Schedule(warm_up=2, steps=4), tmp_path / "profile", "tests")
    assert found is not None
    assert found.clock == "device stream"
    assert not found.device.startswith("cpu")
    assert sum(found.components.values()) == pytest.approx(sum(found.steps), rel=1e-9)
    assert min(found.components.values()) >= 0
    assert {"aggregation", "pooling", "heads", "loss", "backward"} <= set(found.per_step())
    # The numbers of the strains, at least.
    assert found.bytes_to_device >= 60 * 8
    assert found.synchronisations is not None
