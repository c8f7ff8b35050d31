"""Batch scripts: what they ask for, what they run, and that a shell reads them as meant."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dglcell.cluster as scheduler
from dglcell.cli import main
from dglcell.cluster import render
from dglcell.config.read import load_config
from tests.config_files import refusal, write


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path, "conf/yeast/one.yaml", 'cell: {model: textbook}\nexperiment: {description: "One\\n run"}\n')


def directives(script: str) -> set[str]:
    return {line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")}


def run_script(script: str, folder: Path, task: int = 0) -> dict[str, list[str]]:
    """Return what a shell makes of a script: the words of ``srun`` and ``module``. It may leave nothing behind."""
    for name in ("bin", "cage"):
        (folder / name).mkdir(exist_ok=True)
    for name in ("srun", "module"):
        log = f'! test -e "$LOG/{name}.log" && ! test -e "$LOG/srun.log" || echo again >> "$LOG/again"'
        (folder / "bin" / name).write_text(f'#!/bin/sh\n{log}\nprintf "%s\\n" "$@" > "$LOG/{name}.log"\n')
        (folder / "bin" / name).chmod(0o755)
    environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "LOG": str(folder), "HOME": f"{folder}/cage"}
    environment |= {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_CPUS_PER_TASK": "3"}
    for path in folder.glob("*.log"):
        path.unlink()
    (folder / "job.sh").write_text(script)
    command = ["bash", str(folder / "job.sh")]
    done = subprocess.run(command, cwd=folder / "cage", env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert [*(folder / "cage").rglob("*")] == []
    assert not (folder / "again").exists(), "`srun` is called once, and last"
    return {path.stem: path.read_text().splitlines() for path in folder.glob("*.log")}


@pytest.mark.parametrize(
    ("accelerator", "gpu", "asked"),
    [
        ("auto", "any", ["--gpus-per-node=4"]),
        ("auto", "a100", ["--gpus-per-node=a100:4"]),
        ("gpu", "null", ["--gpus-per-node=4"]),
        ("cuda", "a100", ["--gpus-per-node=a100:4"]),
        ("cpu", "a100", []),
        ("auto", "null", []),
    ],
)
def test_tasks_and_devices_are_those_of_the_trainer(file: Path, accelerator: str, gpu: str, asked: list[str]) -> None:
    keys = [f"trainer={{accelerator: {accelerator}, devices: 4, num_nodes: 2}}", f"slurm.gpu={gpu}"]
    script = directives(render(load_config(file, keys), file))
    assert {"--nodes=2", "--ntasks-per-node=4", "--requeue", "--signal=USR1@120"} <= script
    assert [option for option in script if option.startswith("--gpus")] == asked


def test_every_option_of_the_section_reaches_the_script(file: Path) -> None:
    overrides = [
        "slurm={partition: long, account: lab, qos: high, time: 2-00:00:00, memory: 500G, cpus_per_task: 16,"
        " mail: a@b.c, requeue: false, options: [--exclusive], logs: out}"
    ]
    wanted = (
        "--job-name=yeast.one --partition=long --account=lab --qos=high --nodes=1 --ntasks-per-node=1 "
        "--cpus-per-task=16 --mem=500G --time=2-00:00:00 --output=out/%x-%j.out "
        "--open-mode=append --no-requeue --mail-user=a@b.c --mail-type=END,FAIL --exclusive"
    )
    assert directives(render(load_config(file, overrides), file)) == {*wanted.split()}
    said = "It runs in the environment of the shell that submits it"
    for override in ("slurm.setup=[source .venv/bin/activate]", "slurm.container=dglcell.sif", "seed=0"):
        assert (said in render(load_config(file, [override]), file)) == (override == "seed=0")


def test_training_runs_in_a_container_with_its_modules(file: Path, tmp_path: Path) -> None:
    container = "{modules: [cuda/12.4], container: /images/my cell.sif, binds: [/scratch]}"
    called = run_script(render(load_config(file, [f"slurm={container}"]), file, ["seed=1"]), tmp_path)
    inside = ["apptainer", "exec", "--nv", "--bind", "/scratch", "/images/my cell.sif"]
    assert called["module"] == ["load", "cuda/12.4"]
    assert called["srun"] == [
        "--cpus-per-task=3",
        "--kill-on-bad-exit=1",
        *inside,
        "dglcell",
        "train",
        str(file),
        "seed=1",
    ]


def test_a_script_with_secrets_is_for_its_owner_alone(file: Path, tmp_path: Path) -> None:
    script = tmp_path / "new" / "job.sh"
    render_job = ["job", "render", str(file), "--output", str(script)]
    assert main(render_job) == 0
    assert script.stat().st_mode & 0o044, "others may read it"
    secret = [*render_job, "--overwrite", "slurm.environment.TOKEN=s3cret"]
    for _ in range(2):
        assert main(secret) == 0
        assert script.stat().st_mode & 0o777 == 0o600
        assert "s3cret" in script.read_text()
        script.chmod(0o644)


def test_each_task_of_an_array_has_its_own_seed(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    render_job = ["job", "render", str(file), "--seeds", "3,0-1"]
    assert main([*render_job, "slurm.array_limit=2"]) == 0
    assert "--array=0-2%2" in directives(capsys.readouterr().out)
    for more, member in (([], ["seed=0"]), (["--split-seeds"], ["seed=0", "split.seed=0"])):
        assert main([*render_job, *more]) == 0
        script = capsys.readouterr().out
        assert "# One run\n" in script, "the description stays in its comment"
        assert {"--array=0-2", "--output=slurm/%x-%A_%a.out"} <= directives(script)
        assert run_script(script, tmp_path, task=1)["srun"][2:] == ["dglcell", "train", str(file), *member]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "a-b"], "`--seeds` is no list of seeds"),
        (["--seeds", "3-1"], "`--seeds` is no list of seeds"),
        (["--seeds", "0-9999,20000"], "do:       a job array has at most 10,000 members"),
        (["--seeds", "0-2,1"], "`--seeds` names a seed twice\n  got:      0-2,1\n  do:       name each seed once"),
        (["--split-seeds"], "`--split-seeds` needs seeds\n  do:       give `--seeds`"),
    ],
)
def test_seeds_that_cannot_be_read_are_refused(
    file: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["job", "render", str(file), *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("slurm.time=tomorrow", "`slurm.time` is no time\n  got:      tomorrow"),
        ("slurm.memory=much", "`slurm.memory` is no size"),
        ("slurm.cpus_per_task=0", "`slurm.cpus_per_task` is too small"),
        ("slurm.environment={A B: c}", "`slurm.environment` names no variable"),
        ("slurm.options=[exclusive]", "`slurm.options` holds no option of sbatch"),
        ("slurm.binds=[/scratch]", "`slurm.binds` needs a container"),
        ("slurm.array_limit=0", "`slurm.array_limit` is no number of jobs"),
    ],
)
def test_wrong_values_are_refused_by_key(file: Path, override: str, message: str) -> None:
    assert message in refusal(file, override)


NASTY = """it's "all" $(touch pwned) `touch pwned` ; touch pwned & | > pwned < x \\ * ? ~ # ! {a,b} $HOME %j"""
"""Legal in any value, and never to be executed."""

