"""Fitting a model with Lightning: the task, its data, and the processes."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytorch_lightning as pl
import torch

from dglcell.config import Config
from dglcell.data.datamodule import StrainDataModule
from dglcell.data.stream_module import StreamedDataModule
from dglcell.graph.resident import ResidentCell
from dglcell.kernels.spmm import check_kernel
from dglcell.losses.build import make_loss
from dglcell.models.build import make_model
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation.choices import Choices
from dglcell.training.calibrate import choose, read_choices, write_choices
from dglcell.training.checkpoint import ReadCheckpoint, describe_run
from dglcell.training.checkpoint_files import CheckpointFiles
from dglcell.training.device import device_of
from dglcell.training.directory import RunDirectory
from dglcell.training.group import leave_group
from dglcell.training.launch import launched
from dglcell.training.optimizers import count_steps
from dglcell.training.pictures import EpochPictures
from dglcell.training.precision import settle_execution
from dglcell.training.prepare import Prepared
from dglcell.training.ranks import is_rank_zero
from dglcell.training.record import EpochLog
from dglcell.training.stop_signals import StopSignals
from dglcell.training.task import StrainTask
from dglcell.training.tracking import tracked
from dglcell.training.trainer import quieten

Data = TypeVar("Data", bound=StrainDataModule)

log = logging.getLogger("dglcell")


def make_task(config: Config, prepared: Prepared, directory: RunDirectory) -> StrainTask:
    """Model, label statistics of the training part, optimiser settings."""
    dataset, settings = prepared.dataset, config.trainer
    check_kernel(config.model.kernel, device_of(settings.accelerator))
    torch.manual_seed(config.seed)
    model = make_model(config.model, ResidentCell(prepared.cell.graph), len(dataset.phenotypes), prepared.features)
    config.loss.check_labels(prepared.labels(), dataset.phenotypes)
    normaliser = prepared.normaliser(config.data.normalise)
    # After everything that may refuse the data: this writes the first file of the run.
    if config.model.is_calibrated() and is_rank_zero():
        assert isinstance(model, HeteroCell)
        model.choose(find_choices(config, prepared, directory, model))
    strains_per_step = config.data.training_batch * settings.devices * settings.num_nodes
    batches = math.ceil(prepared.training_strains / strains_per_step)
    return StrainTask(
        model,
        normaliser,
        dataset.phenotypes,
        kinds=dataset.kinds,
        loss=make_loss(config.loss, settings.epochs, config.data.training_batch),
        optimizer=config.optimizer,
        scheduler=config.scheduler,
        epochs=settings.epochs,
        steps=count_steps(batches, settings.epochs, settings.accumulate),
        record=EpochLog(directory.metrics, settings.epochs),
        pictures=EpochPictures(
            directory,
            f"{config.experiment.name}, seed {config.seed}",
            config.plot_every,
            dict(zip(dataset.phenotypes, dataset.units, strict=True)),
            config.plot_points,
            config.seed,
        ),
        train_ranking=settings.train_ranking,
        about=describe_run(config, prepared.cell, prepared.split, dataset.phenotypes, dataset.units),
    )


def find_choices(config: Config, prepared: Prepared, directory: RunDirectory, model: HeteroCell) -> Choices:
    """What `auto` takes: a continued run's choices again, else those of `model.choices`, else new ones."""
    if not (directory.is_started() and directory.choices.exists()):
        train = prepared.parts["train"][: config.data.training_batch]
        batch = prepared.dataset.gather(train, int(prepared.dataset.offsets.diff()[train].sum())).genotypes
        device = torch.device(device_of(config.trainer.accelerator))
        file = None if model.config.choices is None else Path(model.config.choices)
        found = choose(model.to(device), batch.to(device), file=file)
        model.to("cpu")
        rows = prepared.training_strains * config.trainer.epochs * model.encoder.rows_per_strain
        settings = config.trainer.precision, model.config.compile
        settled = settle_execution(found.choices, *settings, device, rows, pinned=file is not None)
        found = replace(found, choices=settled)
        directory.path.mkdir(parents=True, exist_ok=True)
        write_choices(directory.choices, found)
    return read_choices(directory.choices).choices


def fit(
    config: Config,
    trainer: pl.Trainer,
    prepared: Prepared,
    task: StrainTask,
    directory: RunDirectory,
    checkpoint: ReadCheckpoint | None,
    signals: StopSignals,
) -> None:
    """Run Lightning, in as many processes as it takes.

    Raises:
        StoppedError: a signal came.
        DglcellError: anything the user can mend; also, that another process has ended.
    """
    data = make_data(config, prepared)
    files = trainer.strategy.checkpoint_io
    assert isinstance(files, CheckpointFiles)
    files.read = checkpoint
    # A signal that comes after the last epoch stops the run, but not one that is tracked any more: it was finished.
    with warnings.catch_warnings(), signals.noted(), tracked(config, directory) as logger:
        quieten()
        trainer.logger = logger
        with launched(trainer):
            try:
                with interrupts():
                    path = None if checkpoint is None else checkpoint.path
                    trainer.fit(task, datamodule=data, ckpt_path=path, weights_only=True)
            finally:
                leave_group()
        if trainer.current_epoch < config.trainer.epochs:
            log.info(
                "stopped after epoch %d: no better validation loss for %s epochs",
                trainer.current_epoch,
                config.trainer.patience,
            )


def make_data(config: Config, prepared: Prepared) -> StrainDataModule:
    """The parts as loaders."""
    if prepared.streamed is None:
        return resident_data(StrainDataModule, config, prepared)
    stream = prepared.streamed.stream
    return StreamedDataModule(stream, prepared.dataset, prepared.parts, **batches_of(config))


def resident_data(module: type[Data], config: Config, prepared: Prepared) -> Data:
    """Parts that are in memory as loaders."""
    return module(prepared.dataset, prepared.parts, **batches_of(config))


def batches_of(config: Config) -> dict[str, int]:
    """How strains become batches, as data modules take it."""
    return {
        "batch_size": config.data.training_batch,
        "eval_batch_size": config.data.evaluation_batch,
        "seed": config.seed,
    }


@contextmanager
def interrupts() -> Iterator[None]:
    """Let the user's interrupt through: Lightning shuts down on it, then exits with 1, as if something were wrong."""
    try:
        yield
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise
