"""Choose the device and the threads that models run on, and measure available and used memory."""

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from dglcell.errors import ConfigError, MissingDependencyError, count
from dglcell.machine.memory import PROCESS, _kilobytes, status
from dglcell.machine.processor import idle_cores

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


TIMED = 4
"""So many works are done with each number of threads; the first of them warms up."""

BETTER = 0.93
"""More threads are used if the time is at most this part of the time with fewer."""

HOPELESS = 1.5
"""A number of threads gets no more turns if a work takes so many times as long as the slowest one with one thread."""

SLOWER = 1.5
"""Works that take so many times as long as before are timed again with each number of threads."""

REVIEW = 400
"""Numbers of threads are timed again after so many works: a busy machine may have become quiet."""

RECENT = 8

_most_threads: int | None = None


def set_threads(number: int | None) -> None:
    """Fix the number of threads of this process, or let ``ThreadTurns`` measure it.

    Args:
        number: number of threads; None for as many as are fastest, and at most as many as torch would use.
    """
    global _most_threads
    if number is None:
        _most_threads = max(_most_threads or 1, torch.get_num_threads())
        # Until something is measured. Cores are watched for a while, which one thread need not wait for.
        number = min(_most_threads, idle_cores()) if _most_threads > 1 else 1
    else:
        _most_threads = None
    torch.set_num_threads(number)


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Compute with a number of threads inside the context, or with as many as are fastest (``set_threads``)."""
    global _most_threads
    before = torch.get_num_threads(), _most_threads
    set_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        _most_threads = before[1]


def numbers_of_threads(most: int) -> list[int]:
    """Return the numbers of threads worth timing, ascending: 1, all, and with many cores a quarter and so on."""
    numbers = [1]
    while most > 1:
        numbers.insert(1, most)
        most = 1 if most <= 4 else most // 4
    return numbers


class ThreadTurns:
    """Thread turns find how many threads are fastest for repeated work by trying each number in turn.

    Two threads take from half the time of one to twenty times as long, depending on the machine and on what else runs
    there. So the first works try each number in turn, and later works use the fastest. Works are assumed to have about
    the same size. The numbers are timed again when works get much slower, and every ``REVIEW`` works. More threads than
    idle cores are not tried, and a number that turns out to be slow gets no second turn.

    Args:
        most: largest number of threads; with 1 there is no choice.
        idle: returns the number of cores that nobody else uses.
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
        """Return turns for work of this process; if ``set_threads`` has fixed the number there is no choice."""
        return cls(_most_threads or 1)

    def _begin_turns(self) -> None:
        self._done, self._reference = 0, math.nan
        self._recent: deque[float] = deque(maxlen=RECENT)
        if self._most > 1:
            self._seconds = {number: [] for number in numbers_of_threads(min(self._most, self._idle()))}

    @contextmanager
    def work(self) -> Iterator[None]:
        """Time the one work that is done inside the context."""
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
        """Stop the clock and record the time of this work."""
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
        ConfigError: the device is neither ``cpu`` nor ``cuda``.
        MissingDependencyError: the device is ``cuda``, and torch sees no GPU.
    """
    if device.split(":")[0] not in DEVICES:
        raise ConfigError("unknown device", got=device, expected=" or ".join(DEVICES))
    if device != "cpu" and not torch.cuda.is_available():
        raise MissingDependencyError(
            f"device '{device}' asked for, but torch sees no GPU", do="use `cpu`; `dglcell doctor` says what there is"
        )


@dataclass
class Peak:
    """A peak is the largest rise of memory in bytes; it is None where it could not be measured."""

    bytes: int | None = None


def release(device: str, *, collect: bool = True) -> None:
    """Give unused memory back to the system.

    Args:
        collect: whether to collect garbage first, which can take half a second.
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
    """Measure the rise of memory inside the context: of the resident set, or of the GPU's allocations.

    The rise counts from the memory in use at the beginning. The kernel's high-water mark is set back first. Where that
    is not possible the mark of the whole life of the process is used, which is an upper bound.

    Args:
        collect: whether to collect garbage first; garbage that is freed inside would hide a part of the rise.
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
    with suppress(OSError):
        (PROCESS / "clear_refs").write_text("5", encoding="utf-8")
    before = status("VmRSS") or 0
    try:
        yield peak
    finally:
        high = status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        peak.bytes = max(0, high - before)


def available_memory() -> int | None:
    """Return how many bytes this process can still get from the machine and within the limit of its control group."""
    free = [_kilobytes(Path("/proc/meminfo"), "MemAvailable"), *_group_rooms()]
    known = [value for value in free if value is not None]
    return min(known) if known else None


def _group_rooms() -> Iterator[int | None]:
    """Return the bytes left to every control group of this process, as SLURM and containers set them."""
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
    """Return the limit less the usage; files in the page cache do not count as used."""
    try:
        most = (group / limit).read_text(encoding="utf-8").strip()
        used = int((group / usage).read_text(encoding="utf-8"))
        cached = re.search(rf"^{cache} (\d+)$", (group / "memory.stat").read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, ValueError):
        return None
    return int(most) - used + (int(cached.group(1)) if cached else 0) if most.isdecimal() else None
