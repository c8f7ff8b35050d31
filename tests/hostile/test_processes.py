"""The same with real processes: what a shell sees, and limits of memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.inputs import EXPERIMENT, MINIMAL, Input, check_message, tree, write
from tests.tiny import process_environment

LIMIT_MIB = 1_500

# Imports take what they take: the limit is on what a command asks for beyond them.
LIMITED = f"""
import resource, sys
import pandas, torch, dglcell.training.run, dglcell.data.sources.csv_table
from dglcell.cli import main
from dglcell.machine.memory import status
most = status("VmSize") + {LIMIT_MIB} * 2**20
resource.setrlimit(resource.RLIMIT_AS, (most, most))
sys.exit(main(sys.argv[1:]))
"""

SHELL: list[Input] = [
    Input("no verb", (), "required"),
    Input("unknown key", ("config", "validate", EXPERIMENT, "modle.hidden=3"), "modle", {EXPERIMENT: MINIMAL}),
    Input("alias bomb", ("config", "validate", EXPERIMENT), EXPERIMENT, {EXPERIMENT: "cell: *nothing\n"}),
    Input("a script of a name with a line end", ("job", "render", "a\nb.yaml"), "control", {"a\nb.yaml": MINIMAL}),
    Input("a torn store", ("data", "stats", "--verify", "store"), "data.mdb", {"store/data.mdb": b"x" * 10_000}),
]


def run(folder: Path, *arguments: str | bytes, code: str | None = None, **environment: str) -> str:
    """Return what a command that is refused says; it writes nothing."""
    before = tree(folder)
    program = [sys.executable, *(["-m", "dglcell"] if code is None else ["-c", code])]
    done = subprocess.run(
        [*program, *arguments], cwd=folder, env=process_environment(**environment), capture_output=True, timeout=300
    )
    said = done.stderr.decode("utf-8", "replace")
    assert done.returncode == 2, said
    assert tree(folder) == before
    return said


@pytest.mark.parametrize("hostile", SHELL, ids=lambda hostile: hostile.name)
def test_from_a_shell(hostile: Input, tmp_path: Path) -> None:
    write(tmp_path, hostile.files)
    check_message(run(tmp_path, *hostile.arguments), hostile.says)


def test_words_that_are_no_text(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, in a value and in the name of a file, for a terminal that shows ASCII alone."""
    write(tmp_path, {EXPERIMENT: MINIMAL})
    said = run(tmp_path, "config", "validate", EXPERIMENT, b"experiment.name=\xff", LC_ALL="C", PYTHONUTF8="0")
    check_message(said, "experiment.name")
    (tmp_path / "a").mkdir()
    file = bytes(tmp_path) + b"/a/\xff.yaml"
    with open(file, "w") as opened:
        opened.write(MINIMAL)
    check_message(run(tmp_path, "job", "render", file), "control character")


def test_another_backend_of_dgl_is_not_taken(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import dglcell, dgl; print(dgl.backend.backend_name)"]
    environment = process_environment(DGLBACKEND="nonsense", HOME=str(tmp_path))
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "pytorch", done.stderr


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_AS"), reason="needs limits of memory")
@pytest.mark.slow
def test_too_little_memory(tmp_path: Path) -> None:
    config = (
        "cell: {networks: {near: {path: edges.tsv, columns: [a, b]}}}\n"
        "data: {store: store, source: {name: csv, csv: {path: t.csv, genes: [g], phenotypes: {f: f}}}}\n"
        "model: {metabolism: false, hidden: 200000, local_head: false}\n"
    )
    edges = "a\tb\n" + "".join(f"g{n}\tg{n + 1}\n" for n in range(300))
    rows = "g,f\n" + "".join(f"g{n},0.{n}\n" for n in range(300))
    write(tmp_path, {EXPERIMENT: config, "edges.tsv": edges, "t.csv": rows})
    command = [sys.executable, "-c", LIMITED, "train", EXPERIMENT, "plot=false", "null_models=false"]
    done = subprocess.run(command, cwd=tmp_path, env=process_environment(), capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "error: memory is not enough" in done.stderr
    assert "Traceback" not in done.stderr
