"""Write files and folders whole, let one process own them, and read them without trust.

Whatever is being written has a name with the mark of its process, by which it is known to live or to have ended.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import secrets
import signal
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

MARK = re.compile(r"([0-9a-f]{10})-(\d+)-(\d+)(?=-|$)")


@cache
def _machine() -> str:
    """Return a text for this start of the machine and its namespace of process numbers; each container has its own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        place = f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        place = socket.gethostname()
    return hashlib.sha256(place.encode()).hexdigest()[:10]


def _started(pid: int) -> int | None:
    """Return when a process was started, in ticks since the boot, 0 if that is unknown; None for a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def mark_of(pid: int) -> str:
    """Return machine, number and start of a process, as numbers are used again; it can be part of a file's name."""
    return f"{_machine()}-{pid}-{_started(pid) or 0}"


def lives(mark: str) -> bool | None:
    """Return whether the process lives whose mark a text starts with; None for one of another machine or container."""
    found = MARK.match(mark)
    if found is None or found[1] != _machine():
        return None
    try:
        os.kill(int(found[2]), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return _started(int(found[2])) in (int(found[3]), 0)


def partial_of(target: Path) -> Path:
    """Return a new name beside ``target`` for a file that is being written; it contains the mark of this process."""
    return target.parent / f".{target.name}.partial-{mark_of(os.getpid())}-{secrets.token_hex(4)}"


def abandoned(target: Path, *, alone: bool = False) -> list[Path]:
    """Return the partial files beside ``target`` that processes which have ended left behind.

    Where only this process may write it now (``alone``), the files of other machines are abandoned as well.
    """
    prefix = f".{target.name}.partial-"
    found = {path: lives(path.name.removeprefix(prefix)) for path in target.parent.glob(glob.escape(prefix) + "*")}
    return [path for path, alive in found.items() if alive is False or (alone and alive is None)]


@contextmanager
def signals_blocked(signals: Iterable[int]) -> Iterator[None]:
    """Block signals while threads or processes are started, which then never get them; this thread does afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
