"""Choose the device and the threads that models run on, and say how much memory is free."""

from __future__ import annotations

import ctypes
import gc
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from dglcell.errors import ConfigError, MissingDependencyError
from dglcell.machine.processor import PROCESS, Ranks, _kilobytes, allotted_cores, group_limits, resident_peak, status

log = logging.getLogger("dglcell")

DEVICES = ("cpu", "cuda")


def device_of(accelerator: str) -> str:
    """Return torch's name, ``cpu`` or ``cuda``, of an accelerator that is given by Lightning's name."""
    if accelerator == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "cuda" if accelerator in ("gpu", "cuda") else "cpu"


def device_here(accelerator: str) -> str:
    """Return where a trained model is evaluated: its accelerator's device, or the CPU where this machine lacks that."""
    device = device_of(accelerator)
    if device == "cuda" and not torch.cuda.is_available():
        log.info("torch sees no GPU: evaluating on the CPU")
        return "cpu"
    return device


def set_threads(number: int | None) -> None:
    """Compute with a number of threads in this process; None for the cores that are allotted to it."""
    torch.set_num_threads(number or allotted_cores())


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Compute with a number of threads inside the context, as ``set_threads`` sets it."""
    before = torch.get_num_threads()
    set_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_device(device: str) -> None:
    """Refuse a device that torch does not have here.

    Raises:
        ConfigError: the device is neither ``cpu`` nor ``cuda``.
        MissingDependencyError: the device is ``cuda``, and torch sees no GPU.
    """
    if device.split(":")[0] not in DEVICES:
        raise ConfigError("unknown device", got=device, expected=" or ".join(DEVICES))
    if device != "cpu" and not torch.cuda.is_available():
        raise MissingDependencyError(
            f"device '{device}' asked for, but torch sees no GPU", do="use `cpu`; `dglcell doctor` says what there is"
        )


def free_memory(device: torch.device) -> int | None:
    """Return how many bytes this process can still get on a device, or None where the system does not say.

    Memory of a GPU that torch keeps for later tensors counts as free. Processes of a run on one machine share its
    memory.
    """
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    room = available_memory()
    return None if room is None else room // Ranks.of().here


def available_memory() -> int | None:
    """Return how many bytes this process can still get from the machine and within the limit of its control group."""
    free = [_kilobytes(Path("/proc/meminfo"), "MemAvailable")]
    names = ("memory.max", "memory.current", "memory.stat")
    older = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
    for limit, usage, stat in group_limits("memory", names, older):
        if limit.isdecimal():  # files in the page cache do not count as used
            cached = re.search(r"^(?:file|total_cache) (\d+)$", stat, re.MULTILINE)
            free.append(int(limit) - int(usage) + (int(cached[1]) if cached else 0))
    return min((value for value in free if value is not None), default=None)


@dataclass
class Peak:
    """A peak is the largest rise of memory in bytes."""

    bytes: int = 0


@contextmanager
def measured_memory(device: str) -> Iterator[Peak]:
    """Measure the rise of memory inside the context: of the resident set, or of the GPU's allocations.

    The kernel's high-water mark is set back first. Where that is not possible the mark of the whole life of the process
    is used, which is an upper bound.
    """
    gc.collect()
    peak, cuda = Peak(), torch.device(device).type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    else:
        if sys.platform.startswith("linux"):
            ctypes.CDLL(None).malloc_trim(0)
        with suppress(OSError):
            (PROCESS / "clear_refs").write_text("5", encoding="utf-8")
        before = status("VmRSS") or 0
    yield peak
    peak.bytes = max(0, (torch.cuda.max_memory_allocated(device) if cuda else resident_peak()) - before)
