"""Finished jobs, as the accounting of a real cluster tells them: slurmdbd with a MariaDB of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dglcell.cluster.jobs import DAYS
from tests.slurm.cluster import LoopbackCluster
from tests.slurm.conftest import login_node
from tests.slurm.test_jobs import SMALL, call, submitted
from tests.tiny import BARE, Tiny

pytestmark = pytest.mark.slurm


def test_finished_jobs_are_listed_with_how_they_ended(
    tiny: Tiny, tmp_path: Path, cluster_with_accounts: LoopbackCluster
) -> None:
    cluster, environment = cluster_with_accounts, login_node(cluster_with_accounts, tmp_path)
    overrides = tiny.overrides(tmp_path / "runs", *BARE, *SMALL, "trainer.epochs=1")
    before = call(environment, tmp_path, "job", "status")
    assert (before.stdout, before.stderr) == ("no jobs are queued or running\n", "")
    obstacle = tmp_path / "runs/tiny/seed-1"
    obstacle.parent.mkdir(parents=True)
    obstacle.touch()
    job = submitted(call(environment, tmp_path, "job", "submit", tiny.file, *overrides, "--seeds", "0-1"))
    assert [cluster.wait(f"{job}_{task}", "COMPLETED", "FAILED") for task in (0, 1)] == ["COMPLETED", "FAILED"]
    cluster.wait_until_kept(job, 2)
    status = call(environment, tmp_path, "job", "status", tiny.file, *overrides)
    assert status.stderr == ""
    queued, title, *ended = status.stdout.splitlines()
    assert (queued, title) == ("no jobs are queued or running", f"ended in the last {DAYS} days:")
    assert [line.split()[:3] for line in ended] == [[f"{job}_0", "tiny", "COMPLETED"], [f"{job}_1", "tiny", "FAILED"]]
    assert "of 00:10:00" in ended[0]
    assert ended[0].endswith("exit code 0:0")
    assert ended[1].endswith("exit code 2:0")
    other = call(environment, tmp_path, "job", "status", tiny.file, *overrides, "experiment.name=other").stdout
    assert other == "no jobs are queued or running\n"
