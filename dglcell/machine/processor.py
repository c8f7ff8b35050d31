"""Describe the processor of this machine: its name, its cores, and the products that it is fast at."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

from dglcell.machine.memory import control_groups
from dglcell.machine.ranks import Ranks

PROC = Path("/proc")

BFLOAT16_FLAGS = ("avx512_bf16", "amx_bf16")
"""Processors with these flags have instructions for products of bfloat16."""


@cache
def _description() -> str:
    try:
        return (PROC / "cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""


def processor_name() -> str:
    """Return the processor's name as the system gives it, else the machine's architecture."""
    for line in _description().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def multiplies_bfloat16() -> bool:
    """Return whether the processor has instructions for products of bfloat16."""
    return any(flag in _description() for flag in BFLOAT16_FLAGS)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allotted_cores() -> int:
    """Return how many cores this process may keep busy; at least 1.

    These are the cores that affinity and control groups leave to it, shared among the processes of a run on its
    machine, or those of its SLURM task. ``OMP_NUM_THREADS`` may say that they are fewer.
    """
    quotas = [quota for group, unified in control_groups("cpu") if (quota := _quota(group, unified)) is not None]
    here = int(min([cores(), *quotas]))
    of_task, of_process = (os.environ.get(name, "") for name in ("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS"))
    found = min(here, int(of_task)) if of_task.isdecimal() else here // Ranks.of().here
    return max(1, min(found, int(of_process)) if of_process.isdecimal() else found)


def _quota(group: Path, unified: bool) -> float | None:
    """Return how many cores a control group may keep busy at a time; None where it does not say."""
    files = ("cpu.max",) if unified else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    try:
        used, period = " ".join((group / name).read_text(encoding="utf-8") for name in files).split()
    except (OSError, ValueError):
        return None
    return int(used) / int(period) if used.isdecimal() else None
