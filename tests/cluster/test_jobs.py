"""What SLURM's commands answer, and that each job is queued once."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

import dglcell.cluster as scheduler
from dglcell.cli import main
from dglcell.cluster import Sweep, name_of_runs
from tests.config_files import write


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a valid experiment, in whose folder the commands are given."""
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, "conf/yeast/one.yaml", "cell: {model: textbook}\n")


@pytest.mark.skipif(shutil.which("sbatch") is None, reason="needs SLURM's commands")
def test_a_controller_that_does_not_answer_is_said_to(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        (tmp_path / "slurm.conf").write_text(
            f"ClusterName=nobody\nSlurmctldHost=localhost\nSlurmctldPort={unused.getsockname()[1]}\nMessageTimeout=1\n"
            "AuthType=auth/none\nNodeName=n1 CPUs=1\nPartitionName=main Nodes=ALL Default=YES\n"
        )
        monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
        assert main(["job", "submit", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: SLURM does not answer\n  got: ")
    assert "try again later" in said


CLUSTER = """#!{python} -IS
import json, pathlib, sys
queue = pathlib.Path({queue!r})
jobs = json.loads(queue.read_text()) if queue.exists() else []
words = sys.argv[1:]
if sys.argv[0].endswith("sbatch"):
    sys.stdin.read()
    if "--test-only" in words:
        print("sbatch: Job 1 to start at once", file=sys.stderr)
        sys.exit(0)
    said = dict(word.split("=", 1) for word in words if "=" in word)
    about = {{"name": said["--job-name"], "after": said.get("--dependency", ""), "folder": str(pathlib.Path.cwd())}}
    jobs.append(about)
    queue.write_text(json.dumps(jobs))
    print(len(jobs))
else:
    for number, job in enumerate(jobs, 1):
        print(f"{{number}}|{{job['folder']}}|{{job['name']}}")
"""
"""``sbatch`` and ``squeue`` of a cluster that takes every job and starts none."""


class Killed(BaseException):
    """As if the process had ended there."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with the jobs of a cluster."""
    folder, queue = tmp_path / "bin", tmp_path / "queue.json"
    folder.mkdir()
    for program in ("sbatch", "squeue"):
        (folder / program).write_text(CLUSTER.format(python=sys.executable, queue=str(queue)))
        (folder / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return queue


def submitted(queue: Path) -> list[dict[str, str]]:
    """Return the jobs of the cluster."""
    return json.loads(queue.read_text()) if queue.exists() else []


def kill_at(moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """End the process before or after the given call of SLURM."""
    passed, real = iter(range(1, 1000)), scheduler._call

    def call(*arguments: Any, **options: Any) -> Any:
        if next(passed) == moment:
            raise Killed
        found = real(*arguments, **options)
        if next(passed) == moment:
            raise Killed
        return found

    monkeypatch.setattr(scheduler, "_call", call)


def test_a_pipeline_whose_submission_is_killed_is_queued_once(
    file: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["job", "submit", str(file), "--seeds", "0-2", "--pipeline"]
    assert main(arguments) == 0
    whole = submitted(cluster)
    assert [job["after"] for job in whole] == ["", "afterok:1", "afterok:2"]
    assert [job["name"] for job in whole][1:] == ["yeast.one.seed-0,1,2", "yeast.one.report.seed-0,1,2"]
    assert main(arguments) == 0
    assert submitted(cluster) == whole
    # Three scripts are tried, the queue is asked, three are submitted: each with a moment before and one after.
    for moment in (1, 8, 9, 10, 12, 14):
        cluster.unlink(missing_ok=True)
        with monkeypatch.context() as patch:
            kill_at(moment, patch)
            with pytest.raises(Killed):
                main(arguments)
        assert main(arguments) == 0
        assert submitted(cluster) == whole, f"killed at moment {moment}"


def test_runs_of_other_values_or_folders_are_other_jobs(
    file: Path, tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for more in (["--seeds", "0-2"], ["--seeds", "3,4"], ["--seeds", "0-2", "--sweep", "optimizer.lr=1e-3,1e-4"]):
        assert main(["job", "submit", str(file), *more]) == 0
    monkeypatch.chdir(tmp_path / "bin")
    assert main(["job", "submit", str(file), "--seeds", "0-2"]) == 0
    assert len(submitted(cluster)) == 4


def test_the_name_of_a_job_has_what_is_swept() -> None:
    sweep = Sweep.parse("0,3", ["optimizer.lr=1e-3,1e-4"])
    assert name_of_runs("a.b", sweep, 0) == "a.b.optimizer.lr=1e-3,1e-4.seed-0,3"
    assert name_of_runs("a.b", Sweep(), 7) == "a.b.seed-7"
