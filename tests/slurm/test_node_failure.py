"""A node that SLURM loses while the processes on it live on: the job starts on another one, and one process trains."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dglcell.run_directory import RunDirectory
from tests.integration.processes import ended
from tests.integration.test_resume import assert_same_end
from tests.slurm.cluster import LoopbackCluster
from tests.slurm.test_jobs import SMALL, call, environment, log, submitted
from tests.slurm.test_requeue import UNDER_WAY, tasks
from tests.tiny import BARE, Tiny

__all__ = ["environment"]

pytestmark = pytest.mark.slurm

ONE_NODE = ("trainer={devices: 1, accelerator: cpu, epochs: 40, threads: 1}", "data.batch_size=4")


@contextmanager
def paused(process: int) -> Iterator[None]:
    """Within it a process stands still, as if its node were cut off."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def test_a_job_whose_node_fails_is_trained_by_one_process(
    tiny: Tiny, tmp_path: Path, cluster: LoopbackCluster, environment: dict[str, str]
) -> None:
    run = RunDirectory(tmp_path / "runs" / "tiny" / "seed-0")
    overrides = tiny.overrides(tmp_path / "runs", *BARE, *ONE_NODE, *SMALL)
    job = submitted(call(environment, tmp_path, "job", "submit", tiny.file, *overrides))
    while not run.last.exists():
        assert cluster.state(job) in UNDER_WAY, log(tmp_path)
        time.sleep(0.1)
    (first,) = tasks(tmp_path / "runs")
    with cluster.lost(cluster.show(job)["NodeList"]):
        with paused(first):
            before = run.last.stat().st_mtime_ns
            while run.last.stat().st_mtime_ns == before:  # until the second process has trained an epoch
                assert cluster.state(job) in UNDER_WAY, log(tmp_path)
                time.sleep(0.1)
        assert cluster.wait(job, "COMPLETED", "FAILED", "CANCELLED") == "COMPLETED", log(tmp_path)
        assert ended(first, 300), "the process on the lost node goes on"
    assert cluster.show(job)["Restarts"] == "1"
    rows = [json.loads(row)["epoch"] for row in run.metrics.read_text().splitlines()]
    assert rows == list(range(40))
    assert_same_end(tiny.train(tmp_path / "whole", *ONE_NODE).directory, run)
