"""Decide which process may write a file or a folder, and find out whether that process still lives."""

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
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from dglcell.errors import OwnerError

log = logging.getLogger("dglcell")

LAUNCH = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
"""These variables are equal in all processes that were started together, and differ when they start again."""

_MARK = re.compile(r"([0-9a-f]{10})-(\d+)-(\d+)(?=-|$)")


@dataclass(frozen=True)
class Process:
    """A process of this machine or another one; containers may share a host's name, and numbers are used again.

    Attributes:
        host: name of the machine.
        boot: id of the machine's last start; empty where the system has none.
        namespace: id of the namespace of process numbers, of which each container has its own; 0 if there is none.
        pid: number of the process in that namespace.
        started: time of its start in ticks since the boot; 0 where the system does not tell.
        job: SLURM's number of the job that the process belongs to.
        launch: a text that all processes which were started together share.
    """

    host: str
    boot: str
    namespace: int
    pid: int
    started: int
    job: str | None
    launch: str

    @classmethod
    def this(cls) -> Process:
        """Return the process that runs this code."""
        launch, pid = " ".join(os.environ.get(name, "-") for name in LAUNCH), os.getpid()
        job = os.environ.get("SLURM_JOB_ID") or None
        return cls(socket.gethostname(), *_machine(), pid, _state(pid)[0], job, launch)

    @property
    def starts(self) -> int:
        """Return how often SLURM had restarted the job of the process."""
        found = re.match(r"\S+ ([0-9]{1,9})(?= |$)", self.launch)
        return int(found[1]) if found else 0

    @property
    def mark(self) -> str:
        """Return the machine and the number of the process as a text that can be part of a file's name."""
        place = f"{self.boot} {self.namespace}" if self.boot else self.host
        return f"{hashlib.sha256(place.encode()).hexdigest()[:10]}-{self.pid}-{self.started}"

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" + (f" (SLURM job {self.job})" if self.job else "")


def lives(mark: str) -> bool | None:
    """Return whether the process lives whose mark a text starts with; None for one of another machine or container."""
    found = _MARK.match(mark)
    if found is None or found[1] != Process.this().mark.partition("-")[0]:
        return None
    pid, started = int(found[2]), int(found[3])
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    now, has_ended = _state(pid)
    return not has_ended and now in (started, 0)


@cache
def _machine() -> tuple[str, int]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return boot, os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return "", 0


def _state(pid: int) -> tuple[int, bool]:
    """Return when a process was started and whether it is a zombie; (0, False) if that is unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0, False
    return int(fields[19]), fields[0] in (b"Z", b"X")


# The names of files and folders that are being written.


def partial_of(target: Path) -> Path:
    """Return a new name beside ``target`` for a file that is being written; it contains the mark of this process."""
    return target.parent / f".{target.name}.partial-{Process.this().mark}-{secrets.token_hex(4)}"


def abandoned(target: Path, *, alone: bool = False) -> list[Path]:
    """Return the partial files beside ``target`` that processes which have ended left behind.

    Args:
        target: the file or folder that they were writing.
        alone: whether only this process may write it now. The files of other machines are then abandoned as well.
    """
    prefix = f".{target.name}.partial-"
    found = {path: lives(path.name.removeprefix(prefix)) for path in target.parent.glob(glob.escape(prefix) + "*")}
    return [path for path, alive in found.items() if alive is False or (alone and alive is None)]


# The right to write, which only one process has at a time.


LEASE_SECONDS, RENEW_SECONDS, LONGEST_PAUSE = 180.0, 20.0, 10.0
"""A lease runs out if it is not renewed for the first; renewed after the second; waiting looks after the third."""

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""A file system without locks gives these errors."""


