"""Commands of ``dglcell`` that are killed at a given change of a file, and what they had changed until then."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tiny import process_environment

SOURCE = Path(__file__).with_name("kill_at.c")


@dataclass(frozen=True)
class Kill:
    """A moment of a command's life, given by what it changes."""

    at: int = 0  #: number of the change, from 1, before which the process is killed; 0: it is not
    half: bool = False  #: half of the change, a write, is made
    #: of the signal; one that the process can receive is sent before the change, which is then made
    number: int = signal.SIGKILL

    def __str__(self) -> str:
        return f"{signal.Signals(self.number).name} {'in' if self.half else 'before'} change {self.at}"


@dataclass(frozen=True)
class Ended:
    status: int  #: of the process, negative for a signal
    output: str  #: what it printed
    changes: list[str]  #: what it changed, or was about to: ``KIND BYTES PATH`` each

    @property
    def was_killed(self) -> bool:
        return self.status < 0 or self.status > 128

    def kills(self) -> list[Kill]:
        """Return every moment at which another process of this command can die with another state of the disk."""
        found = []
        for number, change in enumerate(self.changes, start=1):
            kind, size, _ = change.split(" ", 2)
            found.append(Kill(number))
            if kind == "write" and int(size) > 1:
                found.append(Kill(number, half=True))
        return found


@dataclass
class Killer:
    """Runs commands in forks of an interpreter that has imported everything."""

    folder: Path  #: for logs
    process: subprocess.Popen[str]  #: the interpreter

    def run(self, arguments: Sequence[str], root: Path, kill: Kill | None = None) -> Ended:
        kill = kill or Kill()
        output, log = self.folder / "output.txt", self.folder / "changes.txt"
        asked = {"arguments": list(arguments), "root": str(root), "at": kill.at, "half": kill.half}
        asked |= {"number": int(kill.number), "imports": str(self.folder / "imports.txt")}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps({**asked, "output": str(output), "log": str(log)}), file=self.process.stdin, flush=True)
        status = int(self.process.stdout.readline())
        return Ended(status, output.read_text(), log.read_text().splitlines())


@contextmanager
def killer(folder: Path) -> Iterator[Killer]:
    """Compile the library, start the interpreter, and end it; skips the test where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs Linux and a C compiler")
    library = folder / "kill_at.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    threads = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    # Without a path there is no git, which would be asked for the state of the checkout again and again.
    environment = process_environment(LD_PRELOAD=str(library), PATH="", **threads)
    command = [sys.executable, "-m", "tests.faults.forks"]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Killer(folder, process)
