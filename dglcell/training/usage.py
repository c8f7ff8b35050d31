"""What a training took."""

from __future__ import annotations

import resource

import torch

from dglcell.files import write_json
from dglcell.memory_use import status
from dglcell.training.directory import RunDirectory
from dglcell.training.record import EpochLog


def write_usage(directory: RunDirectory, device: torch.device) -> None:
    """Write ``usage.json``: epochs, seconds of all of them together, and the peak of memory in bytes.

    The peak is that of this process: on a GPU of its allocations there, else of its resident set, the program and the
    data included. Of a run that was continued it is that of the last part.
    """
    epochs = EpochLog(directory.metrics, 0).read()
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else resident_peak()
    seconds = sum(row.get("seconds") or 0.0 for row in epochs)
    about = {"device": str(device), "epochs": len(epochs), "seconds": seconds, "peak_memory_bytes": peak}
    write_json(directory.usage, about)


def resident_peak() -> int:
    """High-water mark of this process's resident set in bytes."""
    return status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
