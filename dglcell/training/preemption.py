"""Stopping when told to: a checkpoint in the middle of an epoch, and the job queued again."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
from types import FrameType
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, GradientAccumulationScheduler

from dglcell.errors import StoppedError
from dglcell.training.directory import RunDirectory

SIGNALS = (signal.SIGUSR1, signal.SIGTERM)

log = logging.getLogger("dglcell")


class Preemption(Callback):
    """Writes a checkpoint after the optimiser step during which ``SIGUSR1`` or ``SIGTERM`` came, and stops.

    The handler only sets a flag: collectives inside a signal handler can deadlock. All ranks learn of it at the same
    place of the same step, so that they save and stop together.

    Args:
        directory: of the run.
        requeue: ask SLURM to start the job again.
    """

    def __init__(self, directory: RunDirectory, requeue: bool) -> None:
        self.directory, self.requeue = directory, requeue
        self._received = 0
        self._stepped = False
        self._before: dict[int, Any] = {}

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Take the signals over, also from Lightning, which would save and requeue inside its handlers."""

        def remember(number: int, frame: FrameType | None) -> None:
            self._received = number

        self._before = {number: signal.signal(number, remember) for number in SIGNALS}
        # Lightning sets this when an epoch starts, and not where one is continued.
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, GradientAccumulationScheduler):
                trainer.accumulate_grad_batches = callback.get_accumulate_grad_batches(trainer.current_epoch)

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Give the signals back."""
        self._give_back()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """Give the signals back."""
        self._give_back()

    def _give_back(self) -> None:
        # Not in `teardown`: Lightning has put its own handlers away by then, and they would come back for good.
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def on_before_optimizer_step(self, trainer: pl.Trainer, *others: object) -> None:
        """Gradients that are being accumulated would be lost: stop only after they are used."""
        self._stepped = True

    def on_train_batch_end(self, trainer: pl.Trainer, *others: object) -> None:
        """Save and stop, if any rank was told to.

        Raises:
            StoppedError: after the checkpoint is on disk.
        """
        stepped, self._stepped = self._stepped, False
        # After the last batch the epoch is finished first; its checkpoint is whole.
        if not stepped or trainer.is_last_batch:
            return
        if not trainer.strategy.reduce_boolean_decision(self._received != 0, all=False):
            return
        trainer.save_checkpoint(self.directory.interrupted)
        if trainer.is_global_zero:
            log.info("told to stop: epoch %d, step %d saved", trainer.current_epoch + 1, trainer.global_step)
        requeued = self.requeue and trainer.is_global_zero and requeue_job()
        raise StoppedError(self._received or signal.SIGUSR1, trainer.strategy.broadcast(requeued))

    def on_load_checkpoint(self, trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Let the loader begin behind the batches that are done."""
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        # Not `completed`: within `on_train_batch_end` the batch counts as processed only.
        done = 0 if progress["is_last_batch"] else int(progress["current"]["processed"])
        trainer.datamodule.first_batch = done  # type: ignore[attr-defined]


def requeue_job(environment: dict[str, str] | None = None) -> bool:
    """Ask SLURM to start this job again, unless somebody cancelled it.

    Returns:
        whether it will be.
    """
    variables = os.environ if environment is None else environment
    job = variables.get("SLURM_JOB_ID")
    if job is None or shutil.which("scontrol") is None:
        return False
    if "SLURM_ARRAY_JOB_ID" in variables:
        job = f"{variables['SLURM_ARRAY_JOB_ID']}_{variables['SLURM_ARRAY_TASK_ID']}"
    shown = subprocess.run(["scontrol", "show", "job", "--oneliner", job], capture_output=True, text=True).stdout
    if "JobState=CANCELLED" in shown:
        log.info("job %s was cancelled: not queued again", job)
        return False
    done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True)
    log.info(
        "job %s %s", job, "is queued again" if done.returncode == 0 else f"not queued again: {done.stderr.strip()}"
    )
    return done.returncode == 0
