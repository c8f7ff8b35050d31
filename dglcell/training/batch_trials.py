"""Measure the memory and time of small batches, and predict those of larger ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from dglcell.errors import count
from dglcell.machine.devices import available_memory, measured_memory
from dglcell.machine.memory import is_out_of_memory
from dglcell.machine.ranks import Ranks

PROBE = 2
"""This size is tried first."""
MEMORY_SHARE = 0.6
"""A batch takes at most this share of the available memory; evaluation, optimisers and other batches need some too."""
TIMED = 2
"""So many works of a trial are timed."""

log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class Trial:
    """A trial holds the time and memory that work with one batch size took, e.g. training steps or predictions.

    Attributes:
        batch_size: B.
        seconds: time of one work.
        bytes: rise of memory during the work; None where it could not be measured.
    """

    batch_size: int
    seconds: float
    bytes: int | None

    @property
    def rate(self) -> float:
        """Return the strains per second."""
        return self.batch_size / self.seconds

    def fits(self, available: int | None, times: float = 1) -> bool:
        """Return whether a batch so many times as large takes at most ``MEMORY_SHARE`` of the available bytes."""
        return self.bytes is None or available is None or times * self.bytes <= MEMORY_SHARE * available


def powers_of_two(largest: int) -> list[int]:
    """Return the powers of two up to a number, ascending."""
    return [1 << exponent for exponent in range(largest.bit_length())]


def available(device: torch.device) -> int | None:
    """Return the bytes that are still available on a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return available_memory()


def measure(work: Callable[[int], object], device: torch.device, size: int, *, collect: bool = True) -> Trial | None:
    """Time a few works with one batch size after a warm-up; return None where memory runs out.

    Args:
        collect: whether to collect the garbage that works leave (`measured_memory`).
    """
    try:
        # The first work also compiles and fills caches.
        work(size)
        with measured_memory(str(device), collect=collect) as peak:
            seconds = min(_seconds(work, device, size) for _ in range(TIMED))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return Trial(size, seconds, peak.bytes)


def _seconds(work: Callable[[int], object], device: torch.device, size: int) -> float:
    """Return the seconds of one work, until the device has finished it."""
    began = time.perf_counter()
    work(size)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


MOST = 256
"""A forward pass has so many strains if memory is enough and nothing else is asked for."""
TRIED = 8
"""Memory grows in proportion from fewer strains on, so that no more are tried."""
PART_TRIED = 8
"""At most such a part of all strains is tried."""
AMPLE = 4
"""If the largest batch would fit so many times, in proportion to the first trial, there are no more trials."""


def fitting_batch(work: Callable[[int], object], device: torch.device, strains: int, most: int = MOST) -> int:
    """Return the largest batch that is expected to fit into memory; below ``most`` it is a power of two.

    Only memory decides, never a time, so that a machine with enough memory cuts the same batches every time.

    Args:
        strains: number of all strains; fewer than 16 are not tried.
    """
    last, room = None, None
    for size in [size for size in powers_of_two(min(TRIED, strains // PART_TRIED)) if size >= PROBE]:
        trial = measure(work, device, size, collect=False)
        if trial is None:
            return max(1, size // 2)
        last, room = trial, _room(device)
        if last.fits(room, AMPLE * most / size) or not last.fits(room, 2):
            break
    if last is None or last.fits(room, most / last.batch_size):
        return most
    fitting = [size for size in powers_of_two(most) if last.fits(room, size / last.batch_size)]
    chosen = fitting[-1] if fitting else 1
    log.info("batches of %s in place of %d: more may not fit into memory", count(chosen, "strain"), most)
    return chosen


def _room(device: torch.device) -> int | None:
    """Return the memory available on a device to one of the processes that predict together."""
    room = available(device)
    return room // Ranks.of().here if room is not None and device.type == "cpu" else room
