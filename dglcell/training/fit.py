"""Fit a model with Lightning: make the trainer, the task and its data, start the processes, and log to W&B."""

from __future__ import annotations

import logging
import math
import os
import re
import secrets
import shlex
import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf
from pytorch_lightning.callbacks import Callback, EarlyStopping, GradientAccumulationScheduler, ModelCheckpoint
from pytorch_lightning.loggers import Logger, WandbLogger
from pytorch_lightning.profilers import PyTorchProfiler, SimpleProfiler
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.utilities import rank_zero_only

from dglcell.baselines.simple import not_fitness_like
from dglcell.config.experiment import Config
from dglcell.config.read import without_secrets
from dglcell.data.datamodule import StrainDataModule
from dglcell.data.table import CLASSIFICATION
from dglcell.errors import ConfigError, StoppedError, count, import_optional
from dglcell.files.atomic import atomic_file
from dglcell.graph.resident import ResidentCell
from dglcell.models.model import make_model
from dglcell.models.terms.term import Training
from dglcell.optimizers import count_steps
from dglcell.runs import CHECKPOINTS, EpochLog, RunDirectory
from dglcell.training.callbacks import CheckpointFiles, Preemption, launched, leave_group
from dglcell.training.checkpoint import ReadCheckpoint, describe_run, refuse
from dglcell.training.prepare import Prepared
from dglcell.training.signals import StopSignals, is_rank_zero
from dglcell.training.task import StrainTask

log = logging.getLogger("dglcell")


class StepLogger(WandbLogger):
    """This logger numbers rows by the optimiser's step, so that a continued run counts on."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row to the history."""
        self.experiment.log(dict(metrics), step=step, commit=True)


def run_id(file: Path) -> str:
    """Return the id of the W&B run that ``file`` keeps, or a new id if the file is missing or damaged."""
    kept = file.read_text(encoding="utf-8", errors="replace").strip() if file.exists() else ""
    if not re.fullmatch("[0-9a-f]{8}", kept):
        kept = secrets.token_hex(4)
        with atomic_file(file) as partial:
            partial.write_text(kept, encoding="utf-8")
    return kept


@contextmanager
def tracked(config: Config) -> Iterator[Logger | None]:
    """Provide a W&B logger, or None where it is disabled; rank 0 alone logs, and a continued run stays the same run."""
    mode = config.tracking.wandb
    if mode == "disabled" or not is_rank_zero():
        yield None
        return
    wandb = import_optional(
        "wandb", "`tracking.wandb`", "pip install 'dglcell[wandb]', or set `tracking.wandb: disabled`"
    )
    logging.getLogger("wandb").setLevel(logging.WARNING)
    # Nodes of a cluster often reach no network.
    offline = mode == "offline" or (mode == "auto" and "SLURM_JOB_ID" in os.environ)
    directory = RunDirectory(config.run_directory)
    logger = StepLogger(
        name=f"{config.experiment.name} seed {config.seed}",
        save_dir=directory.path,
        project=config.tracking.project,
        id=run_id(directory.wandb_id),
        mode="offline" if offline else "online",
        entity=config.tracking.entity,
        group=config.tracking.group or config.experiment.name,
        tags=list(config.experiment.tags),
        settings=wandb.Settings(silent=True),
    )
    run, exit_code = logger.experiment, 1
    try:
        run.config.update(OmegaConf.to_container(without_secrets(config), resolve=True), allow_val_change=True)
        yield logger
        exit_code = 0
    except StoppedError as stop:
        exit_code = 255 if stop.signal == signal.SIGINT else 128 + stop.signal  # W&B shows 255 as stopped by its user
        if stop.signal != signal.SIGINT:
            run.mark_preempting()
        raise
    finally:
        folder = Path(run.dir).parent
        run.finish(exit_code)
        if offline:
            log.info("W&B: upload with `wandb sync %s`", shlex.quote(str(folder)))


