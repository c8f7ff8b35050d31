"""Several processes train one model: rank 0 builds and writes, the others wait for it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dglcell.errors import DataError

# Set by torchrun, SLURM and Lightning's own launcher; all are 0 in the first process, or absent.
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK")
POLL_SECONDS = 0.5


def is_rank_zero() -> bool:
    """Whether this process builds, writes and reports; true where there is only one."""
    return all(os.environ.get(variable, "0") == "0" for variable in RANK_VARIABLES)


def wait_for(path: Path, timeout: float) -> None:
    """Return when rank 0 has made ``path``, which appears whole.

    Args:
        path: what is waited for.
        timeout: seconds.

    Raises:
        DataError: it is not there after that time.
    """
    until = time.monotonic() + timeout
    while not path.exists():
        if time.monotonic() > until:
            raise DataError(
                f"the first process has not made '{path}' within `trainer.timeout`",
                got=f"nothing after {timeout:,.0f} s",
                do="see what it printed; where building only takes long, run `dglcell data build` before, or raise "
                "`trainer.timeout`",
            )
        time.sleep(POLL_SECONDS)
