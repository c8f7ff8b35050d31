"""What SLURM's commands answer, and what is submitted again."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dglcell.cli import main
from dglcell.cluster import jobs as scheduler
from dglcell.cluster.jobs import Submitting, _ended_job, _job
from dglcell.files.owner import Lease
from dglcell.runs.directory import RunDirectory
from tests.config_files import write


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a valid experiment, in whose folder the commands are given."""
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, "conf/yeast/one.yaml", "cell: {model: textbook}\n")


@pytest.mark.skipif(shutil.which("sbatch") is None, reason="needs SLURM's commands")
@pytest.mark.parametrize("verb", [["check"], ["submit"], ["status"]], ids=" ".join)
def test_a_controller_that_does_not_answer_is_said_to(
    verb: list[str],
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        (tmp_path / "slurm.conf").write_text(
            f"ClusterName=nobody\nSlurmctldHost=localhost\nSlurmctldPort={unused.getsockname()[1]}\nMessageTimeout=1\n"
            "AuthType=auth/none\nNodeName=n1 CPUs=1\nPartitionName=main Nodes=ALL Default=YES\n"
        )
        monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
        monkeypatch.chdir(tmp_path)
        assert main(["job", *verb, str(file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: SLURM does not answer\n  got: ")
    assert "try again later" in said


def test_the_name_of_a_queued_job_may_hold_anything() -> None:
    job = _job("17_3|RUNNING|1:02|1-00:00:00|2|n[1-2]|a | b\n")
    assert (job.number, job.state, job.where, job.name) == ("17_3", "RUNNING", "n[1-2]", "a | b\n")


def test_a_finished_job_says_when_and_how_it_ended() -> None:
    job = _ended_job("17_3|CANCELLED by 0|00:01:02|1-00:00:00|2|2026-11-22T10:00:00|0:15|a | b")
    assert job is not None
    assert (job.number, job.state, job.used, job.name) == ("17_3", "CANCELLED by 0", "00:01:02", "a | b")
    assert job.where == "ended 2026-11-22T10:00:00, exit code 0:15"
    assert _ended_job("17_[4-5]|PENDING|00:00:00|1-00:00:00|2|Unknown|0:0|a") is None


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Stand-ins for SLURM's commands, which print something, and write what they are given to a file."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def answer(program: str, text: str, status: int = 0) -> None:
        (folder / f"{program}.txt").write_text(text)
        path = folder / program
        path.write_text(f'#!/bin/sh\necho "$*" >> $0.called; cat > $0.input; cat $0.txt; exit {status}\n')
        path.chmod(0o755)

    return answer


def test_finished_jobs_are_listed_where_there_are_accounts(
    file: Path, answers: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    answers("squeue", "")
    line = "{}|{}|00:01:02|1-00:00:00|1|2026-11-22T10:00:00|{}|{}\n"
    answers("sacct", line.format(7, "TIMEOUT", "0:0", "yeast.one") + line.format(8, "FAILED", "2:0", "other"))
    assert main(["job", "status", str(file)]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert (first, second) == ("no jobs are queued or running", "ended in the last 7 days:")
    assert third.split()[:3] == ["7", "yeast.one", "TIMEOUT"]
    assert third.endswith("00:01:02 of 1-00:00:00   ended 2026-11-22T10:00:00, exit code 0:0")


SCRIPT = "#!/bin/bash\n"


def keep(folder: Path, number: int, runs: dict[str, str], age: int = 0) -> None:
    """Write down that something was submitted."""
    path = folder / "slurm" / f"yeast.one-{number}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"script": f"{SCRIPT}# {number}\n", "runs": runs}))
    os.utime(path, (1e9 - age, 1e9 - age))


def finish(run: Path) -> None:
    """As a run that has come to its end."""
    about = {"device": "cpu", "epochs": 1, "seconds": 1.0, "processes": 1, "wall_seconds": 2.0}
    run.mkdir(parents=True)
    (run / "usage.json").write_text(json.dumps({**about, "peak_resident_bytes": None}))


def test_what_has_not_finished_and_is_not_under_way_is_submitted_again(
    file: Path, tmp_path: Path, answers: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path, 7, {str(seed): f"runs/yeast/one/seed-{seed}" for seed in range(6)}, age=20)
    keep(tmp_path, 8, {"": "runs/yeast/one/seed-5"}, age=10)
    (tmp_path / "slurm" / "yeast.one-more-9.json").write_text("another experiment")
    answers("squeue", "7_1|RUNNING|1:02|1:00:00|1|n1|yeast.one\n7_2|RUNNING|1:02|1:00:00|1|n1|other\n")
    finish(tmp_path / "runs/yeast/one/seed-0")
    directory = RunDirectory(tmp_path / "runs/yeast/one/seed-3")
    somebody = Lease(directory.owner, directory.path)
    assert somebody.acquire() is None
    answers("sbatch", "9\n")
    assert main(["job", "retry", str(file), "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 run finished, 2 queued or running",
        "would run again what was 7_2, 7_4",
        "would run again what was 8",
    ]
    assert not (tmp_path / "bin/sbatch.called").exists()
    assert main(["job", "retry", str(file), "slurm.array_limit=1"]) == 0
    somebody.release()
    assert capsys.readouterr().out.splitlines() == [
        "1 run finished, 2 queued or running",
        "job 9 submitted; it runs again what was 7_2, 7_4",
        "job 9 submitted; it runs again what was 8",
    ]
    called = (tmp_path / "bin/sbatch.called").read_text().splitlines()
    assert [re.sub(r" --comment=dglcell-[0-9a-f]{20}", "", line) for line in called] == [
        "--parsable --array=2,4%1",
        "--parsable",
    ]
    assert (tmp_path / "bin/sbatch.input").read_text() == f"{SCRIPT}# 8\n"
    kept = tmp_path / "slurm/yeast.one-9.json"
    assert json.loads(kept.read_text())["runs"] == {"": "runs/yeast/one/seed-5"}
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_dry_run_of_cancel_lists_jobs_and_cancels_none(
    file: Path, tmp_path: Path, answers: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    answers("squeue", "7_1|RUNNING|1:02|1:00:00|1|n1|yeast.one\n")
    answers("scancel", "")
    assert main(["job", "cancel", str(file), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "7_1" in said
    assert said.endswith("1 job would be cancelled\n")
    assert not (tmp_path / "bin/scancel.called").exists()
    assert main(["job", "cancel", str(file)]) == 0
    assert capsys.readouterr().out == "1 job cancelled\n"
    assert (tmp_path / "bin/scancel.called").read_text() == "7_1\n"


def test_there_may_be_nothing_to_submit_again(
    file: Path, tmp_path: Path, answers: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    answers("squeue", "")
    assert main(["job", "retry", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: no submission of 'yeast.one' is in '{tmp_path / 'slurm'}'\n  do:       work in the")
    keep(tmp_path, 7, {"": "runs/yeast/one/seed-0"})
    finish(tmp_path / "runs/yeast/one/seed-0")
    assert main(["job", "retry", str(file)]) == 0
    assert capsys.readouterr().out == "1 run finished, 0 queued or running\nnothing is to be submitted again\n"
    (tmp_path / "slurm/yeast.one-8.json").write_text('{"script": 3}')
    assert main(["job", "retry", str(file)]) == 2
    said = capsys.readouterr().err
    assert "yeast.one-8.json' is damaged: `script` is wrong\n  got:      3\n" in said
    assert "do:       remove it, and submit the experiment again" in said


def test_the_end_of_the_newest_output_is_printed(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["job", "logs", str(file)]) == 2
    assert "no output of 'yeast.one' is in" in capsys.readouterr().err
    (tmp_path / "slurm").mkdir()
    for number, age in ((7, 20), (8, 10)):
        path = tmp_path / "slurm" / f"yeast.one-{number}.out"
        path.write_text("".join(f"{number} line {i}\n" for i in range(50)))
        os.utime(path, (1000 - age, 1000 - age))
    (tmp_path / "slurm" / "yeast.one.more-9.out").write_text("another experiment\n")
    assert main(["job", "logs", str(file), "-n", "2"]) == 0
    assert capsys.readouterr().out == f"==> {tmp_path / 'slurm' / 'yeast.one-8.out'} <==\n8 line 48\n8 line 49\n"
    assert main(["job", "logs", str(file), "-n", "1", "--all"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "line" in line] == ["7 line 49", "8 line 49"]


CLUSTER = """#!{python}
import json, pathlib, sys
queue = pathlib.Path({queue!r})
jobs = json.loads(queue.read_text()) if queue.exists() else []
words = sys.argv[1:]
if sys.argv[0].endswith("sbatch"):
    script = sys.stdin.read()
    if "--test-only" in words:
        print("sbatch: Job 1 to start at once", file=sys.stderr)
        sys.exit(0)
    said = dict(word.split("=", 1) for word in words if "=" in word)
    name = next(line.partition("=")[2] for line in script.splitlines() if line.startswith("#SBATCH --job-name"))
    about = {{"name": name.strip(chr(39)), "comment": said["--comment"], "after": said.get("--dependency", "")}}
    jobs.append({{**about, "folder": str(pathlib.Path.cwd())}})
    queue.write_text(json.dumps(jobs))
    print(len(jobs))
elif any(word.endswith("%k") for word in words):
    for number, job in enumerate(jobs, 1):
        print(f"{{number}}|{{job['folder']}}|{{job['comment']}}")
else:
    for number, job in enumerate(jobs, 1):
        print(f"{{number}}|PENDING|0:00|1:00|1|(Priority)|{{job['name']}}")
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


def submitted(queue: Path, logs: Path) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Return the jobs of the cluster, and what was written down of them."""
    records = {path.name: path.read_text() for path in logs.glob("*.json")}
    return json.loads(queue.read_text()) if queue.exists() else [], records


def kill_at(moment: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """End the process before or after the given call of SLURM or change of a file; the calls that were made."""
    calls: list[str] = []

    def counted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            for when in ("before", "after"):
                calls.append(f"{when} {name}")
                if len(calls) == moment:
                    raise Killed
                if when == "before":
                    found = function(*arguments, **options)
            return found

        return call

    monkeypatch.setattr(scheduler, "_call", counted(scheduler._call, "SLURM"))
    monkeypatch.setattr(Submitting, "_write", counted(Submitting._write, "a record"))
    monkeypatch.setattr(Submitting, "finish", counted(Submitting.finish, "the end"))
    return calls


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_pipeline_whose_submission_is_killed_is_queued_once(
    file: Path,
    tmp_path: Path,
    cluster: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    step: int,
) -> None:
    arguments = ["job", "submit", str(file), "--seeds", "0-2", "--pipeline"]
    assert main(arguments) == 0
    logs = tmp_path / "slurm"
    whole = submitted(cluster, logs)
    assert [job["after"] for job in whole[0]] == ["", "afterok:1", "afterok:2"]
    assert sorted(whole[1]) == ["yeast.one-2.json"]
    moments, killed = 1, 0
    while True:
        shutil.rmtree(logs)
        cluster.unlink(missing_ok=True)
        with monkeypatch.context() as patch:
            kill_at(moments, patch)
            try:
                assert main(arguments) == 0
                break
            except Killed:
                killed += 1
        done = not list(logs.glob("*-submitting.json")) and cluster.exists()
        assert main(arguments) == (2 if done and submitted(cluster, logs) == whole else 0)
        assert submitted(cluster, logs) == whole, f"killed at moment {moments}"
        moments += step
    assert killed >= 20 // step
    assert "going on with the submission of yeast.one that was not finished" in capsys.readouterr().out


def test_what_is_queued_is_not_submitted_again(
    file: Path, tmp_path: Path, cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["job", "submit", str(file)]) == 0
    before = submitted(cluster, tmp_path / "slurm")
    assert main(["job", "submit", str(file)]) == 2
    said = capsys.readouterr().err
    assert "error: these runs are queued or running\n  got:      runs/yeast/one/seed-0\n" in said
    assert "take them back with `dglcell job cancel`" in said
    (tmp_path / "slurm" / "yeast.one-1.json").unlink()
    assert main(["job", "submit", str(file)]) == 2
    assert "error: jobs of 'yeast.one' are queued or running\n  got:      1\n" in capsys.readouterr().err
    assert submitted(cluster, tmp_path / "slurm")[0] == before[0]


def test_an_answer_that_cannot_be_read_keeps_what_is_known(
    file: Path, tmp_path: Path, answers: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    answers("squeue", "")
    answers("sbatch", "")
    (tmp_path / "bin" / "sbatch.txt").write_bytes(b"\xff\xfe whatever\n")
    assert main(["job", "submit", str(file)]) == 2
    said = capsys.readouterr().err
    assert "error: SLURM's answer is not the number of a job, which may be queued or not\n" in said
    assert (tmp_path / "slurm" / "yeast.one-submitting.json").exists()
    # It had taken the job, as its comment tells.
    (comment,) = json.loads((tmp_path / "slurm" / "yeast.one-submitting.json").read_text())["steps"]
    answers("squeue", f"17|{tmp_path}|{comment}\n")
    assert main(["job", "submit", str(file)]) == 0
    assert (tmp_path / "slurm" / "yeast.one-17.json").exists()


@pytest.mark.parametrize("content", ['{"script": "x", "runs": {"": "a\\u0000b"}}', '{"script": 1, "runs": {}}', "{"])
def test_a_damaged_record_is_an_error(
    file: Path, tmp_path: Path, answers: Callable[..., None], capsys: pytest.CaptureFixture[str], content: str
) -> None:
    answers("squeue", "8|PENDING|0:00|1:00|1|n|yeast.one\n")
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "yeast.one-8.json").write_text(content)
    for verb in ("retry", "submit"):
        answers("sbatch", "9\n")
        assert main(["job", verb, str(file)]) == 2
        assert "yeast.one-8.json' " in capsys.readouterr().err
