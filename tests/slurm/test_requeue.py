"""A job that is told to stop saves, is queued again, and ends like one that was never stopped."""

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
import torch

from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import read_checkpoint
from tests.integration.processes import catches, ended
from tests.integration.test_run import assert_same_end
from tests.slurm.cluster import LoopbackCluster
from tests.slurm.test_jobs import SMALL, TWO_NODES, call, environment, log, submitted
from tests.tiny import BARE, Tiny, history

__all__ = ["environment"]

pytestmark = pytest.mark.slurm

UNDER_WAY = ("PENDING", "RUNNING", "CONFIGURING")
LONG = ("trainer.epochs=4", "data.batch_size=2", "model.dropout=0.2")


def test_a_requeued_job_ends_like_one_that_ran_through(
    tiny: Tiny, tmp_path: Path, cluster: LoopbackCluster, environment: dict[str, str]
) -> None:
    runs = {name: RunDirectory(tmp_path / name / "tiny" / "seed-0") for name in ("stopped", "whole")}
    jobs = {}
    for name in runs:
        overrides = tiny.overrides(tmp_path / name, *BARE, *TWO_NODES, *SMALL, *LONG)
        jobs[name] = submitted(call(environment, tmp_path, "job", "submit", tiny.file, *overrides))
        if name == "stopped":
            while not runs[name].last.exists():
                assert cluster.state(jobs[name]) in UNDER_WAY, log(tmp_path)
                time.sleep(0.1)
            time.sleep(0.1)  # into the second epoch
            cluster.signal(jobs[name], "USR1")
        assert cluster.wait(jobs[name], "COMPLETED", "FAILED", "CANCELLED") == "COMPLETED", log(tmp_path)
    assert cluster.show(jobs["stopped"])["Restarts"] == "1"
    assert cluster.show(jobs["whole"])["Restarts"] == "0"
    assert "told to stop: epoch 2" in log(tmp_path)
    assert f"continuing from {runs['stopped'].interrupted}, in epoch 2" in log(tmp_path)
    stopped, whole = (read_checkpoint(run.last)["state_dict"] for run in runs.values())
    for name, weight in whole.items():
        assert torch.equal(weight, stopped[name]), name


def test_a_job_that_is_told_to_stop_while_it_starts_is_queued_again(
    tiny: Tiny, tmp_path: Path, cluster: LoopbackCluster, environment: dict[str, str]
) -> None:
    overrides = tiny.overrides(tmp_path / "runs", *BARE, *TWO_NODES, *SMALL)
    job = submitted(call(environment, tmp_path, "job", "submit", tiny.file, *overrides))
    while not any(catches(pid, signal.SIGUSR1) for pid in tasks(tmp_path / "runs")):
        assert cluster.state(job) in UNDER_WAY, log(tmp_path)
        time.sleep(0.02)
    # Both on this machine, where they start together; the other one may be a moment behind.
    time.sleep(0.5)
    cluster.signal(job, "USR1")
    assert cluster.wait(job, "COMPLETED", "FAILED", "CANCELLED") == "COMPLETED", log(tmp_path)
    assert cluster.show(job)["Restarts"] == "1"
    assert "stopped at a point where nothing had to be saved" in log(tmp_path)
    assert f"job {job} is queued again" in log(tmp_path)
    rows = (tmp_path / "runs/tiny/seed-0/metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["epoch"] for row in rows] == [0, 1]


def tasks(runs: Path) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"python" in command[0] and b"train" in command and f"paths.runs={runs}".encode() in command:
            found.append(int(folder.name))
    return found


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


PROGRAM = f"""\
#!{sys.executable}
import sys
from dglcell.cli import main
from dglcell.files import owner

owner.RESTART_SECONDS = {{seconds}}
sys.exit(main())
"""
"""`dglcell`, whose jobs wait for their earlier process for another time."""


@pytest.mark.parametrize("lost", [True, False], ids=["lost with its processes", "cut off"])
def test_a_job_whose_node_fails_is_trained_by_one_process(
    tiny: Tiny, tmp_path: Path, cluster: LoopbackCluster, environment: dict[str, str], lost: bool
) -> None:
    (tmp_path / "bin" / "dglcell").write_text(PROGRAM.format(seconds=180.0 if lost else 1.0))
    run = RunDirectory(tmp_path / "runs" / "tiny" / "seed-0")
    job = started(tiny, tmp_path, cluster, environment, *ONE_NODE)
    (first,) = tasks(tmp_path / "runs")
    with cluster.lost(cluster.show(job)["NodeList"]), paused(first):
        while "waiting for" not in log(tmp_path):
            assert cluster.state(job) in UNDER_WAY, log(tmp_path)
            time.sleep(0.1)
        if lost:
            os.kill(first, signal.SIGKILL)
        assert cluster.wait(job, "COMPLETED", "FAILED", "CANCELLED") == ("COMPLETED" if lost else "FAILED")
        assert cluster.show(job)["Restarts"] == "1"
        assert (f"another process is writing '{run.path}'" in log(tmp_path)) != lost
    if lost:
        assert_same_end(tiny.train(tmp_path / "whole", *ONE_NODE).directory, run)
        assert [row["epoch"] for row in history(run)] == list(range(12))
    assert ended(first, 300), "the process on the lost node goes on"


def started(tiny: Tiny, folder: Path, cluster: LoopbackCluster, environment: dict[str, str], *options: str) -> str:
    overrides = tiny.overrides(folder / "runs", *BARE, *options, *SMALL)
    job = submitted(call(environment, folder, "job", "submit", tiny.file, *overrides))
    while not RunDirectory(folder / "runs" / "tiny" / "seed-0").last.exists():
        assert cluster.state(job) in UNDER_WAY, log(folder)
        time.sleep(0.1)
    return job
