"""Several processes train one model: rank 0 builds and writes, the others wait for it."""

from __future__ import annotations

import time
from pathlib import Path

import torch.distributed as dist
from pytorch_lightning.utilities import rank_zero_only

POLL_SECONDS = 0.5


def is_rank_zero() -> bool:
    """Whether this process builds, writes and reports; true where there is only one."""
    return bool(getattr(rank_zero_only, "rank", 0) == 0)


def wait_for(path: Path) -> None:
    """Return when rank 0 has made ``path``, which appears whole."""
    while not path.exists():
        time.sleep(POLL_SECONDS)


def leave_group() -> None:
    """End this process's part in the group; a process that exits without it may abort (`terminate called`)."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