QUOTED = NASTY.replace("'", "''")
MODEL = "cell: {model: textbook}\n"
TOUCH = ["$(touch", "pwned)", "`touch", "pwned`", ";", "touch", "pwned"]
SURROUNDED = (
    f"slurm:\n  modules: ['{QUOTED}']\n  environment: {{TOKEN: '{QUOTED}'}}\n  container: '{QUOTED}'\n"
    f"  binds: ['{QUOTED}']\n  container_command: 'apptainer {' '.join(TOUCH)}'\n"
)
KEYS = (
    *("experiment.name", "experiment.description", "tracking.project", "tracking.group", "tracking.entity"),
    *("paths.runs", "paths.data", "paths.raw", "data.store", "resume"),
    *("slurm.partition", "slurm.account", "slurm.qos", "slurm.mail", "slurm.mail_type", "slurm.gpu", "slurm.logs"),
)
"""One text each."""


@pytest.mark.parametrize(
    ("name", "more", "overrides", "before"),
    [
        *[("one.yaml", "", [f"{key}='{QUOTED}'"], []) for key in KEYS],
        ("one.yaml", SURROUNDED, [], ["apptainer", *TOUCH, "--bind", NASTY, NASTY]),
        ("; touch pwned $(touch pwned) `touch pwned` 'a' \"b\" #.yaml", "", [], []),
    ],
    ids=[*KEYS, "surroundings", "file"],
)
def test_no_value_is_executed(
    name: str, more: str, overrides: list[str], before: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(MODEL + more)
    assert main(["job", "render", name, *overrides]) == 0
    calls = run_script(capsys.readouterr().out, tmp_path)
    assert calls["srun"][2:] == [*before, "dglcell", "train", name, *overrides]
    assert calls.get("module") == (["load", NASTY] if more else None)


def test_values_are_single_words_for_sbatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(MODEL)
    values = ["slurm.partition='a --wrap=b # \\ c'", "experiment.name=a --wrap=b"]
    assert main(["job", "render", "one.yaml", *values]) == 0
    directives = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#SBATCH ")]
    assert "#SBATCH --partition='a --wrap=b # \\\\ c'" in directives
    assert "#SBATCH --job-name='a --wrap=b'" in directives


ROOT = Path(__file__).resolve().parents[1]
RENEW = "renew it with: dglcell job render conf --output jobs --overwrite"


def scripts(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.sh")}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        assert main(["job", "render", "conf", "--output", str(folder)]) == 0
    return folder


def test_every_numbered_experiment_has_its_script(rendered: Path) -> None:
    kept, fresh = scripts(ROOT / "jobs"), scripts(rendered)
    wanted = {f"{path.parent.name}/{path.stem}.sh" for path in ROOT.glob("conf/[0-9]*/*.yaml")}
    assert set(fresh) == wanted
    assert sorted(set(kept) - wanted) == [], "no such experiment: remove the script"
    for name in sorted(wanted):
        assert kept.get(name) == fresh[name], f"jobs/{name} is not what its experiment asks for: {RENEW}"
        last = fresh[name].decode().splitlines()[-1]
        assert last.endswith(f" dglcell train conf/{name.removesuffix('.sh')}.yaml"), name
    together = b"\n".join(fresh.values())
    assert str(ROOT).encode() not in together, "nothing of the machine on which they were rendered"
    assert subprocess.run(["bash", "-n"], input=together).returncode == 0


def test_a_script_asks_for_a_day_and_32_gb_unless_the_experiment_says_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for keys, asked in (([], ["32G", "24:00:00"]), (["slurm.memory=9G", "slurm.time=30"], ["9G", "30"])):
        assert main(["job", "render", "quickstart", *keys]) == 0
        assert re.findall(r"--(?:mem|time)=(\S+)", capsys.readouterr().out) == asked


def test_a_folder_without_experiments_or_output_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words in (["conf/104-kuzmin2020-pilot"], ["conf/bases", "--output", str(tmp_path)]):
        assert main(["job", "render", str(ROOT / words[0]), *words[1:]]) == 2
        assert "with --output also a folder that has folders like 101-collins2007" in capsys.readouterr().err


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
    said = dict(word.split("=", 1) for word in words if "=" in word)
    jobs.append({{"name": said["--job-name"], "folder": str(pathlib.Path.cwd())}})
    queue.write_text(json.dumps(jobs))
    print(len(jobs))
else:
    for number, job in enumerate(jobs, 1):
        print(f"{{number}}|{{job['folder']}}|{{job['name']}}")
"""
"""``sbatch`` and ``squeue`` of a cluster that takes every job and starts none."""


class Killed(BaseException):
    pass


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder, queue = tmp_path / "bin", tmp_path / "queue.json"
    folder.mkdir()
    for program in ("sbatch", "squeue"):
        (folder / program).write_text(CLUSTER.format(python=sys.executable, queue=str(queue)))
        (folder / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return queue


def submitted(queue: Path) -> list[dict[str, str]]:
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


def test_a_submission_that_is_killed_is_queued_once(
    file: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["job", "submit", str(file), "--seeds", "0-2"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "one.yaml: valid; 3 jobs\n  nodes: 1, tasks a node: 1, CPUs a task: " in said
    assert " is not there yet; built once beforehand: dglcell data build " in said
    assert said.endswith("job 1 submitted; output goes to slurm/, the run to runs/yeast/one\n")
    whole = submitted(cluster)
    assert [job["name"] for job in whole] == ["yeast.one.seed-0,1,2"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.endswith("job 1 is queued or running already: yeast.one.seed-0,1,2\n")
    assert submitted(cluster) == whole
    for moment in (1, 2, 3, 4):  # before and after the queue is asked, and before and after the script is submitted
        cluster.unlink(missing_ok=True)
        with monkeypatch.context() as patch:
            kill_at(moment, patch)
            with pytest.raises(Killed):
                main(arguments)
        assert main(arguments) == 0
        assert submitted(cluster) == whole, f"killed at moment {moment}"


def test_runs_of_other_seeds_or_folders_are_other_jobs(
    file: Path, tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for more in (["--seeds", "0-2"], ["--seeds", "3,4"], [], ["seed=7"]):
        assert main(["job", "submit", str(file), *more]) == 0
    monkeypatch.chdir(tmp_path / "bin")
    assert main(["job", "submit", str(file), "--seeds", "0-2"]) == 0
    names = ["seed-0,1,2", "seed-3,4", "seed-0", "seed-7", "seed-0,1,2"]
    assert [job["name"] for job in submitted(cluster)] == [f"yeast.one.{name}" for name in names]
