"""The device of a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.gpu.devices import as_on_a_gpu, needs_gpu


@pytest.fixture(params=[pytest.param("cuda", marks=needs_gpu), "cpu"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Provide a GPU, and a CPU that takes a GPU's paths: so mistakes show where there is no GPU."""
    if request.param == "cpu":
        as_on_a_gpu(monkeypatch)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield request.param
    torch.set_float32_matmul_precision(before)
