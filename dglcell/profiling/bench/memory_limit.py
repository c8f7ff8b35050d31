"""A limit of memory that turns too much into an exception."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dglcell.devices import available_memory, status

RESERVE = 0.03
"""Share of the available memory that is left to others."""


class MemoryLimit:
    """Make allocations beyond what is really there fail, instead of waking the kernel's out-of-memory killer.

    Made before the first method runs, to know how much address space is reserved but never used (threads' stacks).

    Args:
        most: bytes that a method may take on top of what the process holds; None for what is available.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self._unused = max(0, (status("VmData") or 0) - (status("RssAnon") or 0))

    @contextmanager
    def on(self, device: str) -> Iterator[None]:
        """Limit what happens inside. A GPU's driver reserves address space as it likes: nothing is limited there."""
        room, resident = available_memory(), status("RssAnon")
        if torch.device(device).type == "cuda" or room is None or resident is None:
            yield
            return
        room = int(room * (1 - RESERVE)) if self.most is None else self.most
        old = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = resident + self._unused + room
        resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *(x for x in old if x != -1)]), old[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, old)