def make_trainer(config: Config, directory: RunDirectory, callbacks: Sequence[Callback]) -> pl.Trainer:
    """Make Lightning's trainer."""
    settings = config.trainer
    precision: Any = settings.lightning_precision  # Lightning lists all there are
    profiler: Any = {"simple": SimpleProfiler, "pytorch": PyTorchProfiler, None: None}[settings.profiler]
    many = settings.devices * settings.num_nodes > 1
    waiting = DDPStrategy(timeout=timedelta(seconds=settings.timeout))  # for one another, where there are several
    by_ddp = settings.strategy == "ddp" or (settings.strategy == "auto" and many)
    with warnings.catch_warnings():
        quieten()
        try:
            trainer = pl.Trainer(
                accelerator=settings.accelerator,
                devices=settings.devices,
                num_nodes=settings.num_nodes,
                strategy=waiting if by_ddp else settings.strategy,
                precision=precision,
                max_epochs=settings.epochs,
                gradient_clip_val=settings.gradient_clip_val,
                deterministic="warn" if settings.deterministic else False,
                callbacks=list(callbacks),
                plugins=[CheckpointFiles()],
                profiler=profiler and profiler(dirpath=directory.path, filename="profile"),
                enable_checkpointing=any(isinstance(callback, ModelCheckpoint) for callback in callbacks),
                logger=False,
                default_root_dir=directory.path,
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
                limit_val_batches=0.0 if config.split.trains_on_all else 1.0,
                use_distributed_sampler=False,
                log_every_n_steps=1,
            )
        except (ValueError, pl.utilities.exceptions.MisconfigurationException) as error:
            what = "`trainer` asks for something this machine or Lightning does not have"
            raise ConfigError(what, got=error, do="see `dglcell doctor`") from error
    # Lightning's own handlers of signals save, requeue and broadcast within the handler, and with several ranks the
    # host waits for the device before every batch, to ask whether one of them was called.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
    return trainer


def make_callbacks(
    config: Config, directory: RunDirectory, kinds: Sequence[str], signals: StopSignals
) -> list[Callback]:
    """Make the callbacks of a training, with early stopping and accumulation where they are asked for.

    Checkpoints are kept of the best validation loss, Pearson correlation and average precision (for phenotypes of 0 and
    1), and of the last epoch; if every strain trains, only of the last epoch.
    """
    if config.trainer.checkpoint == "best_average_precision" and CLASSIFICATION not in kinds:
        what = "`trainer.checkpoint: best_average_precision` is for phenotypes of 0 and 1"
        raise ConfigError(what, do="set `trainer.checkpoint: best_pearson` or `best_loss`")

    kept = ["last"] if config.split.trains_on_all else ["best_loss", "best_pearson", "last"]
    if CLASSIFICATION in kinds and not config.split.trains_on_all:
        kept.append("best_average_precision")
    callbacks: list[Callback] = []
    for name in kept:
        monitor, mode = CHECKPOINTS[name]
        how: dict[str, Any] = {"mode": mode, "enable_version_counter": False, "save_top_k": 1}
        callbacks.append(ModelCheckpoint(directory.checkpoints, name, monitor=monitor, **how))
    if config.trainer.patience is not None:
        callbacks.append(EarlyStopping("validation/loss", patience=config.trainer.patience))
    accumulation = None
    if batches := config.trainer.accumulate_grad_batches:
        callbacks.append(accumulation := GradientAccumulationScheduler(dict(batches)))
    # It comes after the accumulation, whose setting it corrects if a run continues in the middle of an epoch.
    timeout = timedelta(seconds=config.trainer.timeout)
    return [*callbacks, Preemption(directory, signals, accumulation, timeout)]


def quieten() -> None:
    """Silence advice of Lightning that does not apply."""
    for text in (
        "does not have many workers",  # data is resident
        "It is recommended to use `self.log.*sync_dist",  # figures are gathered from all ranks before
        "ended before the epoch ended and your dataloader",  # the loader begins where the checkpoint ends
        "Checkpoint directory .* exists and is not empty",
        "The dirpath has changed from",
        "(isinstance.treespec, LeafSpec|and overriding .LightningModule.optimizer_|.srun. command is available)",
    ):
        warnings.filterwarnings("ignore", f".*{text}.*")
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)


