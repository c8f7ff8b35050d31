"""Devices, memory, cores and ranks of this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dglcell import machine
from dglcell.errors import ConfigError, MissingDependencyError
from dglcell.machine import (
    Ranks,
    available_memory,
    check_device,
    device_here,
    device_of,
    is_out_of_memory,
    keep_freed_memory,
    multiplies_bfloat16,
    processor_name,
    threads,
)


def test_accelerators_are_devices_and_those_that_are_not_there_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="dglcell")
    here = "cuda" if torch.cuda.is_available() else "cpu"
    assert device_of("cpu") == device_here("cpu") == "cpu"
    assert device_of("gpu") == device_of("cuda") == "cuda"
    assert device_of("auto") == here
    assert caplog.text == ""
    assert device_here("gpu") == here, "a model trained on a GPU is evaluated without one"
    assert ("torch sees no GPU" in caplog.text) == (here == "cpu")
    check_device("cpu")
    with pytest.raises(ConfigError, match=r"unknown device\n  got: +abacus\n  expected: cpu or cuda"):
        check_device("abacus")
    if here == "cpu":
        with pytest.raises(MissingDependencyError, match="device 'cuda:0' asked for, but torch sees no GPU"):
            check_device("cuda:0")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_available_memory_heeds_control_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (available_memory() or 0) > 2_000_000
    for name, content in (("max", "3000000"), ("current", "1500000"), ("stat", "anon 1000000\nfile 500000")):
        (tmp_path / f"memory.{name}").write_text(f"{content}\n")
    (tmp_path / "cgroup").write_text("0::/\n")
    monkeypatch.setattr(machine, "PROCESS", tmp_path)
    monkeypatch.setattr(machine, "CONTROL_GROUPS", tmp_path)
    assert available_memory() == 2_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert (available_memory() or 0) > 2_000_000


def test_threads_are_those_given_or_the_cores_that_are_allotted(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(machine, "allotted_cores", lambda: 3)
    for number, expected in ((1, 1), (None, 3)):
        with threads(number):
            assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == before


def test_name_and_flags_are_those_of_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: Abacus 3000\nflags : fpu avx512_bf16\n")
    for folder, is_there in ((tmp_path, True), (tmp_path / "nowhere", False)):
        machine._description.cache_clear()
        monkeypatch.setattr(machine, "PROC", folder)
        assert (processor_name() == "Abacus 3000") == multiplies_bfloat16() == is_there
    machine._description.cache_clear()


@pytest.mark.parametrize(
    ("given", "quota", "expected"),
    [
        ({}, {}, 8),
        ({}, {"cpu.max": "max 100000"}, 8),
        ({}, {"cpu.max": "250000 100000"}, 2),
        ({}, {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"}, 1),  # of older systems
        ({"OMP_NUM_THREADS": "3"}, {}, 3),
        ({"SLURM_CPUS_PER_TASK": "5"}, {}, 5),
        ({"SLURM_CPUS_PER_TASK": "5"}, {"cpu.max": "50000 100000"}, 1),
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}, {}, 2),
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "OMP_NUM_THREADS": "2"}, {}, 2),
    ],
    ids=str,
)
def test_allotted_cores_are_those_that_nobody_else_may_use(
    given: dict[str, str], quota: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK", "SLURM_PROCID", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(machine, "cores", lambda: 8)
    (tmp_path / "cpu" / "job").mkdir(parents=True)
    (tmp_path / "cgroup").write_text("0::/cpu/job/step\n3:cpu,cpuacct:/job\n2:memory:/job\n")
    for name, value in quota.items():
        (tmp_path / "cpu" / "job" / name).write_text(value + "\n")
    monkeypatch.setattr(machine, "PROCESS", tmp_path)
    monkeypatch.setattr(machine, "CONTROL_GROUPS", tmp_path)
    assert machine.allotted_cores() == expected


FAULTS = """
import resource, torch
from dglcell.machine import keep_freed_memory
def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
default = faults(3)
keep_freed_memory()
faults(12)
print(default, faults(3))
"""
"""Page faults of making and freeing 64 MB, before and after, in a process of its own."""


@pytest.mark.skipif(not keep_freed_memory(), reason="the C library is not glibc")
def test_freed_memory_is_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    default, kept = map(int, done.stdout.split())
    assert kept * 10 < default


def test_out_of_memory_is_told_from_other_errors() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Ranks()),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, Ranks(3, 8, 1, 2)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "1"}, Ranks(1, 2, 1, 1)),
        # The script of a job is one process, however many tasks the job has.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, Ranks()),
        ({"RANK": "2", "WORLD_SIZE": "2"}, r"RANK and WORLD_SIZE contradict each other\s+got: +RANK=2, WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "two"}, r"the variable WORLD_SIZE is no number\s+got: +two"),
    ],
)
def test_launchers_say_which_process_this_is(environment: dict[str, str], expected: Ranks | str) -> None:
    if isinstance(expected, Ranks):
        assert Ranks.of(environment) == expected
    else:
        with pytest.raises(ConfigError, match=expected):
            Ranks.of(environment)
