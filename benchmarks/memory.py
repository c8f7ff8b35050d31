"""Measure the memory that a step takes."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch

from dglcell.machine.processor import PROCESS, status


@dataclass
class Peak:
    """A peak is the largest rise of memory in bytes."""

    bytes: int = 0


@contextmanager
def measured_memory(device: str) -> Iterator[Peak]:
    """Measure the rise of memory inside the context: of the resident set, or of the GPU's allocations.

    The kernel's high-water mark is set back first. Where that is not possible the mark of the whole life of the process
    is used, which is an upper bound.
    """
    gc.collect()
    peak, cuda = Peak(), torch.device(device).type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    else:
        if sys.platform.startswith("linux"):
            ctypes.CDLL(None).malloc_trim(0)
        with suppress(OSError):
            (PROCESS / "clear_refs").write_text("5", encoding="utf-8")
        before = status("VmRSS") or 0
    yield peak
    high = status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak.bytes = max(0, (torch.cuda.max_memory_allocated(device) if cuda else high) - before)
