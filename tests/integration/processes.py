"""Runs in processes of their own, to be watched, signalled and killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.forked import Forked
from tests.tiny import BARE, Tiny, process_environment

DDP = ("trainer.devices=2", "trainer.accelerator=cpu", "trainer.strategy=ddp")

PATIENCE = 600.0
"""Seconds; only a hang takes so long, on however busy a machine."""


# Signals that are sent from outside come at a step that depends on how busy the machine is.
SIGNAL_AT_STEP = """
import os
from dglcell.training.callbacks import Preemption

before = Preemption.on_before_optimizer_step

def on_before_optimizer_step(self, trainer, *others):
    if trainer.global_step == {step}:
        os.kill(os.getpid(), {number})
    before(self, trainer, *others)

Preemption.on_before_optimizer_step = on_before_optimizer_step
"""


def heed_interrupts() -> None:
    """A shell starts background jobs with Ctrl-C ignored, which their children inherit."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(tiny: Tiny, runs: Path, *options: str, before: str = "", **environment: str) -> Forked:
    arguments = ["train", str(tiny.file), *tiny.overrides(runs, *BARE, *options)]
    return Forked(arguments, process_environment(**environment), before=before)


def start_fresh(tiny: Tiny, runs: Path, before: str, **environment: str) -> subprocess.Popen[str]:
    """Do the same in a process that has to import everything."""
    program = f"{before}\nimport sys\nfrom dglcell.cli import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "train", str(tiny.file), *tiny.overrides(runs, *BARE)]
    return subprocess.Popen(
        command,
        env=process_environment(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        preexec_fn=heed_interrupts,
    )


def wait_until(holds: Callable[[], object], process: Forked | subprocess.Popen[str]) -> None:
    """Return when something holds; the process must live so long."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


def catches(pid: int, number: signal.Signals) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (caught,) = (line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def other_ranks(pid: int) -> list[int]:
    """Processes that the first one of a run has started to train with it."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            if b"LOCAL_RANK=" in Path(f"/proc/{child}/environ").read_bytes():
                found.append(int(child))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def is_running(pid: int) -> bool:
    return state(pid) != "Z"


def ended(pid: int, seconds: float = 60.0) -> bool:
    """Return whether a process ends in time, counted in naps of this one: what pauses both stops this clock too."""
    for _ in range(int(seconds / 0.1)):
        if not is_running(pid):
            return True
        time.sleep(0.1)
    return False
