"""Several processes train one model: rank 0 builds and writes, the others wait for it."""

from __future__ import annotations

import os
import time
from pathlib import Path

# Set by torchrun, SLURM and Lightning's own launcher; all are 0 in the first process, or absent.
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK")
POLL_SECONDS = 0.5


def is_rank_zero() -> bool:
    """Whether this process builds, writes and reports; true where there is only one."""
    return all(os.environ.get(variable, "0") == "0" for variable in RANK_VARIABLES)


def wait_for(path: Path) -> None:
    """Return when rank 0 has made ``path``, which appears whole."""
    while not path.exists():
        time.sleep(POLL_SECONDS)
