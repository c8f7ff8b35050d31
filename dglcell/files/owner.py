"""Let one process at a time write a folder: its lease is a file whose modification time is its last sign of life."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import logging
import os
import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from dglcell.errors import OwnerError
from dglcell.files.untrusted import UnreadableError, check_fields, parse_json

log = logging.getLogger("dglcell")

# Processes are found again by their marks, which are parts of the names of files that are being written.

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


# The right to write, which only one process has at a time.

LEASE_SECONDS, RENEW_SECONDS = 180.0, 20.0  # after which a lease runs out, and after which its holder renews it


def _launch() -> str:
    """Return a text that is equal in all processes that were started together, and differs when they start again."""
    names = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    return " ".join(os.environ.get(name) or "-" for name in names)


@dataclass
class Holder:
    """A holder is a process that has a lease; one of a damaged file is known by its token alone."""

    token: str = field(default_factory=lambda: secrets.token_hex(8))  #: unique to the time of a lease
    mark: str = field(default_factory=lambda: mark_of(os.getpid()))  #: which process it is
    host: str = field(default_factory=socket.gethostname)  #: name of the machine, for messages
    launch: str = field(default_factory=_launch)  #: SLURM's number of its job and of its restarts come first
    since: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    left = LEASE_SECONDS  #: seconds for which the lease still runs if it is not renewed, by the file system's clock

    def has_ended(self) -> bool:
        """Return whether the lease has run out or its process has certainly ended."""
        return self.left <= 0 or lives(self.mark) is False

    def restarted(self) -> bool:
        """Return whether SLURM has started the job of this holder again, and this process is of the later start."""
        # Another step of the job may run beside this one, started as often.
        (job, before), (here, now) = (f"{text} - -".split()[:2] for text in (self.launch, _launch()))
        starts = [int(text) if re.fullmatch("[0-9]{1,9}", text) else 0 for text in (before, now)]
        return job == here != "-" and starts[0] < starts[1]

    def __str__(self) -> str:
        if not self.mark:
            return "an unknown process, since an unknown time"
        job = self.launch.partition(" ")[0]
        where = f"{self.host} (SLURM job {job})" if job != "-" else self.host
        return f"process {self.mark.split('-')[1]} on {where}, since {self.since}"


def _read(path: Path, now: float = 0.0) -> Holder | None:
    """Return the holder that a file names; None where there is no file."""
    try:
        with open(path, "rb") as file:  # on a network file system, opening asks the server how old the file is
            content, renewed = file.read(), os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None
    holder = Holder(hashlib.sha256(content).hexdigest(), mark="")
    with suppress(UnreadableError, TypeError):
        check_fields(about := parse_json(content), {"": dict[str, str], "mark": str})
        holder = Holder(**about) if MARK.fullmatch(about["mark"]) else holder
    # A date in the future means that a clock was set back. A living holder renews the lease in less than that time.
    holder.left = LEASE_SECONDS - abs(now - renewed)
    return holder


def current_holder(lock: Path, *, foreign: bool = False) -> Holder | None:
    """Return the holder of a lease, or None where nobody holds it or it has run out.

    A process that was started together with this one counts as nobody where only others are asked for (``foreign``).
    """
    holder = _read(lock, time.time())
    return None if holder is None or holder.has_ended() or (foreign and holder.launch == _launch()) else holder


_held: set[Lease] = set()


class Lease:
    """A lease is the right to write a folder. It is renewed while it is held, and runs out with its holder's machine.

    Its file is looked at and replaced under a lock of the file system, so that of several processes one takes it. Some
    network file systems have no locks: there processes that start at the same moment may all take it, and all but the
    last stop. A holder that was taken over notices that at its next write, and stops. Forked processes have no lease.
    """

    def __init__(self, lock: Path, guarded: Path) -> None:
        self.lock, self.guarded = lock.absolute(), guarded.absolute()
        self._mine, self._ended, self._made = Holder(), threading.Event(), list[Path]()

    def guards(self, path: Path) -> bool:
        """Return whether only the holder may write ``path``; a forked process does not have its parent's leases."""
        return self._mine.mark == mark_of(os.getpid()) and path.absolute().is_relative_to(self.guarded)

    def acquire(self, after: str | None = None) -> Holder | None:
        """Take the lease of nobody, of a holder that has ended or has the token ``after``; else return who keeps it."""
        folder, new = self.lock.parent, partial_of(self.lock)
        self._made += [path for path in (*reversed(folder.parents), folder) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        try:
            new.write_text(json.dumps(asdict(self._mine)) + "\n", encoding="utf-8")
            with self._alone():
                holder = _read(self.lock, new.stat().st_mtime)
                if holder is not None and holder.token != after and not holder.has_ended():
                    return holder
                os.replace(new, self.lock)
        except FileNotFoundError:  # another process has removed the folder meanwhile
            return self.acquire(after)
        finally:
            new.unlink(missing_ok=True)
        if holder is not None:
            how = "has ended or gave no sign for too long" if holder.has_ended() else "shall stop"
            log.info("'%s' is taken over from %s, which %s", self.guarded, holder, how)
        for path in abandoned(self.lock):
            path.unlink(missing_ok=True)
        _held.add(self)
        # The first thread may hold signals back, which another one would then get.
        with signals_blocked(signal.valid_signals()):
            threading.Thread(target=self._keep, daemon=True).start()
        return None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other process look at or change the file of the lease meanwhile."""
        from filelock import FileLock

        path = self.lock.with_name(f".{self.lock.name}.lock")
        mutex = FileLock(path, timeout=LEASE_SECONDS)
        try:
            mutex.acquire()
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            log.warning("'%s' is on a file system without locks: start one process at a time there", self.guarded)
        try:
            yield
        finally:
            if mutex.is_locked:
                path.unlink(missing_ok=True)  # another process that has opened it sees that, and opens a new one
            mutex.release()

    def renew(self) -> None:
        """Renew the lease, to show that this process still runs; an error says that another one has taken over."""
        holder = _read(self.lock)
        if holder is not None and holder.token == self._mine.token:
            return os.utime(self.lock)
        got = holder or f"'{self.lock.name}' is gone: that process has ended, or the file was removed"
        do = f"let the other one go on; this one gave no sign for {LEASE_SECONDS:.0f} s, or its job was started again"
        what = f"another process has taken over '{self.guarded}', so this one stops"
        raise OwnerError(what, got=got, expected=f"a lease of {self._mine}", do=do)

    def release(self) -> None:
        """Give the lease back; do nothing if another process has it by now."""
        self._ended.set()
        _held.discard(self)
        if not self.guards(self.guarded):
            return
        with suppress(OSError):
            if self.lock.exists():
                with self._alone():
                    if getattr(_read(self.lock), "token", None) == self._mine.token:
                        self.lock.unlink()
            for folder in reversed(self._made):  # where nothing was written
                folder.rmdir()

    def _keep(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            try:
                self.renew()
            except OwnerError:
                return  # the next write says so
            except OSError:
                continue  # perhaps the file system is not there for a while


@contextmanager
def signals_blocked(signals: Iterable[int]) -> Iterator[None]:
    """Block signals while threads or processes are started, which then never get them; this thread does afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def refuse_if_taken_over(path: Path) -> None:
    """Raise an `OwnerError` if another process has taken over the lease for ``path``; call it before every write."""
    for lease in [lease for lease in _held if lease.guards(path)]:
        lease.renew()


@contextmanager
def held(lease: Lease, *, waits: bool = False, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Hold a lease for the time of the context; wait for another holder (``waits``), or raise an `OwnerError`.

    A job that SLURM has started again, for example because its node was lost, gives its earlier process the time of a
    lease to end. Then it takes over even if that one lives, as a process on a lost node may for days.
    """
    waited, pause, seen, after = 0.0, 0.1, "", None
    try:
        while (holder := lease.acquire(after)) is not None:
            if not (waits or holder.restarted()):
                do = "wait until it has ended, or stop it; if it is gone with its machine, its lease runs out in "
                do += f"{holder.left:.0f} s, and the same command goes on"
                what = f"another process is writing '{lease.guarded}'"
                raise OwnerError(what, got=holder, expected="one process at a time", do=do)
            if holder.token != seen:
                log.info("waiting for '%s', which is written by %s", lease.guarded, holder)
            seen = holder.token
            sleep(pause)
            waited, pause = waited + pause, min(2 * pause, 10.0)
            after = holder.token if not waits and waited >= LEASE_SECONDS else None
        yield
    finally:
        lease.release()
