"""Record where a run computed and what it used: versions, git state, device, time and memory."""

from __future__ import annotations

import importlib.metadata
import platform
import resource
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dglcell
from dglcell.files.atomic import write_json
from dglcell.files.untrusted import (
    COUNT,
    NUMBER,
    TEXT,
    UnreadableError,
    find_wrong,
    optional,
    read_json,
)
from dglcell.machine.processor import status
from dglcell.runs.directory import EpochLog, RunDirectory

if TYPE_CHECKING:
    import torch

PACKAGES = ("torch", "dgl", "pytorch-lightning", "numpy", "scipy", "omegaconf", "lmdb", "cobra", "wandb")


def environment(command: str) -> dict[str, Any]:
    """Return the versions of everything that affects a run, as plain containers."""
    import torch  # here, so that a configuration is read without it

    return {
        "dglcell": dglcell.__version__,
        "command": command,
        "python": platform.python_version(),
        "platform": machine_kind(),
        "packages": {name: version_of(name) for name in PACKAGES},
        "git": git_state(Path(dglcell.__file__).parent),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] or ["cpu"],
    }


def machine_kind() -> str:
    """Return the system, architecture and C library, which decide what is installed: ``Linux-x86_64-glibc2.36``."""
    parts = platform.system(), platform.machine(), "".join(platform.libc_ver())
    return "-".join(part for part in parts if part)


def version_of(package: str) -> str | None:
    """Return the installed version of one package, or None where it is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return the commit and whether files differ from it, or None outside a checkout or without git."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return None


USAGE = {
    "device": TEXT,
    "epochs": COUNT,
    "seconds": NUMBER,
    "processes": COUNT,
    "wall_seconds": NUMBER,
    "peak_resident_bytes": optional(COUNT),
}
"""These fields of ``usage.json`` are read when the run has ended."""


@dataclass(frozen=True)
class Usage:
    """A usage holds the time and memory that a finished run used.

    Attributes:
        device: name of the device, e.g. ``cpu`` or ``cuda:0``.
        epochs: number of epochs that were trained.
        seconds: time of all these epochs together.
        processes: number of processes that trained together.
        wall_seconds: time of the whole run, from the building of its store to its report.
        peak_resident_bytes: peak memory of the first process on its host; None where that is not known.
    """

    device: str
    epochs: int
    seconds: float
    processes: int
    wall_seconds: float
    peak_resident_bytes: int | None


def write_usage(directory: RunDirectory, device: torch.device, *, trained_here: bool = True) -> None:
    """Write ``usage.json``: the number of epochs, their seconds together, and the peak of memory in bytes.

    The peak is that of this process. On a GPU it counts its allocations there, else its resident set, which includes
    the program and the data. For a continued run it is the peak of the last part; it is null where another process
    trained that part.
    """
    import torch

    epochs = EpochLog(directory.metrics, 0).read()
    peak = None
    if trained_here:
        peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else resident_peak()
    seconds = sum(row.get("seconds") or 0.0 for row in epochs)
    about = {"device": str(device), "epochs": len(epochs), "seconds": seconds, "peak_memory_bytes": peak}
    write_json(directory.usage, about)


def complete_usage(directory: RunDirectory, processes: int, seconds: float, start: int, *, trained_here: bool) -> None:
    """Add the time and memory of the whole run to ``usage.json`` at its end, unless they are there already.

    Args:
        processes: number of processes that trained together.
        seconds: time that this process has taken.
        start: first epoch that this process trained.
        trained_here: whether this process trained any epoch.
    """
    try:
        about = read_json(directory.usage)
    except UnreadableError:
        return
    if not isinstance(about, dict) or find_wrong(about, USAGE) is None:
        return
    earlier = sum(row.get("seconds") or 0.0 for row in EpochLog(directory.metrics, 0).read() if row["epoch"] < start)
    whole = {
        "processes": processes,
        "wall_seconds": earlier + seconds,
        "peak_resident_bytes": resident_peak() if trained_here else None,
    }
    write_json(directory.usage, about | whole)


def resident_peak() -> int:
    """Return the high-water mark of this process's resident set in bytes."""
    return status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