def make_task(
    config: Config, prepared: Prepared, directory: RunDirectory, checkpoint: ReadCheckpoint | None = None
) -> StrainTask:
    """Make the task with its model, the label statistics of the training part, and the optimiser settings.

    Nothing is written.
    """
    dataset, settings = prepared.dataset, config.trainer
    torch.manual_seed(config.seed)
    model = make_model(config.model, ResidentCell.of(prepared.cell), len(dataset.phenotypes), prepared.features)
    normaliser = prepared.normaliser(config.data.normalise)
    if checkpoint is None:
        strains = dataset.take(prepared.parts["train"])
        columns = zip(dataset.kinds, strains.labels.unbind(1), strict=True)
        like = (kind != CLASSIFICATION and not_fitness_like(labels_S.numpy()) is None for kind, labels_S in columns)
        model.fit(Training(strains, normaliser, tuple(like)))
    strains_per_step = config.data.batch_size * settings.devices * settings.num_nodes
    batches = math.ceil(len(prepared.parts["train"]) / strains_per_step)
    task = StrainTask(
        model,
        config,
        normaliser,
        dict(zip(dataset.phenotypes, dataset.kinds, strict=True)),
        steps=count_steps(batches, settings.epochs, settings.accumulate_grad_batches),
        record=EpochLog(directory.metrics, settings.epochs, settings.checkpoint),
        about=describe_run(config, prepared.cell, prepared.split, dict(dataset.units)),
    )
    if settings.lightning_precision == "64-true":
        task.double()  # Lightning reads a checkpoint before it converts, and weights would be rounded
    if checkpoint is not None:
        _check_weights(checkpoint, task)
    return task


def _check_weights(checkpoint: ReadCheckpoint, task: StrainTask) -> None:
    """Load the weights and the optimiser's state of a checkpoint, as Lightning does again when training begins."""
    content = checkpoint.content
    made = task.configure_optimizers()
    optimizer = made["optimizer"] if isinstance(made, dict) else made
    try:
        task.load_state_dict(content["state_dict"])
        optimizer.load_state_dict(content["optimizer_states"][0])
    except (RuntimeError, ValueError, KeyError, IndexError, TypeError) as error:
        raise refuse(checkpoint.path, "does not fit this run", error) from error


def fit(
    task: StrainTask,
    trainer: pl.Trainer,
    prepared: Prepared,
    checkpoint: Path | None,
    signals: StopSignals,
    loggers: Sequence[Logger] = (),
) -> None:
    """Run Lightning in as many processes as it takes."""
    # A signal after the last epoch stops the run, but the tracked run counts as finished.
    config = task.config
    with warnings.catch_warnings(), signals.noted(), tracked(config) as logger:
        quieten()
        trainer.loggers = [*([] if logger is None else [logger]), *loggers]
        with launched(trainer):
            try:
                trainer.fit(task, datamodule=make_data(config, prepared), ckpt_path=checkpoint, weights_only=True)
            finally:
                leave_group()
        if trainer.current_epoch >= config.trainer.epochs:
            warn_of_falling_loss(task.record.read())
        else:
            patience = count(config.trainer.patience or 0, "epoch")
            log.info("stopped after epoch %d: no better validation loss for %s", trainer.current_epoch, patience)


def make_data(config: Config, prepared: Prepared) -> StrainDataModule:
    """Return the data module that loads the parts."""
    sizes = {"batch_size": config.data.batch_size, "eval_batch_size": config.data.evaluation_batch}
    return StrainDataModule(prepared.dataset, prepared.parts, seed=config.seed, **sizes)


def warn_of_falling_loss(epochs: Sequence[Mapping[str, Any]]) -> None:
    """Warn if a longer training would have gone on learning."""
    figure = "validation/loss" if epochs and epochs[-1].get("validation/loss") is not None else "train/loss"
    losses = [row[figure] for row in epochs if row.get(figure) is not None]
    if len(losses) < 5 or not is_rank_zero():  # so short a training is meant to be
        return
    before, last, many = min(losses[: -max(1, len(losses) // 4)]), losses[-1], 3 * len(losses)
    if last <= min(losses) and before - last > 0.02 * abs(before):
        text = "the %s was still falling at the end, and is %.4g: train longer, e.g. `trainer.epochs=%d` in another run"
        log.warning(f"{text} directory", figure.replace("/", " "), last, many)
