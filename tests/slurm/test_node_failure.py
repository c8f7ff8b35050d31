"""A node that SLURM loses while the processes on it live on: the job starts on another one, and one process trains."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dglcell.runs import RunDirectory
from tests.integration.processes import ended
from tests.integration.test_resume import assert_same_end
from tests.slurm.cluster import LoopbackCluster
from tests.slurm.test_jobs import SMALL, call, environment, log, submitted
from tests.slurm.test_requeue import UNDER_WAY, tasks
from tests.tiny import BARE, Tiny

__all__ = ["environment"]

pytestmark = pytest.mark.slurm

ONE_NODE = ("trainer={devices: 1, accelerator: cpu, epochs: 12, threads: 1}", "data.batch_size=4")


@contextmanager
def paused(process: int) -> Iterator[None]:
    """Within it a process stands still, as if its node were cut off."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


LEASE = 8.0

PROGRAM = f"""\
#!{sys.executable}
import json, os, sys, time
from dglcell.files import owner
from dglcell.runs import EpochLog

owner.LEASE_SECONDS = {LEASE}
owner.RENEW_SECONDS = 1.0
"""
"""`dglcell`, whose leases run out soon."""


def install(folder: Path, more: str = "") -> None:
    """Put `dglcell` where jobs look for it."""
    end = "from dglcell.cli import main\nsys.exit(main())\n"
    (folder / "bin" / "dglcell").write_text(f"{PROGRAM}{more}\n{end}")


def test_a_job_whose_node_fails_is_trained_by_one_process(
    tiny: Tiny, tmp_path: Path, cluster: LoopbackCluster, environment: dict[str, str]
) -> None:
    install(tmp_path)
    run = RunDirectory(tmp_path / "runs" / "tiny" / "seed-0")
    job = started(tiny, tmp_path, cluster, environment, *ONE_NODE)
    (first,) = tasks(tmp_path / "runs")
    with cluster.lost(cluster.show(job)["NodeList"]):
        with paused(first):
            before = run.last.stat().st_mtime_ns
            while run.last.stat().st_mtime_ns == before:  # until the second process has trained an epoch
                assert cluster.state(job) in UNDER_WAY, log(tmp_path)
                time.sleep(0.1)
        check_end(job, first, run, cluster)
    assert_same_end(tiny.train(tmp_path / "whole", *ONE_NODE).directory, run)


def started(tiny: Tiny, folder: Path, cluster: LoopbackCluster, environment: dict[str, str], *options: str) -> str:
    """Number of a job that has trained an epoch."""
    overrides = tiny.overrides(folder / "runs", *BARE, *options, *SMALL)
    job = submitted(call(environment, folder, "job", "submit", tiny.file, *overrides))
    while not RunDirectory(folder / "runs" / "tiny" / "seed-0").last.exists():
        assert cluster.state(job) in UNDER_WAY, log(folder)
        time.sleep(0.1)
    return job


def check_end(job: str, first: int, run: RunDirectory, cluster: LoopbackCluster, epochs: int = 12) -> None:
    """The job succeeds, its first process ends, and every epoch is in the record once."""
    assert cluster.wait(job, "COMPLETED", "FAILED", "CANCELLED") == "COMPLETED", log(run.path.parents[2])
    assert ended(first, 300), "the process on the lost node goes on"
    assert cluster.show(job)["Restarts"] == "1"
    rows = [json.loads(row)["epoch"] for row in run.metrics.read_text().splitlines()]
    assert rows == list(range(epochs))
