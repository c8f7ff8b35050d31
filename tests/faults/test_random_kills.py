"""Real processes that are killed at random times: what they leave is whole, and they end as if never killed."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.commands import COMMANDS, TRAIN, Command, write_files
from tests.faults.contents import contents, differences
from tests.tiny import process_environment

pytestmark = pytest.mark.slow

SEED = "DGLCELL_KILL_SEED"
"""An environment variable; what is not set is drawn, and printed."""

KILLS = 8

LONG = [
    Command("train", f"{TRAIN} trainer.epochs=40 data.batch_size=4"),
    Command("predict_design", "predict {run} --all-triples --batch-size 1 -o {root}/out.parquet", after="train"),
]


def start(command: Command, folder: Path) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    words = [sys.executable, "-m", "dglcell", *command.words(folder / "files", folder / "root")]
    environment = process_environment()
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(command: Command, folder: Path) -> float:
    """Let the command end; how long that took."""
    began = time.monotonic()
    process = start(command, folder)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return time.monotonic() - began


def begin(command: Command, folder: Path) -> None:
    """What the command begins with, and nothing else, in ``root``."""
    shutil.rmtree(folder / "root", ignore_errors=True)
    if command.after is None:
        (folder / "root").mkdir()
    else:
        shutil.copytree(folder / command.after, folder / "root")


@pytest.mark.parametrize("command", LONG, ids=lambda command: command.name)
def test_a_process_that_is_killed_again_and_again_ends_like_one_that_never_was(
    command: Command, tmp_path: Path
) -> None:
    seed = int(os.environ.get(SEED) or secrets.randbits(32))
    print(f"{SEED}={seed}")
    draw, killed, root = random.Random(seed), 0, tmp_path / "root"
    write_files(tmp_path / "files", root)
    if command.after is not None:
        root.mkdir()
        finish(COMMANDS[command.after], tmp_path)
        root.rename(tmp_path / command.after)
    begin(command, tmp_path)
    took = finish(command, tmp_path)
    whole = contents(root)
    begin(command, tmp_path)
    for _ in range(KILLS):
        process = start(command, tmp_path)
        try:
            process.communicate(timeout=draw.uniform(0, took))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            killed += process.returncode == -signal.SIGKILL
        contents(root)
        if process.returncode == 0:
            assert differences(whole, root) == []
            begin(command, tmp_path)
    assert killed
    finish(command, tmp_path)
    assert differences(whole, root) == []
