"""Commands that are killed at any change of a file: nothing is torn, and given again they end as if never killed."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from dglcell.data.store import verify_store
from dglcell.training.checkpoint import read_checkpoint
from tests.tiny import process_environment

GENES = [f"g{number:02}" for number in range(16)]

EXPERIMENT = """\
experiment: {{name: small}}
cell: {{networks: {{contacts: {{path: {files}/contacts.tsv, columns: [from, to]}}}}}}
data:
  source:
    name: csv
    csv: {{path: {files}/strains.csv, genes: [gene_1, gene_2], phenotypes: {{fitness: fitness}}}}
  phenotypes: [fitness]
  store: {root}/store
  batch_size: 32
split: {{kind: random, seed: 1}}
model: {{hidden: 4, layers: 1, local_heads: 2, strategy: node_mask, kernel: csr, dropout: 0.2}}
optimizer: {{name: AdamW, lr: 0.01}}
scheduler: {{name: none}}
paths: {{runs: {root}}}
trainer: {{epochs: 2, checkpoint: best_loss, threads: 1, accelerator: cpu}}
"""


def write_files(files: Path, root: Path) -> Path:
    """Write an experiment of 120 strains of 16 genes, with its tables; everything that it makes lies below ``root``."""
    files.mkdir()
    draw = random.Random(7)
    pairs = list(itertools.combinations(GENES, 2))
    (files / "contacts.tsv").write_text("\n".join(["from\tto", *map("\t".join, draw.sample(pairs, 40))]) + "\n")
    rows = [f"{a},{b},{draw.gauss(1, 0.2):.4f}" for a, b in pairs]
    (files / "strains.csv").write_text("\n".join(["gene_1,gene_2,fitness", *rows]) + "\n")
    (files / "genotypes.csv").write_text("\n".join(["genes", *map(";".join, pairs[:50])]) + "\n")
    (files / "genes.txt").write_text("\n".join(GENES[:9]) + "\n")
    experiment = files / "small.yaml"
    experiment.write_text(EXPERIMENT.format(files=files, root=root))
    return experiment


@dataclass(frozen=True)
class Command:
    name: str  #: of its tests
    arguments: str  #: of ``dglcell``; ``{files}``, ``{root}`` and ``{run}`` stand for folders
    after: str | None = None  #: the command whose outcome it begins with; nothing where None
    complete: str | None = None  #: what it says, with status 2, where it was killed after all was done
    #: at how many moments `make test` kills it; where 0, only `make test-slow` does, which kills it at all
    sample: int = 2

    def words(self, files: Path, root: Path) -> list[str]:
        return self.arguments.format(files=files, root=root, run=root / "small" / "seed-0").split()


TRAIN = "train {files}/small.yaml plot=false baselines=false"
EXISTS = "exists already; nothing was written"
TABLE = "predict {run} {files}/genotypes.csv"
DESIGN = "predict {run} --genes {files}/genes.txt"

COMMANDS = {
    command.name: command
    for command in (
        Command("build", "data build {files}/small.yaml", complete="store' exists already"),
        Command("rebuild", "data build {files}/small.yaml --overwrite", "build", sample=1),
        Command("train", TRAIN, sample=3),
        Command("continue", f"{TRAIN} trainer.epochs=3", "train"),
        Command("report", "report {run}", "train", sample=0),
        Command("predict_table", f"{TABLE} -o {{root}}/out.csv", "train", EXISTS),
        Command("predict_table_to_parquet", f"{TABLE} -o {{root}}/out.parquet", "train", EXISTS, sample=0),
        Command("predict_design", f"{DESIGN} --all-triples --batch-size 30 -o {{root}}/out.parquet", "train", EXISTS),
        Command("predict_design_to_folder", f"{DESIGN} --all-pairs --batch-size 6 -o {{root}}/out", "train"),
        Command("explain", "explain {run} {files}/genotypes.csv -o {root}/explained.csv", "train", EXISTS, sample=1),
    )
}

IGNORED = ("seconds", "wall_seconds", "peak_memory_bytes", "peak_resident_bytes", "created", "current_score")
"""Keys of what differs from run to run. The last one is Lightning's note of the last checkpoint that was a best one: it
does not read it back."""


def contents(folder: Path) -> dict[str, Any]:
    """Path → content of all files under their final names."""
    return {str(path.relative_to(folder)): content(path) for path in _files(folder) if not is_unfinished(path, folder)}


def unfinished(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if is_unfinished(path, folder)]


def is_unfinished(path: Path, folder: Path) -> bool:
    names = path.relative_to(folder).parts
    return any(
        (name[0] == "." and (".partial-" in name or "owner.json" in name)) or name.endswith((".partial", ".joined"))
        for name in names
    )


def differences(expected: dict[str, Any], folder: Path) -> list[str]:
    found = contents(folder)
    texts = [f"{name} is left behind" for name in unfinished(folder)]
    texts += [f"{name} is missing" for name in expected.keys() - found.keys()]
    texts += [f"{name} is too much" for name in found.keys() - expected.keys()]
    return texts + [f"{name} differs" for name in expected.keys() & found.keys() if expected[name] != found[name]]


def content(path: Path) -> Any:
    if path.name == "data.mdb":
        return verify_store(path.parent).sha256
    if path.suffix == ".sha256":
        assert path.read_text(encoding="utf-8").strip() == _hash(path.with_suffix(""))
        return "the hash of the file beside it"
    if path.suffix == ".ckpt":
        return _plain(read_checkpoint(path))
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {name: _plain(arrays[name]) for name in arrays.files}
    if path.name.endswith("owner.json"):
        return sorted(json.loads(path.read_text(encoding="utf-8")))  # it says what process this is
    if path.suffix == ".json":
        return _plain(json.loads(path.read_text(encoding="utf-8")))
    if path.suffix == ".jsonl":
        return _rows(path)
    if path.suffix == ".yaml":
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.suffix == ".parquet":
        pq.read_table(path)
        return _hash(path)
    if path.suffix == ".csv":
        assert path.read_bytes().endswith(b"\n")
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file, strict=True))
        assert len({len(row) for row in rows}) == 1
        return rows
    return _picture(path)


def _picture(path: Path) -> str:
    """Pictures and pages; drawn at another time, they differ in a date at most."""
    if path.suffix == ".svg":
        ElementTree.parse(path)
    else:
        end = {".png": b"IEND\xaeB`\x82", ".html": b"</html>"}[path.suffix]
        assert path.read_bytes().rstrip().endswith(end)
    return path.suffix


def _rows(path: Path) -> list[Any]:
    """Epochs; the last line may be torn, which whoever reads the record leaves out."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return [_plain(json.loads(line)) for line in lines[:-1]]


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value)).hexdigest()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items() if key not in IGNORED}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class Kill:
    """A moment of a command's life, given by what it changes."""

    at: int = 0  #: number of the change, from 1, before which the process is killed; 0: it is not
    half: bool = False  #: half of the change, a write, is made

    def __str__(self) -> str:
        return f"killed {'in' if self.half else 'before'} change {self.at}"


