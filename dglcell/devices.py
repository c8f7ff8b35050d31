"""The device that models run on, and how much memory there is and was used."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from dglcell.errors import ConfigError, MissingDependencyError
from dglcell.memory import PROCESS, _kilobytes, status

log = logging.getLogger("dglcell")

DEVICES = ("cpu", "cuda")


def device_of(accelerator: str) -> str:
    """``cpu`` or ``cuda``: what an accelerator, as Lightning names them, is to torch."""
    if accelerator == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "cuda" if accelerator in ("gpu", "cuda") else "cpu"


def device_here(accelerator: str) -> str:
    """Where a trained model is evaluated: ``device_of``, or the CPU where the accelerator it was trained on is not."""
    device = device_of(accelerator)
    if device == "cuda" and not torch.cuda.is_available():
        log.info("torch sees no GPU: evaluating on the CPU")
        return "cpu"
    return device


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Compute with so many threads within the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def idle_threads() -> int:
    """How many threads this process may use without waiting for others, by the load of the last minute; at least 1.

    More threads than idle cores are slower than one: they wait for each other at every operation.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, round(cores - os.getloadavg()[0])))


def check_device(device: str) -> None:
    """Refuse a device that torch does not have here.

    Raises:
        ConfigError: neither ``cpu`` nor ``cuda``.
        MissingDependencyError: ``cuda``, and torch sees no GPU.
    """
    if device.split(":")[0] not in DEVICES:
        raise ConfigError("unknown device", got=device, expected=" or ".join(DEVICES))
    if device != "cpu" and not torch.cuda.is_available():
        raise MissingDependencyError(
            f"device '{device}' asked for, but torch sees no GPU", do="use `cpu`; `dglcell doctor` says what there is"
        )


# Memory.


@dataclass
class Peak:
    """Largest rise of memory, in bytes; None where it could not be measured."""

    bytes: int | None = None


def release(device: str) -> None:
    """Give memory that nothing uses back to the system."""
    gc.collect()
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()
    if sys.platform.startswith("linux"):
        library = ctypes.CDLL(None)
        if hasattr(library, "malloc_trim"):
            library.malloc_trim(0)


@contextmanager
def measured_memory(device: str) -> Iterator[Peak]:
    """Measure what happens inside: the rise of the resident set above what it is now, or of the GPU's allocations.

    The kernel's high-water mark is set back first. Where that is not possible the mark of the whole life of the
    process is used, which is an upper bound.
    """
    release(device)
    peak = Peak()
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        try:
            yield peak
        finally:
            peak.bytes = torch.cuda.max_memory_allocated() - before
        return
    _reset_high_water()
    before = status("VmRSS") or 0
    try:
        yield peak
    finally:
        high = status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        peak.bytes = max(0, high - before)


def _reset_high_water() -> None:
    try:
        (PROCESS / "clear_refs").write_text("5", encoding="utf-8")
    except OSError:
        return


def available_memory() -> int | None:
    """Bytes that this process could still get: of the machine, and of its control group where that has a limit."""
    free = [_kilobytes(Path("/proc/meminfo"), "MemAvailable"), *_group_rooms()]
    known = [value for value in free if value is not None]
    return min(known) if known else None


def _group_rooms() -> Iterator[int | None]:
    """What is left to every control group that this process is in, as SLURM and containers set them."""
    try:
        lines = (PROCESS / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, limit, usage, cache = Path("/sys/fs/cgroup"), "memory.max", "memory.current", "file"
        elif "memory" in controllers.split(","):
            root, limit = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
            usage, cache = "memory.usage_in_bytes", "total_cache"
        else:
            continue
        folder = root / path.lstrip("/")
        for group in (folder, *folder.parents):
            if group.is_relative_to(root):
                yield _room(group, limit, usage, cache)


def _room(group: Path, limit: str, usage: str, cache: str) -> int | None:
    """Limit less usage; files in the page cache do not count."""
    try:
        most = (group / limit).read_text(encoding="utf-8").strip()
        used = int((group / usage).read_text(encoding="utf-8"))
        cached = re.search(rf"^{cache} (\d+)$", (group / "memory.stat").read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, ValueError):
        return None
    return int(most) - used + (int(cached.group(1)) if cached else 0) if most.isdecimal() else None
