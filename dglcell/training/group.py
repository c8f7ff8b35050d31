"""What the processes of a run tell each other through their hosts, and what is left when one of them is gone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# How gloo, NCCL and the store they meet at say that a process is gone; gloo's errors have no type of their own.
GONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused", "remote process")

# How they say that a process is there, perhaps, but has not answered in time; or that it never came to where they meet.
SILENT = (
    "Timed out waiting",
    "wait timeout after",
    "seconds waiting for clients",
    "client socket has timed out",
    "Watchdog caught collective operation timeout",
)


class HostGroup:
    """All ranks, talking through their hosts (gloo): the devices' queues are not waited for.

    To be made by all ranks at once. Where there is only one process nothing is sent.

    Args:
        timeout: how long they wait for one another; that of another group is not passed on to a new one.
    """

    def __init__(self, timeout: timedelta) -> None:
        many = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self._group = dist.new_group(backend="gloo", timeout=timeout) if many else None

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """The largest of the ranks' numbers, place by place."""
        if self._group is None:
            return list(numbers)
        everyone = torch.tensor([int(number) for number in numbers], device="cpu")
        dist.all_reduce(everyone, dist.ReduceOp.MAX, group=self._group)
        return [int(number) for number in everyone]

    def collect(self, item: Any) -> list[Any]:
        """The ranks' items, on every rank."""
        if self._group is None:
            return [item]
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, item, group=self._group)
        return everyone


def leave_group() -> None:
    """End this process's part in the group; a process that exits without it may abort (`terminate called`)."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def is_silent(error: BaseException) -> bool:
    """Whether an error says that another process of the group has not answered in time."""
    return isinstance(error, RuntimeError) and any(text in str(error) for text in SILENT)


def is_gone(error: BaseException) -> bool:
    """Whether an error says that another process of the group has ended."""
    if not isinstance(error, RuntimeError):
        return False
    return isinstance(error, dist.DistError) or any(text in str(error) for text in GONE)