@dataclass(frozen=True)
class Ended:
    status: int  #: of the process, negative for a signal
    output: str  #: what it printed
    changes: list[str]  #: what it changed, or was about to: ``KIND BYTES PATH`` each

    def kills(self) -> list[Kill]:
        """Return every moment at which another process of this command can die with another state of the disk."""
        found = []
        for number, change in enumerate(self.changes, start=1):
            kind, size, _ = change.split(" ", 2)
            found.append(Kill(number))
            if kind == "write" and int(size) > 1:
                found.append(Kill(number, half=True))
        return found


NEVER = Kill()


@dataclass
class Laboratory:
    """Runs commands in forks of an interpreter that has imported everything."""

    process: subprocess.Popen[str]  #: the interpreter
    folder: Path  #: everything lies below it, the commands' own files in ``root``, which every one of them begins anew
    outcomes: dict[str, Ended] = field(default_factory=dict)  #: of commands that were left alone, by name

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def kept(self, name: str) -> Path:
        return self.folder / "kept" / name

    def run(self, command: Command, kill: Kill = NEVER) -> Ended:
        output, log, imports = (self.folder / f"{name}.txt" for name in ("output", "changes", "imports"))
        words = command.words(self.folder / "files", self.root)
        asked = {"arguments": words, "root": str(self.root), "at": kill.at, "half": kill.half}
        asked |= {"imports": str(imports), "output": str(output), "log": str(log)}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        status = int(self.process.stdout.readline())
        return Ended(status, output.read_text(), log.read_text().splitlines())

    def begin(self, command: Command) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        if command.after is None:
            self.root.mkdir()
        else:
            self.undisturbed(COMMANDS[command.after])
            shutil.rmtree(self.root, ignore_errors=True)
            shutil.copytree(self.kept(command.after), self.root)

    def undisturbed(self, command: Command) -> Ended:
        if command.name not in self.outcomes:
            self.begin(command)
            ended = self.run(command)
            assert ended.status == 0, ended.output
            shutil.copytree(self.root, self.kept(command.name))
            self.outcomes[command.name] = ended
        return self.outcomes[command.name]

    def check(self, command: Command, kills: Sequence[Kill]) -> list[str]:
        changes = self.undisturbed(command).changes
        expected = contents(self.kept(command.name))
        wrong, known = [], set[str]()
        for kill in kills:
            self.begin(command)
            killed = self.run(command, kill)
            where = f"{command.name}: {kill}, {changes[kill.at - 1]}"
            if killed.status != -signal.SIGKILL:
                wrong.append(f"{where}: ended with {killed.status}\n{killed.output}")
                continue
            try:
                left = contents(self.root)
            except Exception as error:
                wrong.append(f"{where}: a file is torn: {error!r}")
                continue
            state = repr([left, [re.sub(r"\.(partial|after)-.*", "", name) for name in unfinished(self.root)]])
            if state in known:
                continue
            known.add(state)
            again = self.run(command)
            if command.complete and command.complete in again.output and left == expected:
                continue
            if again.status != 0:
                wrong.append(f"{where}: given again it ends with {again.status}\n{again.output}")
            else:
                wrong += [f"{where}: {text}" for text in differences(expected, self.root)]
        print(f"{command.name}: {len(kills)} kills, {len(known)} different outcomes, {len(wrong)} wrong")
        return wrong


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """Compile the library, start the interpreter, and end it; skips the test where there is no compiler."""
    folder = tmp_path_factory.mktemp("faults")
    write_files(folder / "files", folder / "root")
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs Linux and a C compiler")
    library, source = folder / "kill_at.so", Path(__file__).with_name("kill_at.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    threads = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    # Without a path there is no git, which would be asked for the state of the checkout again and again.
    environment = process_environment(LD_PRELOAD=str(library), PATH="", **threads)
    command, pipe = [sys.executable, "-m", "tests.faults.forks"], subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield Laboratory(process, folder)


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.sample])
def test_a_command_that_was_killed_goes_on(laboratory: Laboratory, name: str) -> None:
    command = COMMANDS[name]
    kills = laboratory.undisturbed(command).kills()
    chosen = [kills[(2 * i + 1) * len(kills) // (2 * command.sample)] for i in range(command.sample)]
    wrong = laboratory.check(command, chosen)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_goes_on_wherever_it_was_killed(laboratory: Laboratory, name: str) -> None:
    wrong = laboratory.check(COMMANDS[name], laboratory.undisturbed(COMMANDS[name]).kills())
    assert not wrong, "\n".join(wrong)


def test_a_store_that_is_replaced_is_never_missing(laboratory: Laboratory) -> None:
    command = COMMANDS["rebuild"]
    for number, change in enumerate(laboratory.undisturbed(command).changes[:-1], start=1):
        if change.startswith(("rename", "unlink", "rmdir")):  # nothing else takes a name away
            laboratory.begin(command)
            assert laboratory.run(command, Kill(number + 1)).status == -signal.SIGKILL
            assert (laboratory.root / "store").exists(), change
