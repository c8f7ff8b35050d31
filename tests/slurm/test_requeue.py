"""A job that is told to stop saves, is queued again, and ends like one that was never stopped."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from dglcell.training.checkpoint import read_checkpoint
from dglcell.training.directory import RunDirectory
from tests.slurm.cluster import LoopbackCluster
from tests.slurm.test_jobs import SMALL, TWO_NODES, call, environment, log, submitted
from tests.tiny import BARE, Tiny

__all__ = ["environment"]

pytestmark = pytest.mark.slurm

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
            while not runs[name].metrics.exists():
                assert cluster.state(jobs[name]) in ("PENDING", "RUNNING", "CONFIGURING"), log(tmp_path)
                time.sleep(0.1)
            cluster.signal(jobs[name], "USR1")
        assert cluster.wait(jobs[name], "COMPLETED", "FAILED", "CANCELLED") == "COMPLETED", log(tmp_path)
    assert cluster.show(jobs["stopped"])["Restarts"] == "1"
    assert cluster.show(jobs["whole"])["Restarts"] == "0"
    assert "told to stop: epoch 2" in log(tmp_path)
    assert f"continuing from {runs['stopped'].interrupted}, in epoch 2" in log(tmp_path)
    stopped, whole = (read_checkpoint(run.last)["state_dict"] for run in runs.values())
    for name, weight in whole.items():
        assert torch.equal(weight, stopped[name]), name
