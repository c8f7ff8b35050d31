"""A process of several that is there and does nothing: the others end, and say so."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dglcell.runs.directory import RunDirectory
from tests.integration.processes import PATIENCE, wait_until
from tests.integration.test_processes import DDP
from tests.tiny import BARE, ENDLESS, Tiny, process_environment

# Both have imported everything before they meet: that alone may take longer than they are to wait.
RANK = """
import os, sys, time
from pathlib import Path
import dglcell.training.run
from dglcell.cli import main

Path("ready-" + os.environ["RANK"]).touch()
while len(list(Path().glob("ready-*"))) < 2:
    time.sleep(0.01)
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def free_port() -> Iterator[int]:
    """Provide a port that nobody listens on, nor is given while it lasts, but who asks for it by its number."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
        yield int(one.getsockname()[1])


def start(tiny: Tiny, folder: Path, rank: int, port: int) -> subprocess.Popen[str]:
    """Start one process of two, with what torchrun tells it."""
    variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    options = tiny.overrides(folder, *BARE, *DDP, *ENDLESS, "trainer.timeout=20")
    return subprocess.Popen(
        [sys.executable, "-c", RANK, "train", str(tiny.file), *options],
        env=process_environment(**variables, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("stuck", [0, 1])
def test_a_process_that_hangs_ends_the_run_with_an_error(tiny: Tiny, tmp_path: Path, stuck: int) -> None:
    with free_port() as port:
        processes = [start(tiny, tmp_path, rank, port) for rank in (0, 1)]
        try:
            wait_until(RunDirectory(tmp_path / "tiny" / "seed-0").last.exists, processes[0])
            processes[stuck].send_signal(signal.SIGSTOP)
            _, said = processes[1 - stuck].communicate(timeout=PATIENCE)
        finally:
            processes[stuck].kill()
            processes[stuck].communicate()
    assert processes[1 - stuck].returncode == 2, said
    assert "error: another process of this run has ended, or has not answered within `trainer.timeout`" in said
    assert "got:      Timed out waiting 20000ms for" in said
    assert "raise `trainer.timeout` if one is only slow" in said
    assert "Traceback" not in said
