"""Describe the processor of this machine: its name, its cores, their load, and the products that it is fast at."""

from __future__ import annotations

import os
import platform
import time
from functools import cache
from pathlib import Path

PROC = Path("/proc")

BFLOAT16_FLAGS = ("avx512_bf16", "amx_bf16")
"""Processors with these flags have instructions for products of bfloat16."""

TICK_SHARE = 0.5
"""A core counts as busy from this share of its time."""


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
    return len(_allowed())


def _allowed() -> set[int]:
    """Return the numbers of the cores that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def idle_cores(seconds: float = 0.05) -> int:
    """Return how many of its cores this process may use without waiting for others; at least 1.

    Args:
        seconds: time for which this process sleeps while the cores are watched. The load of the last minute is used
            where the system does not report the load of each core.
    """
    number = cores()
    before = _busy_seconds()
    if before is None:
        return max(1, min(number, round(number - os.getloadavg()[0])))
    time.sleep(seconds)
    after = _busy_seconds()
    assert after is not None
    busy = sum((new - old) / seconds >= TICK_SHARE for old, new in zip(before, after, strict=True))
    return max(1, number - busy)


def _busy_seconds() -> list[float] | None:
    """Return for each core of this process the seconds since the start of the machine in which it was not idle."""
    try:
        lines = (PROC / "stat").read_text(encoding="ascii").splitlines()
        ticks = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None
    allowed, found = _allowed(), []
    for line in lines:
        name, *counts = line.split()
        if name[:3] == "cpu" and name[3:].isdecimal() and int(name[3:]) in allowed:
            user, nice, system, _, _, irq, soft = (int(number) for number in counts[:7])
            found.append((user + nice + system + irq + soft) / ticks)
    return found or None
