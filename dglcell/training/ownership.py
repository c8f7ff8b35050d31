"""Give a run directory one owner: the first process of the run that trains in it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dglcell.errors import OwnerError
from dglcell.files.owner import LEASE_SECONDS, Holder, Lease, Process, foreign_holder, held
from dglcell.runs.directory import RunDirectory
from dglcell.training.distributed import PARENT
from dglcell.training.signals import POLL_SECONDS

log = logging.getLogger("dglcell")


@contextmanager
def owned(directory: RunDirectory, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Be the only process that writes the run directory.

    Another process may take over if this one has not renewed its lease for `LEASE_SECONDS`. From then on
    `dglcell.files.atomic` refuses to write there for this process.

    A job that SLURM has started again, for example because its node was lost, gives its earlier process the time of a
    lease to end. Then it takes the run over even if that one lives, as a process on a lost node may for days.

    Raises:
        OwnerError: another process has the run, or (on writing) has taken it over.
    """
    with held(Lease(directory.owner, directory.path), _patience, sleep, _is_earlier_start):
        yield


def _patience(holder: Holder) -> float:
    return LEASE_SECONDS if _is_earlier_start(holder) else 0.0


def _is_earlier_start(holder: Holder) -> bool:
    """Return whether a holder is of this job before SLURM restarted it; another step of the job may run beside it."""
    here, other = Process.this(), holder.process
    return other is not None and here.job is not None and other.job == here.job and other.starts < here.starts


def follow_owner(directory: RunDirectory, timeout: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait, in a process other than the first, while processes that were started earlier still write the run.

    Otherwise its checkpoint would be read too early. The first process may own the run already, or be about to.

    Raises:
        OwnerError: they have not ended within ``timeout`` seconds.
    """
    waited = 0.0
    while PARENT not in os.environ and (holder := foreign_holder(directory.owner)) is not None:
        if waited >= timeout:
            raise OwnerError(
                f"the run in '{directory.path}' is written by processes that were started before",
                got=holder,
                do="wait until they have ended, or stop them",
            )
        sleep(POLL_SECONDS)
        waited += POLL_SECONDS
