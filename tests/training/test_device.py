"""Which device a model runs on."""

from __future__ import annotations

import pytest
import torch

from dglcell.devices import check_device, device_here, device_of
from dglcell.errors import ConfigError, MissingDependencyError


def test_accelerators_are_devices() -> None:
    assert device_of("cpu") == "cpu"
    assert device_of("gpu") == device_of("cuda") == "cuda"
    assert device_of("auto") == ("cuda" if torch.cuda.is_available() else "cpu")


def test_devices_that_are_not_there_are_refused() -> None:
    check_device("cpu")
    with pytest.raises(ConfigError, match=r"unknown device\n  got: +abacus\n  expected: cpu or cuda"):
        check_device("abacus")
    if not torch.cuda.is_available():
        with pytest.raises(MissingDependencyError, match="device 'cuda:0' asked for, but torch sees no GPU"):
            check_device("cuda:0")


def test_models_trained_on_a_gpu_are_evaluated_without_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="dglcell")
    assert device_here("cpu") == "cpu"
    assert caplog.text == ""
    assert device_here("gpu") == ("cuda" if torch.cuda.is_available() else "cpu")
    assert ("torch sees no GPU" in caplog.text) != torch.cuda.is_available()
