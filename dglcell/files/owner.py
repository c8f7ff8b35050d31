"""Let one process at a time write a folder: it holds a lock of the file system, and a file beside that names it."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from dglcell.errors import OwnerError
from dglcell.files import lives, mark_of
from dglcell.files.untrusted import UnreadableError, check_fields, parse_json

log = logging.getLogger("dglcell")

# Whoever asks for a holder has its lock for a moment. A file server frees those of a lost machine after minutes.
START_SECONDS, RESTART_SECONDS, REMOVED_SECONDS = 1.0, 180.0, 10.0

_held: set[Lease] = set()


def _launch() -> str:
    """Return a text that is equal in all processes that were started together, and differs when they start again."""
    names = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    return " ".join(os.environ.get(name) or "-" for name in names)


def _read(path: Path) -> dict[str, str]:
    """Return what a file says of the holder of a lease; nothing where it is missing or damaged."""
    with suppress(FileNotFoundError, UnreadableError):
        check_fields(about := parse_json(path.read_bytes()), {"": dict[str, str], "process": str, "mark": str})
        return about
    return {}


def current_holder(path: Path, *, foreign: bool = False) -> str | None:
    """Return which process holds the lease of a file, if any; if ``foreign``, none that was started with this one."""
    if not (about := _read(path)) or (foreign and about.get("launch") == _launch()):
        return None
    try:
        with open(_lock_of(path), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except OSError as error:  # it is locked, or there are no locks
        return None if isinstance(error, FileNotFoundError) or lives(about["mark"]) is False else about["process"]


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")  # some file systems let nobody read a locked file


class Lease:
    """A lease is the right to write a folder. It ends with its process, and forked processes do not have it.

    Where locks are missing or get lost, two may hold it. The file names the last; the other stops at its next write.
    """

    def __init__(self, path: Path, guarded: Path) -> None:
        from filelock import FileLock  # here, because it takes a while; other users of the folder may lock it, too

        self.path, self.guarded = path.absolute(), guarded.absolute()
        job = f" (SLURM job {os.environ['SLURM_JOB_ID']})" if os.environ.get("SLURM_JOB_ID") else ""
        process = f"process {os.getpid()} on {os.uname().nodename}{job}, since {time.strftime('%Y-%m-%d %H:%M:%S %z')}"
        self.about = {"process": process, "mark": mark_of(os.getpid()), "launch": _launch(), "token": token_hex(8)}
        self._lock = FileLock(_lock_of(self.path), mode=0o666, thread_local=False, fallback_to_soft=False)
        self._made = set[Path]()

    def guards(self, path: Path) -> bool:
        """Return whether only this process may write ``path``; a forked one does not have its parent's leases."""
        return self.about["mark"] == mark_of(os.getpid()) and path.absolute().is_relative_to(self.guarded)

    def acquire(self) -> bool:
        """Take the lease, and return whether nobody else has it."""
        began, folder = time.monotonic(), self.path.parent
        try:
            while not self._lock.is_locked:
                self._made.update(parent for parent in self.path.parents if not parent.exists())
                try:
                    self._lock.acquire(blocking=False)  # which makes the folder
                except (FileNotFoundError, FileExistsError):  # another process has removed it in this moment
                    if folder.is_file() or folder.is_symlink() or time.monotonic() - began > REMOVED_SECONDS:
                        raise
        except TimeoutError:
            return False
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            if current_holder(self.path):
                return False
            log.warning("'%s' is on a file system without locks: start one process at a time there", self.guarded)
        if left := _read(self.path):
            log.info("'%s' is taken over from %s, which has ended", self.guarded, left["process"])
        new = self.path.with_name(f".{self.path.name}.{'new' if self._lock.is_locked else self.about['token']}")
        new.write_text(json.dumps(self.about) + "\n", encoding="utf-8")
        os.replace(new, self.path)
        _held.add(self)
        return True

    def release(self) -> None:
        """Give the lease back; do nothing if another process has it by now."""
        _held.discard(self)
        with suppress(OSError):
            if self.guards(self.guarded) and _read(self.path) == self.about:
                self.path.unlink()
                _lock_of(self.path).unlink()  # one that has opened it sees that, and opens a new one
        with suppress(OSError):
            self._lock.release()  # does nothing in a forked process
            for folder in sorted(self._made, reverse=True):  # where nothing was written
                folder.rmdir()


def refuse_if_taken_over(path: Path) -> None:
    """Raise an `OwnerError` if another process has taken over the lease for ``path``; call it before every write."""
    for lease in [lease for lease in _held if lease.guards(path)]:
        if (about := _read(lease.path)) != lease.about:
            gone = f"'{lease.path.name}' is gone: that process has ended, or the file was removed"
            what, expected = f"another process has taken over '{lease.guarded}'", f"a lease of {lease.about['process']}"
            do = "let the other one go on; where the file system has no locks, start one process at a time"
            raise OwnerError(f"{what}, so this one stops", got=about.get("process", gone), expected=expected, do=do)


@contextmanager
def held(lease: Lease, *, waits: bool = False) -> Iterator[None]:
    """Hold a lease for the time of the context; wait for another holder (``waits``), or raise an `OwnerError`.

    A job that SLURM has started again waits some minutes for its earlier process, as its node may be lost.
    """
    began, pause, seen, job = time.monotonic(), 0.1, "", os.environ.get("SLURM_JOB_ID")
    try:
        while not lease.acquire():
            about = _read(lease.path)
            name, launch = about.get("process", "an unknown process"), about.get("launch", "")
            again = "SLURM_RESTART_COUNT" in os.environ and launch.split(" ")[0] == job
            if not waits and time.monotonic() - began > (RESTART_SECONDS if again else START_SECONDS):
                what, files = f"another process is writing '{lease.guarded}'", (lease.path, _lock_of(lease.path))
                do = "wait until it has ended, or stop it; if its machine is lost, remove '{}' and '{}'".format(*files)
                raise OwnerError(what, got=name, expected="one process at a time", do=do)
            if (waits or again) and name != seen:
                log.info("waiting for '%s', which is written by %s", lease.guarded, seen := name)
            time.sleep(pause)
            pause = min(2 * pause, 10.0)
        yield
    finally:
        lease.release()
