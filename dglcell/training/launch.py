"""Several processes on one machine: the first starts the others, and none outlives another.

Lightning would start them, too, but kills the first without a word where another one fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytorch_lightning as pl
from lightning_fabric.plugins.environments import ClusterEnvironment

import __main__
from dglcell.errors import DglcellError
from dglcell.training.group import is_gone, is_silent

PARENT = "DGLCELL_PARENT"
"""Variable with the id of the process that started this one."""

POLL_SECONDS = 0.5
GRACE_SECONDS = 10.0
"""How long a process may take to find out by itself that another is gone, and to end, before it is ended."""

STOP_SECONDS = 60.0
"""How long the others may take to end after the first has finished its training."""


@contextmanager
def launched(trainer: pl.Trainer) -> Iterator[None]:
    """Run the body in as many processes as the trainer wants, unless SLURM, torchrun or a user has started them.

    The others are started with this process's command line, and come to the same place by themselves.

    Raises:
        DglcellError: another process has ended in the middle of it, or does not answer.
    """
    environment = getattr(trainer.strategy, "cluster_environment", None)
    children: dict[int, subprocess.Popen[bytes]] = {}
    done = threading.Event()
    before, place = dict(os.environ), {}
    if isinstance(environment, ClusterEnvironment) and not environment.creates_processes_externally:
        place = _meeting_place(trainer, environment)
        os.environ.update(place)
        children = {rank: _start(rank) for rank in range(1, trainer.num_devices)}
        threading.Thread(target=_watch, args=(children, done), daemon=True).start()
    try:
        yield
    except RuntimeError as error:
        if is_silent(error):
            raise _silent(error) from error
        if is_gone(error):
            raise _lost(children) from error
        raise
    finally:
        _end(children, STOP_SECONDS if sys.exc_info()[0] is None else GRACE_SECONDS)
        done.set()
        for name in place.keys() - before.keys():
            os.environ.pop(name, None)


def watch_parent() -> None:
    """End this process, with an error, when the one that started it is gone; nothing where nobody did."""
    parent = os.environ.get(PARENT)
    if parent is not None:
        threading.Thread(target=_follow, args=(int(parent),), daemon=True).start()


def _meeting_place(trainer: pl.Trainer, environment: ClusterEnvironment) -> dict[str, str]:
    """Variables that tell the processes of this machine where they meet, as of its first one."""
    return {
        "MASTER_ADDR": environment.main_address,
        "MASTER_PORT": str(environment.main_port),
        "NODE_RANK": str(environment.node_rank()),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(trainer.num_devices * trainer.num_nodes),
        PARENT: str(os.getpid()),
    }


def _start(rank: int) -> subprocess.Popen[bytes]:
    module = __main__.__spec__
    program = [os.path.abspath(sys.argv[0])] if module is None else ["-m", module.name]
    environment = {**os.environ, "LOCAL_RANK": str(rank)}
    return subprocess.Popen([sys.executable, *program, *sys.argv[1:]], env=environment)


def _watch(children: dict[int, subprocess.Popen[bytes]], done: threading.Event) -> None:
    """End everything if a child has failed and this process has not noticed, for example waiting for a GPU."""
    while not done.wait(POLL_SECONDS):
        if any(child.poll() for child in children.values()):
            if not done.wait(GRACE_SECONDS):
                _die(_lost(children), children)
            return


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    time.sleep(GRACE_SECONDS)
    _die(_lost({}), {})


def _die(error: DglcellError, children: dict[int, subprocess.Popen[bytes]]) -> None:
    """End this process from a thread; its main thread may be waiting for something that never comes."""
    print(f"error: {error}", file=sys.stderr, flush=True)
    for child in children.values():
        child.kill()
    os._exit(2)


def _end(children: dict[int, subprocess.Popen[bytes]], seconds: float) -> None:
    """Wait for the others; kill those that do not end."""
    end = time.monotonic() + seconds
    for child in children.values():
        try:
            child.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _lost(children: dict[int, subprocess.Popen[bytes]]) -> DglcellError:
    """The error of a process that another one has left alone."""
    end = time.monotonic() + POLL_SECONDS
    while children and not any(child.poll() for child in children.values()) and time.monotonic() < end:
        time.sleep(0.01)
    ended = [f"process {rank} {_how(child.returncode)}" for rank, child in children.items() if child.poll()]
    return DglcellError(
        "another process of this run has ended, and training cannot go on without it",
        got=", ".join(ended) or None,
        do="look for what it printed, or whether memory ran out; the same command goes on from the last checkpoint",
    )


def _silent(error: RuntimeError) -> DglcellError:
    """The error of a process that waits for one that is there, or should be, and does nothing."""
    return DglcellError(
        "another process of this run has not answered within `trainer.timeout`",
        got=str(error).rpartition("] ")[2],
        do="see what each process was doing, and whether they can reach each other (GLOO_SOCKET_IFNAME, "
        "NCCL_SOCKET_IFNAME); raise `trainer.timeout` if one is only slow; the same command goes on from the last "
        "checkpoint",
    )


def _how(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
