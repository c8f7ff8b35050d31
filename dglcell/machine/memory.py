"""Reuse freed memory on a CPU, and recognise errors that say that memory ran out."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# These are parameters of mallopt(3).
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
LARGEST_INT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let glibc keep what tensors free, instead of giving it back to the system after every operator.

    By default each large tensor is mapped anew, and the first write to every page of it is a page fault: in dense
    steps over a yeast-size cell that was more than half of the time.

    Returns:
        whether the C library took the advice; libraries other than glibc are left as they are.
    """
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return False
    settings = (M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, LARGEST_INT)
    return all([bool(library.mallopt(*setting)) for setting in settings])


PROCESS = Path("/proc/self")
CONTROL_GROUPS = Path("/sys/fs/cgroup")


def control_groups(controller: str) -> Iterator[tuple[Path, bool]]:
    """Return the folders of the control groups that limit this process, and whether they are of version 2.

    Args:
        controller: what is limited, e.g. ``memory``.
    """
    try:
        lines = (PROCESS / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        root = CONTROL_GROUPS if number == "0" else CONTROL_GROUPS / controller
        if number != "0" and controller not in controllers.split(","):
            continue
        folder = root / path.lstrip("/")
        for group in (folder, *folder.parents):
            if group.is_relative_to(root):
                yield group, number == "0"


def status(key: str) -> int | None:
    """Return a figure of this process in bytes, e.g. ``VmRSS``, or None where there is no /proc."""
    return _kilobytes(PROCESS / "status", key)


def _kilobytes(path: Path, key: str) -> int | None:
    try:
        found = re.search(rf"^{key}:\s+(\d+) kB", path.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None


NO_ROOM = (
    *("can't allocate memory", "Cannot allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED"),
    *("bad_alloc", "create a primitive", "Storage size calculation overflowed"),
)
"""With these texts torch, CUDA, DGL, MKL and oneDNN report a failed allocation; few of their errors have own types."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed, as reported by Python, torch, CUDA, DGL, MKL or oneDNN."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in NO_ROOM)
