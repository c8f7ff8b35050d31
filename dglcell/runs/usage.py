"""Where a run computed and what it took: versions, git state, device, time and memory."""

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
from dglcell.machine.memory import status
from dglcell.runs.directory import EpochLog, RunDirectory

if TYPE_CHECKING:
    import torch

# What a run needs to be reproduced: versions, git state, device, hashes.


PACKAGES = ("torch", "dgl", "pytorch-lightning", "numpy", "scipy", "omegaconf", "lmdb", "cobra", "wandb")


def environment(command: str) -> dict[str, Any]:
    """Versions of everything that matters, as plain containers."""
    import torch  # here, so that a configuration is read without it

    return {
        "dglcell": dglcell.__version__,
        "command": command,
        "python": platform.python_version(),
        "platform": machine_kind(),
        "packages": package_versions(),
        "git": git_state(Path(dglcell.__file__).parent),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] or ["cpu"],
    }


def machine_kind() -> str:
    """System, architecture and C library, which decide what is installed: ``Linux-x86_64-glibc2.36``."""
    parts = platform.system(), platform.machine(), "".join(platform.libc_ver())
    return "-".join(part for part in parts if part)


def package_versions() -> dict[str, str | None]:
    """Installed versions; None where a package is missing."""
    return {name: version_of(name) for name in PACKAGES}


def version_of(package: str) -> str | None:
    """The installed version of one package; None where it is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and whether files differ from it; None outside a checkout or without git."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return None


# What a training took.


USAGE = {
    "device": TEXT,
    "epochs": COUNT,
    "seconds": NUMBER,
    "processes": COUNT,
    "wall_seconds": NUMBER,
    "peak_resident_bytes": optional(COUNT),
}
"""Of ``usage.json``, as far as it is read, when the run has come to its end."""


@dataclass(frozen=True)
class Usage:
    """What a finished run took.

    Attributes:
        device: e.g. ``cpu`` or ``cuda:0``.
        epochs: that were trained.
        seconds: of all of them together.
        processes: that trained together.
        wall_seconds: of the run, from the building of its store to its report.
        peak_resident_bytes: of the first process's memory on its host; None where that is not known.
    """

    device: str
    epochs: int
    seconds: float
    processes: int
    wall_seconds: float
    peak_resident_bytes: int | None


def write_usage(directory: RunDirectory, device: torch.device, *, trained_here: bool = True) -> None:
    """Write ``usage.json``: epochs, seconds of all of them together, and the peak of memory in bytes.

    The peak is that of this process: on a GPU of its allocations there, else of its resident set, the program and the
    data included. Of a run that was continued it is that of the last part, and null where another process trained it.
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
    """Add to ``usage.json`` what the whole run took, which is at its end now; nothing where that was said before.

    Args:
        processes: that trained together.
        seconds: that this process has taken.
        start: the first epoch that it trained.
        trained_here: whether it trained any.
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


def read_usage(directory: RunDirectory) -> Usage | None:
    """What a finished run took; None where it has not come to its end, or does not say it."""
    try:
        content = read_json(directory.usage)
    except UnreadableError:
        return None
    return None if find_wrong(content, USAGE) else Usage(**{key: content[key] for key in USAGE})


def resident_peak() -> int:
    """High-water mark of this process's resident set in bytes."""
    return status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
