"""What a run needs to be reproduced: versions, git state, device, hashes."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import dglcell

PACKAGES = ("torch", "dgl", "pytorch-lightning", "numpy", "scipy", "omegaconf", "lmdb", "cobra", "wandb")


def environment(command: str) -> dict[str, Any]:
    """Versions of everything that matters, as plain containers."""
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
