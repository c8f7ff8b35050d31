"""Experiments as jobs of a real cluster: checked, submitted, and run by two tasks on two nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import LoopbackCluster
from tests.slurm.conftest import login_node
from tests.tiny import BARE, Tiny

pytestmark = pytest.mark.slurm

TWO_NODES = ("trainer={devices: 1, num_nodes: 2, strategy: ddp, accelerator: cpu, epochs: 2, threads: 1}",)
SMALL = ("slurm={memory: 2G, cpus_per_task: 1, time: 10:00}",)


@pytest.fixture
def environment(cluster: LoopbackCluster, tmp_path: Path) -> dict[str, str]:
    return login_node(cluster, tmp_path)


def call(environment: dict[str, str], cwd: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dglcell", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def queue(environment: dict[str, str]) -> list[str]:
    command = ["squeue", "--noheader", "--format=%j"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def submitted(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("job "))


def test_nodes_train_one_run(tiny: Tiny, tmp_path: Path, cluster: LoopbackCluster, environment: dict[str, str]) -> None:
    overrides = tiny.overrides(tmp_path / "runs", *BARE, *TWO_NODES, *SMALL)
    job = submitted(call(environment, tmp_path, "job", "submit", tiny.file, *overrides))
    assert cluster.wait(job, "COMPLETED", "FAILED", "CANCELLED") == "COMPLETED", log(tmp_path)
    assert cluster.show(job)["NumNodes"] == "2"
    rows = (tmp_path / "runs/tiny/seed-0/metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["epoch"] for row in rows] == [0, 1]
    assert log(tmp_path).count("training from scratch") == 1


def test_a_job_that_slurm_refuses_is_said_to(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "one.yaml").write_text("cell: {model: textbook}\nslurm: {memory: 900G, cpus_per_task: 1}\n")
    done = call(environment, tmp_path, "job", "submit", "one.yaml")
    assert done.returncode == 2
    assert "memory a node: 900G" in done.stdout
    assert "is not there yet; built once beforehand: dglcell data build one.yaml" in done.stdout
    assert "error: SLURM refuses this job\n  got: " in done.stderr
    assert queue(environment) == []


def test_a_job_is_queued_once(tiny: Tiny, tmp_path: Path, environment: dict[str, str]) -> None:
    """Also where the name would be several words, or options, for a program that reads the script carelessly."""
    name = "a | b --wrap=c # d \\ e"
    overrides = tiny.overrides(tmp_path, *SMALL, f"experiment.name='{name}'", "slurm.options=[--hold]")
    job = submitted(call(environment, tmp_path, "job", "submit", tiny.file, *overrides, "--seeds", "0-2"))
    again = call(environment, tmp_path, "job", "submit", tiny.file, *overrides, "--seeds", "0-2").stdout
    assert again.endswith(f"job {job} is queued or running already: {name}.seed-0,1,2\n")
    subprocess.run(["scancel", job], env=environment, check=True)


def log(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted((folder / "slurm").glob("*.out")))
