"""The processor: its name, and how many of its cores are allotted to a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from dglcell.machine import processor
from dglcell.machine import processor as memory
from dglcell.machine.processor import BFLOAT16_FLAGS, multiplies_bfloat16, processor_name


def test_name_and_flags_are_those_of_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert processor_name()
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: Abacus 3000\nflags : fpu avx512_bf16\n")
    processor._description.cache_clear()
    monkeypatch.setattr(processor, "PROC", tmp_path)
    assert processor_name() == "Abacus 3000"
    assert multiplies_bfloat16()
    processor._description.cache_clear()
    monkeypatch.setattr(processor, "PROC", tmp_path / "nowhere")
    assert processor_name()
    assert not multiplies_bfloat16()
    processor._description.cache_clear()
    assert set(BFLOAT16_FLAGS) == {"avx512_bf16", "amx_bf16"}


@pytest.mark.parametrize(
    ("given", "quota", "expected"),
    [
        ({}, None, 8),
        ({}, "max 100000", 8),
        ({}, "250000 100000", 2),
        ({"OMP_NUM_THREADS": "3"}, None, 3),
        ({"SLURM_CPUS_PER_TASK": "5"}, None, 5),
        ({"SLURM_CPUS_PER_TASK": "5"}, "50000 100000", 1),
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}, None, 2),
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "OMP_NUM_THREADS": "2"}, None, 2),
    ],
    ids=str,
)
def test_allotted_cores_are_those_that_nobody_else_may_use(
    given: dict[str, str], quota: str | None, expected: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK", "SLURM_PROCID", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processor, "cores", lambda: 8)
    (tmp_path / "job").mkdir()
    if quota is not None:
        (tmp_path / "job" / "cpu.max").write_text(quota + "\n")
    (tmp_path / "cgroup").write_text("0::/job/step\n")
    monkeypatch.setattr(memory, "PROCESS", tmp_path)
    monkeypatch.setattr(memory, "CONTROL_GROUPS", tmp_path)
    assert processor.allotted_cores() == expected


def test_older_control_groups_limit_cores_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("3:cpu,cpuacct:/job\n2:memory:/job\n")
    group = tmp_path / "cpu" / "job"
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text("150000\n")
    (group / "cpu.cfs_period_us").write_text("100000\n")
    monkeypatch.setattr(memory, "PROCESS", tmp_path)
    monkeypatch.setattr(memory, "CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(processor, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert processor.allotted_cores() == 1
