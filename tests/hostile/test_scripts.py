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


def run_script(script: str, folder: Path) -> dict[str, list[str]]:
    """Return what the script calls; it may leave nothing in its working folder."""
    for name in ("bin", "log", "cage"):
        (folder / name).mkdir()
    for name in ("srun", "module"):
        (folder / "bin" / name).write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> "$LOG/{name}"\n')
        (folder / "bin" / name).chmod(0o755)
    environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "LOG": f"{folder}/log", "HOME": f"{folder}/cage"}
    (folder / "job.sh").write_text(script)
    command = ["bash", str(folder / "job.sh")]
    done = subprocess.run(command, cwd=folder / "cage", env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    assert [*(folder / "cage").rglob("*")] == []
    return {path.name: path.read_text().splitlines() for path in (folder / "log").iterdir()}


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
    name: str,
    more: str,
    overrides: list[str],
    before: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(MODEL + more)
    assert main(["job", "render", name, *overrides]) == 0
    calls = run_script(capsys.readouterr().out, tmp_path)
    assert calls["srun"][2:] == [*before, "dglcell", "train", name, *overrides]
    assert calls.get("module", ["load", NASTY]) == ["load", NASTY]


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
