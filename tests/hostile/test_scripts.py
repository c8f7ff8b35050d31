"""Job scripts of hostile values: a shell executes what was meant, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dglcell.cli import main

NASTY = """it's "all" $(touch pwned) `touch pwned` ; touch pwned & | > pwned < x \\ * ? ~ # ! {a,b} $HOME %j"""
"""Legal in any value, and never to be executed."""

QUOTED = NASTY.replace("'", "''")

MODEL = "cell: {model: textbook}\n"

KEYS = (
    *("experiment.name", "experiment.description", "tracking.project", "tracking.group", "tracking.entity"),
    *("paths.runs", "paths.data", "paths.raw", "data.store", "resume"),
    *("slurm.partition", "slurm.account", "slurm.qos", "slurm.mail", "slurm.mail_type", "slurm.gpu", "slurm.logs"),
)
"""One text each."""


def stub(folder: Path, name: str) -> None:
    """A program that writes its arguments, one a line, to a file of its name."""
    program = folder / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> "$LOG/{name}"\n')
    program.chmod(0o755)


def run_script(script: str, folder: Path) -> tuple[dict[str, list[str]], list[Path]]:
    """Return what the script calls, and what it leaves in its working folder."""
    for name in ("srun", "module"):
        stub(folder, name)
    log, cage = folder / "log", folder / "cage"
    log.mkdir()
    cage.mkdir()
    environment = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "LOG": str(log), "HOME": str(cage)}
    (folder / "job.sh").write_text(script)
    done = subprocess.run(["bash", str(folder / "job.sh")], cwd=cage, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout == ""
    return {path.name: path.read_text().splitlines() for path in log.iterdir()}, [*cage.rglob("*")]


def rendered(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return a script from the command line."""
    capsys.readouterr()
    assert main(["job", "render", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("key", KEYS)
def test_no_value_is_executed(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(MODEL)
    override = f"{key}='{QUOTED}'"
    script = rendered(tmp_path, capsys, "one.yaml", override)
    calls, left = run_script(script, tmp_path)
    assert left == []
    assert calls["srun"][2:] == ["dglcell", "train", "one.yaml", override]


def test_no_surrounding_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(
        f"{MODEL}slurm:\n"
        f"  modules: ['{QUOTED}']\n  environment: {{TOKEN: '{QUOTED}'}}\n  container: '{QUOTED}'\n"
        f"  binds: ['{QUOTED}']\n  container_command: 'apptainer $(touch pwned) `touch pwned` ; touch pwned'\n"
    )
    calls, left = run_script(rendered(tmp_path, capsys, "one.yaml"), tmp_path)
    assert left == []
    assert calls["module"] == ["load", NASTY]
    command = ["apptainer", "$(touch", "pwned)", "`touch", "pwned`", ";", "touch", "pwned"]
    assert calls["srun"][2:] == [*command, "--bind", NASTY, NASTY, "dglcell", "train", "one.yaml"]


def test_no_name_of_a_file_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "; touch pwned $(touch pwned) `touch pwned` 'a' \"b\" #.yaml"
    (tmp_path / name).write_text(MODEL)
    calls, left = run_script(rendered(tmp_path, capsys, name), tmp_path)
    assert left == []
    assert calls["srun"][2:] == ["dglcell", "train", name]


def test_values_are_single_words_for_sbatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(MODEL)
    script = rendered(tmp_path, capsys, "one.yaml", "slurm.partition='a --wrap=b # \\ c'", "experiment.name=a --wrap=b")
    directives = [line for line in script.splitlines() if line.startswith("#SBATCH ")]
    assert "#SBATCH --partition='a --wrap=b # \\\\ c'" in directives
    assert "#SBATCH --job-name='a --wrap=b'" in directives
