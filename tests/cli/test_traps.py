"""A working folder full of files that bear the names of modules: no command runs one of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from dglcell.runs.directory import RunDirectory
from tests.tiny import BARE, Tiny, process_environment

OPTIONAL = re.compile(rb"^[ \t]+(?:import|from)[ \t]+([A-Za-z]\w*)", re.MULTILINE)
"""Imports that are indented are mostly optional: of a block `try`, or of a function."""

KNOWN = {"flint", "gmpy", "gmpy2", "bottleneck", "numexpr", "cffi", "colorama", "coverage", "psutil", "IPython"}

VERBS = {
    "data build": "{experiment} data.store=built data.source.insilico.processes=2",
    "train": "{experiment} data.store={store} trainer.epochs=1 paths.runs=new " + " ".join(BARE),
    "predict": "ecoli-core in.csv",
}
"""Verbs that import different packages, and one that starts processes, with their other words."""

PROGRAM = """\
import sys
from dglcell.cli import main
for line in sys.argv[1:]:
    print(line, main(line.split()), sep=" ends with ")
assert not [folder for folder in sys.path if not folder]
"""


def names_of_optional_imports() -> set[str]:
    """Return the modules that installed packages import if they are there, and those packages themselves."""
    packages = Path(sysconfig.get_path("purelib"))
    found = {path.stem for path in packages.iterdir()} | KNOWN
    for path in packages.glob("*/*.py"):
        found |= {name.decode() for name in OPTIONAL.findall(path.read_bytes())}
    return {name for name in found - {*sys.stdlib_module_names, "dglcell"} if name.isidentifier()}


@pytest.fixture(scope="module")
def traps(tiny: Tiny, tiny_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of traps, each of which leaves a file beside the folder when it runs."""
    above = tmp_path_factory.mktemp("traps")
    folder = above / "folder"
    folder.mkdir()
    for name in names_of_optional_imports():
        (folder / f"{name}.py").write_text(f"open({str(above / name)!r} + '.sprung', 'w')\nraise ImportError\n")
    assert len(list(folder.iterdir())) > 300
    runs = above / "runs"
    shutil.copytree(tiny_run.path, runs / "tiny" / "seed-0")
    experiment = above / "mine.yaml"
    experiment.write_text(tiny.file.read_text())
    (folder / "in.csv").write_text("genes\nb0008\n")
    return {
        "folder": folder, "runs": runs, "run": runs / "tiny" / "seed-0", "experiment": experiment, "store": tiny.store,
    }  # fmt: skip


def test_no_verb_runs_a_file_that_only_lies_in_the_working_folder(traps: dict[str, Path]) -> None:
    lines = [f"{verb} {words.format(**traps)}" for verb, words in VERBS.items()]
    program = traps["folder"].parent / "program" / "all_verbs.py"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), *lines]
    said = subprocess.run(command, cwd=traps["folder"], env=process_environment(), capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    ends = re.findall("(?m)^(.*) ends with (.*)$", said.stdout)
    assert [line for line, status in ends if status != "0"] == []
    assert len(ends) == len(VERBS)
    assert sprung(traps) == []


def test_nor_does_the_package_run_as_a_module(traps: dict[str, Path]) -> None:
    command = [sys.executable, "-m", "dglcell", "predict", "ecoli-core", "in.csv"]
    environment = {name: value for name, value in process_environment().items() if name != "PYTHONSAFEPATH"}
    said = subprocess.run(command, cwd=traps["folder"], env=environment, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert sprung(traps) == []


def sprung(traps: dict[str, Path]) -> list[str]:
    """Return the names of traps that have run."""
    return sorted(name for name in os.listdir(traps["folder"].parent) if name.endswith(".sprung"))
