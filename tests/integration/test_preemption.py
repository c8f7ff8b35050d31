"""Runs that are told to stop: they save in the middle of an epoch, and end as if they had never stopped."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from dglcell.run_directory import RunDirectory
from dglcell.training.checkpoint import newest_checkpoint, read_checkpoint
from dglcell.training.signals import SIGNALS, requeue_job
from tests.integration.processes import PATIENCE, SIGNAL_AT_STEP, start
from tests.integration.test_resume import assert_same_end
from tests.tiny import Tiny

# 240 training strains in batches of 2: 120 steps an epoch, 40 of the optimiser.
OPTIONS = (
    "model.dropout=0.2",
    "data.batch_size=2",
    "trainer.accumulate_grad_batches={0: 3}",
    "scheduler.name=cosine_restarts",
)
OPTIONS += ("scheduler.interval=step", "scheduler.first_cycle=50", "trainer.epochs=4")


def stop_at_step(tiny: Tiny, runs: Path, step: int, number: signal.Signals, *options: str) -> str:
    """A run of the tiny experiment that gets a signal in the step after so many; returns what its process said."""
    process = start(tiny, runs, *options, before=SIGNAL_AT_STEP.format(step=step, number=int(number)))
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number, said
    return said


@pytest.mark.parametrize(("number", "ranking"), [(signal.SIGTERM, "true"), (signal.SIGUSR1, "false")])
def test_a_stopped_run_ends_like_one_that_never_stopped(
    tiny: Tiny, tmp_path: Path, number: signal.Signals, ranking: str
) -> None:
    options = (*OPTIONS, f"trainer.train_ranking={ranking}")
    run = RunDirectory(tmp_path / "stopped/tiny/seed-0")
    said = stop_at_step(tiny, tmp_path / "stopped", 57, number, *options)
    assert "told to stop" in said
    assert "stopped; the same command goes on from here" in said
    assert "Traceback" not in said
    assert not run.owner.exists()
    content = read_checkpoint(run.interrupted)
    assert content["unfinished"] is not None
    assert content["global_step"] == 58, "in the middle of the second epoch"
    tiny.train(tmp_path / "stopped", *options)
    whole = tiny.train(tmp_path / "whole", *options).directory
    assert_same_end(whole, run)


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


def test_outside_slurm_nothing_is_queued() -> None:
    assert not requeue_job({})


def test_after_training_signals_do_what_they_did_before(tiny: Tiny, tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    tiny.train(tmp_path, "trainer.epochs=1")
    assert [signal.getsignal(number) for number in SIGNALS] == before