@dataclass(frozen=True)
class Holder:
    """A holder is the process that has a lease.

    Attributes:
        process: the process that has the lease; None where the file of the lease is damaged.
        since: date and time in UTC when the lease was taken.
        token: a text that is unique to the time for which a process has the lease.
        age: seconds since it was last renewed, by the clock of the file system.
    """

    process: Process | None
    since: str
    token: str
    age: float

    @property
    def left(self) -> float:
        """Return for how many seconds the lease still runs if it is not renewed."""
        # A date in the future means that a clock was set back. A living holder renews the lease in less than that time.
        return max(0.0, LEASE_SECONDS - abs(self.age))

    def has_ended(self) -> bool:
        """Return whether the lease has run out or its process has certainly ended."""
        return self.left == 0 or (self.process is not None and lives(self.process.mark) is False)

    def __str__(self) -> str:
        return f"{self.process or 'an unknown process'}, since {self.since}"


class Lease:
    """A lease is the right to write a folder, and is kept in a file whose modification time is that of its renewal.

    The file is looked at and replaced under a lock of the file system, so that of several processes one takes it. Some
    network file systems have no locks: there processes that start at the same moment may all take it, and all but the
    last stop. A holder that was taken over notices that at its next renewal or write, and stops.

    Args:
        lock: the file of the lease.
        guarded: the folder that only the holder may write.
    """

    def __init__(self, lock: Path, guarded: Path) -> None:
        self.lock, self.guarded = lock.absolute(), guarded.absolute()
        self.token = secrets.token_hex(8)
        self._mutex = self.lock.with_name(f".{self.lock.name}.lock")
        self._ended = threading.Event()
        self._made: list[Path] = []
        self._process = os.getpid()

    def guards(self, path: Path) -> bool:
        """Return whether only the holder may write ``path``; a forked process does not have its parent's leases."""
        return os.getpid() == self._process and path.absolute().is_relative_to(self.guarded)

    def is_left(self) -> bool:
        """Return whether files of this lease exist, written by its holder or by a process that was killed."""
        hidden = self.lock.parent.glob(f".{glob.escape(self.lock.name)}.*")
        return self.lock.exists() or any(hidden)

    def acquire(self, after: str | None = None) -> Holder | None:
        """Take the lease if nobody has it or if its holder has ended.

        Args:
            after: token of a holder that is replaced even if it lives; that process then stops at its next write.

        Returns:
            the holder that keeps the lease; None where this process has taken it.
        """
        while True:
            with suppress(FileNotFoundError):  # another process has removed the folder meanwhile
                if (holder := self._try(after)) is not None:
                    return holder
                break
        for path in abandoned(self.lock):
            path.unlink(missing_ok=True)
        _held.add(self)
        # The first thread may hold signals back, which another one would then get.
        with signals_blocked(signal.valid_signals()):
            threading.Thread(target=self._keep, daemon=True).start()
        return None

    def _try(self, after: str | None) -> Holder | None:
        """Take the lease, or return the holder that keeps it."""
        folder = self.lock.parent
        self._made += [path for path in (*reversed(folder.parents), folder) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        mine = partial_of(self.lock)
        about = {"token": self.token, "since": datetime.now(UTC).isoformat(timespec="seconds")}
        try:
            mine.write_text(json.dumps(about | asdict(Process.this()), indent=2) + "\n", encoding="utf-8")
            with self._alone():
                holder = _read(self.lock, mine.stat().st_mtime)
                if holder is not None and holder.token != after and not holder.has_ended():
                    return holder
                os.replace(mine, self.lock)
        finally:
            mine.unlink(missing_ok=True)
        if holder is not None:
            how = "has ended or gave no sign for too long" if holder.has_ended() else "shall stop"
            log.info("'%s' is taken over from %s, which %s", self.guarded, holder, how)
        return None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other process look at or change the file of the lease meanwhile."""
        from filelock import FileLock

        mutex = FileLock(self._mutex, timeout=LEASE_SECONDS)
        try:
            try:
                mutex.acquire()
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                log.warning("'%s' is on a file system without locks: start one process at a time there", self.guarded)
            yield
        finally:
            if mutex.is_locked:
                self._mutex.unlink(missing_ok=True)  # another process that has opened it sees that, and opens a new one
                mutex.release()

    def renew(self) -> None:
        """Renew the lease, to show that this process still runs.

        Raises:
            OwnerError: another process has taken over.
        """
        holder = None
        with suppress(FileNotFoundError), open(self.lock, "rb") as file:
            holder = _holder(file.read(), 0.0)
            if holder.token == self.token:
                os.utime(file.fileno())
                return
        raise OwnerError(
            f"another process has taken over '{self.guarded}', so this one stops",
            got=holder or f"'{self.lock.name}' is gone: that process has ended, or the file was removed",
            expected=f"a lease of {Process.this()}",
            do="let the other one go on; this one was not heard of for "
            f"{LEASE_SECONDS:.0f} s, or its job was started again",
        )

    def release(self) -> None:
        """Give the lease back; do nothing if another process has it by now."""
        self._ended.set()
        _held.discard(self)
        if os.getpid() != self._process:
            return
        with suppress(OSError):
            if self.lock.exists():
                with self._alone():
                    if getattr(_read(self.lock), "token", None) == self.token:
                        self.lock.unlink()
        with suppress(OSError):
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


_held: set[Lease] = set()


def refuse_if_taken_over(path: Path) -> None:
    """Raise an error if another process has taken over the lease for ``path``; call it before every write.

    Raises:
        OwnerError: this process had a lease for it, which another one has taken over.
    """
    for lease in [lease for lease in _held if lease.guards(path)]:
        lease.renew()


@contextmanager
def held(
    lease: Lease,
    patience: Callable[[Holder], float],
    sleep: Callable[[float], None] = time.sleep,
    replaces: Callable[[Holder], bool] = lambda holder: False,
) -> Iterator[None]:
    """Hold a lease for the time of the context.

    Args:
        lease: the lease to take.
        patience: returns how many seconds to wait for a holder.
        sleep: waits for a number of seconds.
        replaces: returns whether the lease is taken from a holder after that wait, instead of raising an error.

    Raises:
        OwnerError: another process has it, and keeps it.
    """
    waited, pause, seen, after = 0.0, 0.1, "", None
    try:
        while (holder := lease.acquire(after)) is not None:
            if waited >= patience(holder):
                if not replaces(holder):
                    raise OwnerError(
                        f"another process is writing '{lease.guarded}'",
                        got=holder,
                        expected="one process at a time",
                        do="wait until it has ended, or stop it; if it is gone with its machine, "
                        f"its lease runs out in {holder.left:.0f} s, and the same command goes on",
                    )
                after = holder.token
                continue
            if holder.token != seen:
                log.info("waiting for '%s', which is written by %s", lease.guarded, holder)
            seen = holder.token
            sleep(pause)
            waited, pause = waited + pause, min(2 * pause, LONGEST_PAUSE)
        yield
    finally:
        lease.release()


def current_holder(lock: Path) -> Holder | None:
    """Return the holder of a lease, or None where nobody holds it or it has run out."""
    holder = _read(lock, time.time())
    return None if holder is None or holder.has_ended() else holder


def foreign_holder(lock: Path) -> Holder | None:
    """Return the holder of a lease that was not started together with this process, or None if there is none."""
    holder = current_holder(lock)
    own = holder is None or holder.process is None or holder.process.launch == Process.this().launch
    return None if own else holder


def _read(path: Path, now: float = 0.0) -> Holder | None:
    try:
        with open(path, "rb") as file:  # on a network file system, opening asks the server how old the file is
            return _holder(file.read(), now - os.fstat(file.fileno()).st_mtime)
    except FileNotFoundError:
        return None


def _holder(content: bytes, age: float) -> Holder:
    """Read the holder from a lease file; a damaged one has a token made from its content."""
    try:
        about = json.loads(content)
        token, since, process = about.pop("token"), about.pop("since"), Process(**about)
        texts = token, since, process.host, process.boot, process.launch, process.job or ""
        numbers = process.namespace, process.pid, process.started
        if all(isinstance(one, str) for one in texts) and all(isinstance(one, int) for one in numbers):
            return Holder(process, since, token, age)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    return Holder(None, "an unknown time", hashlib.sha256(content).hexdigest()[:16], age)
