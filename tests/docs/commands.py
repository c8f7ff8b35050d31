"""The commands that the documentation shows: which are run, and by what the others are checked."""

from __future__ import annotations

import glob
import importlib
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

from dglcell.cli import main, make_parser
from dglcell.config.read import load_config
from tests.docs.pages import ROOT

NOT_RUN = {
    r"(python3\.11|\S*pip) ": "installs from the package index; `make install` does the same",
    r"make ": "its target is looked up, and what it would do is asked of make",
    r"dglcell (graph|data) fetch (?!.*--addresses)": "downloads; run on a server of the tests' own in tests/data",
    r"dglcell job submit": "asks SLURM; run on one of the tests' own in tests/slurm",
    r"(torchrun|srun) ": "starts several processes; two are started in tests/prediction/test_parts.py",
    r"python -m benchmarks\.bench": "takes long and much memory; run small in tests/benchmarks",
}
"""Commands that no test runs as they stand → why, and what is done instead."""


def why_not(command: str) -> str | None:
    return next((reason for pattern, reason in NOT_RUN.items() if re.match(pattern, command)), None)


def call(command: str) -> int:
    words = [path for word in shlex.split(command) for path in sorted(glob.glob(word)) or [word]]
    if Path(words[0]).name == "dglcell":
        return main(words[1:])
    if words[0] == "printf":  # writes a small table
        return subprocess.run(["sh", "-c", command]).returncode
    raise AssertionError(f"nothing runs '{command}'")


def check(command: str) -> None:
    """The program knows the command: its verb and options, its experiment and keys, its extras, its target."""
    words = shlex.split(command)
    if words[0] in ("torchrun", "srun"):
        words = words[words.index("dglcell") :]
    program = Path(words[0]).name
    if program == "dglcell":
        check_dglcell(words[1:])
    elif program == "make":
        done = subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    elif words[:2] == ["python", "-m"]:
        parser = importlib.import_module(words[2]).make_parser()
        parser.parse_args(words[3:])
    elif program == "pip":
        check_extras(words)
    else:
        assert program == "python3.11", f"nothing checks '{command}'"


def check_dglcell(words: list[str]) -> None:
    """The parser takes it, and the experiment that it names is valid with its overrides."""
    options, rest = make_parser().parse_known_args(words)
    assert all("=" in word for word in rest), rest
    file = getattr(options, "config", None) or getattr(options, "experiment", None)
    if file is not None and file.name not in ("FILE", "mine.yaml") and file.suffix == ".yaml":
        load_config(file, [*getattr(options, "overrides", ()), *rest])


def check_extras(words: list[str]) -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        if match := re.search(r"\[(.*)\]", word):
            assert set(match[1].split(",")) <= set(known)
