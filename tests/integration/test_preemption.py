"""Runs that are told to stop: they save in the middle of an epoch, and end as if they had never stopped."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import newest_checkpoint, read_checkpoint
from tests.integration.processes import PATIENCE, SIGNAL_AT_STEP, start, wait_until
from tests.integration.test_resume import assert_same_end
from tests.tiny import Tiny, history

# 240 training strains in batches of 12: 20 steps an epoch, 7 of the optimiser.
OPTIONS = (
    "model.dropout=0.2",
    "data.batch_size=12",
    "trainer.accumulate_grad_batches={0: 3}",
    "scheduler.name=cosine_restarts",
)
OPTIONS += ("scheduler.interval=step", "scheduler.first_cycle=10", "trainer.epochs=3")


def stop_at_step(tiny: Tiny, runs: Path, step: int, number: signal.Signals, *options: str) -> str:
    """A run of the tiny experiment that gets a signal in the step after so many; returns what its process said."""
    process = start(tiny, runs, *options, before=SIGNAL_AT_STEP.format(step=step, number=int(number)))
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number, said
    return said


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (signal.SIGTERM, 10),
        pytest.param(signal.SIGUSR1, 10, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 8, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_ends_like_one_that_never_stopped(
    tiny: Tiny, tmp_path: Path, number: signal.Signals, step: int
) -> None:
    run = RunDirectory(tmp_path / "stopped/tiny/seed-0")
    said = stop_at_step(tiny, tmp_path / "stopped", step, number, *OPTIONS)
    assert "told to stop" in said
    assert ("press Ctrl-C again to end at once" in said) == (number == signal.SIGINT)
    assert "stopped; the same command goes on from here" in said
    assert "Traceback" not in said
    assert not run.owner.exists()
    content = read_checkpoint(run.interrupted)
    assert content["unfinished"] is not None
    assert content["global_step"] == step + 1, "in the middle of an epoch"
    tiny.train(tmp_path / "stopped", *OPTIONS)
    whole = tiny.train(tmp_path / "whole", *OPTIONS).directory
    assert_same_end(whole, run)


# The interruption's checkpoint is written, and is not in its place yet.
STAY_IN_SAVING = """
import os, time

replace = os.replace

def replace_later(source, target):
    if str(target).endswith("interrupted.ckpt"):
        time.sleep(3600)
    replace(source, target)

os.replace = replace_later
"""


def test_a_second_interrupt_ends_the_run_at_once(tiny: Tiny, tmp_path: Path) -> None:
    options = ("data.batch_size=24", "trainer.epochs=2")
    run = RunDirectory(tmp_path / "tiny/seed-0")
    process = start(
        tiny, tmp_path, *options, before=STAY_IN_SAVING + SIGNAL_AT_STEP.format(step=12, number=int(signal.SIGINT))
    )
    wait_until(lambda: list(run.checkpoints.glob(".interrupted.ckpt*")), process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT, said
    assert said.count("press Ctrl-C again to end at once") == 1
    assert "Traceback" not in said
    # Nothing is torn: the run goes on after its last whole epoch.
    assert not run.interrupted.exists()
    assert read_checkpoint(run.last)["epoch"] == 0
    tiny.train(tmp_path, *options)
    assert not list(run.checkpoints.glob(".*"))
    assert [row["epoch"] for row in history(run)] == [0, 1]


def test_a_torn_checkpoint_is_named_and_passed_over(
    tiny: Tiny, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tiny.train(tmp_path, "trainer.epochs=1").directory
    run.interrupted.write_bytes(run.last.read_bytes()[:1000])
    assert newest_checkpoint(run).path == run.last
    assert f"checkpoint '{run.interrupted}' cannot be read" in caplog.text


def test_a_later_epoch_wins_over_an_old_interruption(tiny: Tiny, tmp_path: Path) -> None:
    run = tiny.train(tmp_path, "trainer.epochs=1").directory
    shutil.copy(run.last, run.interrupted)
    tiny.train(tmp_path, "trainer.epochs=2")
    assert newest_checkpoint(run).path == run.last
