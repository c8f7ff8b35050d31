"""Lightning's trainer and its callbacks."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback, EarlyStopping, GradientAccumulationScheduler, ModelCheckpoint
from pytorch_lightning.profilers import Profiler
from pytorch_lightning.strategies import DDPStrategy

from dglcell.config import Config, TrainerConfig
from dglcell.data.kinds import CLASSIFICATION
from dglcell.errors import ConfigError
from dglcell.training.checkpoint_files import CheckpointFiles
from dglcell.training.directory import RunDirectory
from dglcell.training.precision import lightning_precision
from dglcell.training.preemption import Preemption, leave_signals_alone
from dglcell.training.progress import EpochBar
from dglcell.training.stop_signals import StopSignals


def make_trainer(
    config: Config, directory: RunDirectory, callbacks: Sequence[Callback], profiler: Profiler | None = None
) -> pl.Trainer:
    """Lightning's trainer.

    Args:
        config: validated.
        directory: of the run.
        callbacks: what is done beside training steps.
        profiler: is told of everything that is done.

    Raises:
        ConfigError: the machine has no such device, or Lightning no such setting.
    """
    settings = config.trainer
    precision: Any = lightning_precision(settings.precision)  # Lightning lists all there are
    with warnings.catch_warnings():
        quieten()
        try:
            trainer = pl.Trainer(
                accelerator=settings.accelerator,
                devices=settings.devices,
                num_nodes=settings.num_nodes,
                strategy=_strategy(settings),
                precision=precision,
                max_epochs=settings.epochs,
                gradient_clip_val=settings.clip,
                deterministic="warn" if settings.deterministic else False,
                callbacks=list(callbacks),
                plugins=[CheckpointFiles()],
                profiler=profiler,
                enable_checkpointing=any(isinstance(callback, ModelCheckpoint) for callback in callbacks),
                logger=False,
                default_root_dir=directory.path,
                enable_progress_bar=shows_bar(config),
                enable_model_summary=False,
                num_sanity_val_steps=0,
                use_distributed_sampler=False,
                log_every_n_steps=1,
            )
        except (ValueError, pl.utilities.exceptions.MisconfigurationException) as error:
            raise ConfigError(
                "`trainer` asks for something this machine or Lightning does not have",
                got=error,
                do="see `dglcell doctor`",
            ) from error
    leave_signals_alone(trainer)
    return trainer


def _strategy(settings: TrainerConfig) -> str | DDPStrategy:
    """Lightning's name for it; where several processes work together, with the time they wait for one another."""
    many = settings.devices * settings.num_nodes > 1
    if settings.strategy == "ddp" or (settings.strategy == "auto" and many):
        return DDPStrategy(timeout=timedelta(seconds=settings.timeout))
    return settings.strategy


def make_callbacks(
    config: Config, directory: RunDirectory, kinds: Sequence[str], signals: StopSignals
) -> list[Callback]:
    """Checkpoints of the best validation loss, Pearson correlation and average precision (of phenotypes of 0 and 1),
    and of the last epoch; progress bar, early stopping and accumulation where asked for.

    Args:
        config: validated.
        directory: where checkpoints go.
        kinds: of the phenotypes' labels.
        signals: that the run has received.

    Raises:
        ConfigError: the checkpoint to evaluate is of a metric that no phenotype has.
    """
    if config.trainer.evaluate == "best_average_precision" and CLASSIFICATION not in kinds:
        raise ConfigError(
            "`trainer.evaluate: best_average_precision` is for phenotypes of 0 and 1",
            got="labels that are other numbers",
            do="set `trainer.evaluate: best_pearson` or `best_loss`",
        )

    def keep(name: str, monitor: str | None, mode: str) -> ModelCheckpoint:
        return ModelCheckpoint(
            directory.checkpoints, name, monitor=monitor, mode=mode, enable_version_counter=False, save_top_k=1
        )

    callbacks: list[Callback] = [
        keep("best_loss", "validation/loss", "min"),
        keep("best_pearson", "validation/pearson", "max"),
        keep("last", None, "min"),
    ]
    if CLASSIFICATION in kinds:
        callbacks.append(keep("best_average_precision", "validation/average_precision", "max"))
    if config.trainer.patience is not None:
        callbacks.append(EarlyStopping("validation/loss", patience=config.trainer.patience))
    if shows_bar(config):
        callbacks.append(EpochBar())
    accumulation = GradientAccumulationScheduler(dict(config.trainer.accumulate)) if config.trainer.accumulate else None
    if accumulation is not None:
        callbacks.append(accumulation)
    # After it, whose setting is put right where a run continues in the middle of an epoch.
    timeout = timedelta(seconds=config.trainer.timeout)
    return [*callbacks, Preemption(directory, signals, accumulation, timeout)]


def shows_bar(config: Config) -> bool:
    """Whether there is a terminal for a progress bar; a line an epoch is printed in any case."""
    return config.trainer.progress and sys.stdout.isatty()


def quieten() -> None:
    """Silence advice of Lightning that does not apply: data is resident, so loaders have no workers; figures are
    gathered from all ranks before they are logged.
    """
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*Checkpoint directory .* exists and is not empty.*")
    warnings.filterwarnings("ignore", ".*The dirpath has changed from.*")
    # The loader begins where the checkpoint ends.
    warnings.filterwarnings("ignore", ".*ended before the epoch ended and your dataloader.*")
    warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*")
    warnings.filterwarnings("ignore", ".*`srun` command is available.*")
    warnings.filterwarnings("ignore", ".*It is recommended to use `self.log.*sync_dist.*")
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
