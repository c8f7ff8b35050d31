"""What the ranks agree on after every optimiser step: whether to save and stop, and whether the losses are finite."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, GradientAccumulationScheduler

from dglcell.data.datamodule import StrainDataModule
from dglcell.data.dataset import StrainBatch
from dglcell.errors import StoppedError
from dglcell.training.directory import RunDirectory
from dglcell.training.group import HostGroup
from dglcell.training.loss_watch import BadBatch, LossWatch, not_finite
from dglcell.training.stop_signals import StopSignals

log = logging.getLogger("dglcell")


class Preemption(Callback):
    """Writes a checkpoint after the optimiser step during which ``SIGUSR1`` or ``SIGTERM`` came, and stops.

    Signals are only noted when they come: collectives inside a signal handler can deadlock. All ranks learn of them at
    the same place of the same step, so that they save and stop together. A loss that is not finite ends the run in the
    same way, without a checkpoint.

    Args:
        directory: of the run.
        signals: that the run has received.
        accumulation: of gradients, where there is one.
        timeout: how long ranks wait for one another.
    """

    def __init__(
        self,
        directory: RunDirectory,
        signals: StopSignals,
        accumulation: GradientAccumulationScheduler | None,
        timeout: timedelta,
    ) -> None:
        self.directory, self.signals, self.accumulation, self.timeout = directory, signals, accumulation, timeout
        self._hosts = HostGroup(timeout)
        self._losses = LossWatch()
        self._stepped = False

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Meet the other ranks; stop if one was told to while data was loaded.

        Raises:
            StoppedError: there is nothing to save yet.
        """
        self._hosts = HostGroup(self.timeout)
        # Lightning sets this when an epoch starts, and not where one is continued.
        if self.accumulation is not None:
            trainer.accumulate_grad_batches = self.accumulation.get_accumulate_grad_batches(trainer.current_epoch)
        self._stop_between_epochs()

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Stop if a rank was told to since the last step.

        Raises:
            StoppedError: the checkpoint of the epoch before is whole.
        """
        self._stop_between_epochs()

    def _stop_between_epochs(self) -> None:
        (number,) = self._hosts.largest([self.signals.number])
        if number:
            raise StoppedError(number)

    def on_before_optimizer_step(self, trainer: pl.Trainer, *others: object) -> None:
        """Gradients that are being accumulated would be lost: stop only after they are used."""
        self._stepped = True

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save and stop, if any rank was told to.

        Raises:
            StoppedError: after the checkpoint is on disk.
            DglcellError: a loss is not finite.
        """
        assert isinstance(batch, StrainBatch)
        stepped, self._stepped = self._stepped, False
        step = trainer.global_step + (not stepped)
        self._losses.note(
            outputs["loss"], batch.strains, step=step, epoch=trainer.current_epoch + 1, batch=batch_idx + 1
        )
        if not stepped:
            return
        # After the last batch the epoch is finished first; its checkpoint is whole.
        last = trainer.is_last_batch
        number, bad = self._hosts.largest([self.signals.number, self._losses.found(wait=last) is not None])
        if not bad and number and not last:
            (bad,) = self._hosts.largest([self._losses.found(wait=True) is not None])
        if bad:
            raise self._not_finite(trainer)
        if not number or last:
            return
        trainer.save_checkpoint(self.directory.interrupted)
        if trainer.is_global_zero:
            log.info("told to stop: epoch %d, step %d saved", trainer.current_epoch + 1, trainer.global_step)
        (requeued,) = self._hosts.largest([self.signals.ask()])
        raise StoppedError(number, bool(requeued))

    def _not_finite(self, trainer: pl.Trainer) -> Exception:
        """The error, with the strains of all ranks: they compute the loss of their batches together."""
        found: list[BadBatch] = [bad for bad in self._hosts.collect(self._losses.found(wait=True)) if bad is not None]
        first = min(found, key=lambda bad: bad.batch)
        strains = [strain for bad in found if bad.batch == first.batch for strain in bad.strains]
        return not_finite(first, _data(trainer).rows(strains))

    def on_load_checkpoint(self, trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Let the loader begin behind the batches that are done."""
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        # Not `completed`: within `on_train_batch_end` the batch counts as processed only.
        done = 0 if progress["is_last_batch"] else int(progress["current"]["processed"])
        _data(trainer).first_batch = done


def leave_signals_alone(trainer: pl.Trainer) -> None:
    """Keep Lightning from handling signals of its own.

    Its handlers save, requeue and broadcast within the handler, and with several ranks it makes the host wait for the
    device before every batch, to ask whether one of them was called.
    """
    trainer._signal_connector.register_signal_handlers = _nothing  # type: ignore[method-assign]
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = _nothing  # type: ignore[method-assign]


def _nothing() -> None:
    pass


def _data(trainer: pl.Trainer) -> StrainDataModule:
    data = getattr(trainer, "datamodule", None)
    assert isinstance(data, StrainDataModule)
    return data
