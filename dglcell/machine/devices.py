"""The device that models run on, the threads of a CPU, and how much memory there is and was used."""

from __future__ import annotations

import ctypes
import gc
import logging
import math
import re
import resource
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from dglcell.errors import ConfigError, MissingDependencyError, count
from dglcell.machine.memory import PROCESS, _kilobytes, status
from dglcell.machine.processor import idle_cores

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


# How many threads of a CPU.


TIMED = 4
"""Works with each number of threads; the first of them warms up."""

BETTER = 0.93
"""More threads are used where the time is at most this part of that with fewer."""

HOPELESS = 1.5
"""A number of threads with which a work takes so many times as long as the slowest one with one thread gets no more."""

SLOWER = 1.5
"""Works that take so many times as long as before are timed again with each number of threads."""

REVIEW = 400
"""Works after which numbers of threads are timed again in any case: a busy machine may have become quiet."""

RECENT = 8

_most_threads: int | None = None


def set_threads(number: int | None) -> None:
    """Fix the number of threads of this process, or let ``ThreadTurns`` measure it.

    Args:
        number: of threads; None: as many as are fastest, and at most as many as torch would use.
    """
    global _most_threads
    if number is None:
        _most_threads = max(_most_threads or 1, torch.get_num_threads())
        number = min(_most_threads, idle_cores())  # until something is measured
    else:
        _most_threads = None
    torch.set_num_threads(number)


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Compute with so many threads within the context, or with as many as are fastest, as in ``set_threads``."""
    global _most_threads
    before = torch.get_num_threads(), _most_threads
    set_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        _most_threads = before[1]


def numbers_of_threads(most: int) -> list[int]:
    """Numbers that are worth timing, ascending: 1 and all, and with many cores a quarter of them and so on."""
    numbers = [1]
    while most > 1:
        numbers.insert(1, most)
        most = 1 if most <= 4 else most // 4
    return numbers


class ThreadTurns:
    """Finds how many threads are fastest for work that is repeated, by doing it with each number in turn.

    Two threads take from half the time of one to twenty times as long, by machine and by what else runs there. So the
    first works take turns, and the others use what was fastest. Works of about the same size follow each other. They
    are timed again where they get much slower, and every ``REVIEW`` works. More threads than cores that are idle are
    not tried, and a number that turns out to be slow gets no second turn.

    Args:
        most: threads; 1 for nothing to choose.
        clock: gives seconds.
        idle: gives the number of cores that nobody else uses.
    """

    def __init__(
        self, most: int, clock: Callable[[], float] = time.perf_counter, idle: Callable[[], int] = idle_cores
    ) -> None:
        self._most, self._clock, self._idle = most, clock, idle
        self._chosen: int | None = None
        self._seconds: dict[int, list[float]] = {}
        self._begin_turns()

    @classmethod
    def of_process(cls) -> ThreadTurns:
        """Turns for work of this process; with the number that ``set_threads`` has fixed there is nothing to choose."""
        return cls(_most_threads or 1)

    def _begin_turns(self) -> None:
        self._done, self._reference = 0, math.nan
        self._recent: deque[float] = deque(maxlen=RECENT)
        if self._most > 1:
            self._seconds = {number: [] for number in numbers_of_threads(min(self._most, self._idle()))}

    @contextmanager
    def work(self) -> Iterator[None]:
        """Do one work within the context."""
        self.begin()
        yield
        self.end()

    def begin(self) -> None:
        """Set the number of threads for the next work, and start the clock."""
        if self._most == 1:
            return
        if self._settled:
            assert self._chosen is not None
            torch.set_num_threads(self._chosen)
        else:
            torch.set_num_threads(min(self._seconds, key=lambda number: len(self._seconds[number])))
        self._started = self._clock()

    def end(self) -> None:
        """Stop the clock."""
        if self._most == 1:
            return
        seconds = self._clock() - self._started
        if self._settled:
            self._watch(seconds)
            return
        number = torch.get_num_threads()
        self._seconds[number].append(seconds)
        if number != 1 and seconds > HOPELESS * max(self._seconds[1]):
            del self._seconds[number]
        if all(len(times) >= TIMED for times in self._seconds.values()):
            self._choose()

    @property
    def _settled(self) -> bool:
        return not math.isnan(self._reference)

    def _choose(self) -> None:
        medians = {number: statistics.median(times[1:]) for number, times in self._seconds.items()}
        best = 1
        for number in medians:
            if medians[number] <= BETTER * medians[best]:
                best = number
        if best != self._chosen:
            times = ", ".join(f"{seconds * 1e3:,.0f} ms with {number}" for number, seconds in medians.items())
            log.info("%s (measured: %s)", count(best, "thread"), times)
        self._chosen, self._reference = best, medians[best]

    def _watch(self, seconds: float) -> None:
        self._recent.append(seconds)
        self._done += 1
        slow = len(self._recent) == RECENT and statistics.median(self._recent) > SLOWER * self._reference
        if slow or self._done >= REVIEW:
            self._begin_turns()


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


def release(device: str, *, collect: bool = True) -> None:
    """Give memory that nothing uses back to the system.

    Args:
        device: whose memory.
        collect: also collect garbage first, which can take half a second.
    """
    if collect:
        gc.collect()
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()
    if sys.platform.startswith("linux"):
        library = ctypes.CDLL(None)
        if hasattr(library, "malloc_trim"):
            library.malloc_trim(0)


@contextmanager
def measured_memory(device: str, *, collect: bool = True) -> Iterator[Peak]:
    """Measure what happens inside: the rise of the resident set above what it is now, or of the GPU's allocations.

    The kernel's high-water mark is set back first. Where that is not possible the mark of the whole life of the
    process is used, which is an upper bound.

    Args:
        device: whose memory.
        collect: collect garbage first; what is garbage before and not afterwards would hide a part of the rise.
    """
    release(device, collect=collect)
    peak = Peak()
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        try:
            yield peak
        finally:
            peak.bytes = torch.cuda.max_memory_allocated(device) - before
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
