"""Devices and their memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import dglcell.machine.devices as memory
from dglcell.errors import ConfigError, MissingDependencyError
from dglcell.machine.devices import available_memory, check_device, device_here, device_of, threads
from dglcell.machine.processor import status


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


linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


@linux
def test_available_memory_heeds_control_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    total = available_memory()
    assert total is not None
    group = tmp_path / "group"
    group.mkdir()
    (group / "memory.max").write_text("3000000\n")
    (group / "memory.current").write_text("1500000\n")
    (group / "memory.stat").write_text("anon 1000000\nfile 500000\n")
    monkeypatch.setattr(memory, "control_groups", lambda _: [(group, True)])
    assert available_memory() == 2_000_000
    (group / "memory.max").write_text("max\n")
    assert available_memory() > 2_000_000


@linux
def test_the_resident_set_is_read_in_bytes() -> None:
    resident = status("VmRSS")
    assert resident is not None
    assert 20e6 < resident < 1e12
    assert status("VmNothing") is None


def test_threads_are_those_given_or_the_cores_that_are_allotted(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(memory, "allotted_cores", lambda: 3)
    for number, expected in ((1, 1), (None, 3)):
        with threads(number):
            assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == before
