"""Runs that are told to stop: they save in the middle of an epoch, and end as if they had never stopped."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import newest_checkpoint, read_checkpoint
from tests.integration.processes import (
    DDP,
    PATIENCE,
    SIGNAL_AT_STEP,
    catches,
    other_ranks,
    start,
    start_fresh,
    wait_until,
)
from tests.integration.test_run import assert_same_end
from tests.tiny import ENDLESS, Tiny, history
from tests.training.test_signals import fake_scontrol

# 240 training strains in batches of 12: 20 steps an epoch, 7 of the optimiser.
OPTIONS = ("model.dropout=0.2", "data.batch_size=12", "trainer.accumulate_grad_batches={0: 3}", "trainer.epochs=3")
OPTIONS += ("scheduler.name=cosine_restarts", "scheduler.interval=step", "scheduler.first_cycle=10")


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (signal.SIGTERM, 10),
        pytest.param(signal.SIGUSR1, 10, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 8, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_ends_like_any_other(tiny: Tiny, tmp_path: Path, number: signal.Signals, step: int) -> None:
    run = RunDirectory(tmp_path / "stopped/tiny/seed-0")
    before = SIGNAL_AT_STEP.format(step=step, number=int(number))
    process = start(tiny, tmp_path / "stopped", *OPTIONS, before=before)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number, said
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


def test_a_torn_checkpoint_is_passed_over_and_a_later_epoch_wins_over_an_old_interruption(
    tiny: Tiny, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tiny.train(tmp_path, "trainer.epochs=1").directory
    run.interrupted.write_bytes(run.last.read_bytes()[:1000])
    assert newest_checkpoint(run).path == run.last
    assert f"checkpoint '{run.interrupted}' cannot be read" in caplog.text
    shutil.copy(run.last, run.interrupted)
    tiny.train(tmp_path, "trainer.epochs=2")
    assert newest_checkpoint(run).path == run.last


STAY_IN_IMPORTING = """
import os, sys, time

class Stay:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            open("{reached}", "w").close()
            try:
                time.sleep({seconds})
            except BaseException:
                if "{module}" == "pytorch_lightning":
                    os.abort()  # as torch does where its own imports raise an error
                raise

sys.meta_path.insert(0, Stay())
"""


@pytest.mark.parametrize(
    ("module", "seconds", "number"),
    [("pytorch_lightning", 3, signal.SIGUSR1), ("dglcell.config.read", 3600, signal.SIGTERM)],
)
def test_a_signal_while_the_program_is_still_imported_is_not_lost(
    tiny: Tiny, tmp_path: Path, module: str, seconds: int, number: signal.Signals
) -> None:
    asked = fake_scontrol(tmp_path)
    path = f"{tmp_path}:{os.environ['PATH']}"
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "bash"}
    reached = tmp_path / "reached"
    before = STAY_IN_IMPORTING.format(module=module, seconds=seconds, reached=reached)
    process = start_fresh(tiny, tmp_path / "runs", before, PATH=path, **slurm)
    wait_until(reached.exists, process)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    assert asked.read_text() == "7\n"
    assert "stopped at a point where nothing had to be saved\njob 7 is queued again\nqueued again\n" in said
    assert "Traceback" not in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_an_interrupt_of_all_processes_saves_once(tiny: Tiny, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "tiny/seed-0")
    process = start(tiny, tmp_path, *DDP, *ENDLESS, "data.batch_size=2")
    wait_until(run.last.exists, process)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGINT, said
    assert said.count("press Ctrl-C again to end at once") == 1
    assert said.count("stopped; the same command goes on from here") == 1
    assert "Traceback" not in said
    epochs = [row["epoch"] for row in history(run)]
    assert epochs == list(range(len(epochs)))
    assert newest_checkpoint(run).content["epoch"] in (epochs[-1], epochs[-1] + 1)


@pytest.mark.slow
def test_a_signal_to_one_process_stops_both_before_the_first_step(tiny: Tiny, tmp_path: Path) -> None:
    process = start(tiny, tmp_path, *DDP, *ENDLESS)
    wait_until(lambda: other_ranks(process.pid), process)
    (other,) = other_ranks(process.pid)
    wait_until(lambda: catches(other, signal.SIGUSR1), process)
    os.kill(other, signal.SIGUSR1)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGUSR1, said
    assert said.count("stopped; the same command goes on from here") == 1
    assert "Traceback" not in said
    assert not (tmp_path / "tiny/seed-0/metrics.jsonl").exists()
