"""One training run, from configuration to table, picture and checkpoints."""

from __future__ import annotations

import dataclasses
import logging
import math
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping, GradientAccumulationScheduler, ModelCheckpoint

from dglcell.config import Config
from dglcell.config_io import to_yaml
from dglcell.data.datamodule import StrainDataModule
from dglcell.data.split import Split
from dglcell.data.store import Store
from dglcell.data.transform import Normaliser
from dglcell.errors import CheckpointError, ConfigError
from dglcell.files import atomic_file, write_json
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.kernels.spmm import check_kernel
from dglcell.models.hetero_cell import HeteroCell, count_parameters
from dglcell.training.checkpoint import (
    check_continues,
    describe_run,
    load_trained,
    read_checkpoint,
    stopped_early,
)
from dglcell.training.device import device_of
from dglcell.training.directory import RunDirectory, resume_from
from dglcell.training.environment import environment
from dglcell.training.metrics import ResultRow
from dglcell.training.optimizers import count_steps
from dglcell.training.prepare import Prepared, prepare, store_path
from dglcell.training.progress import EpochBar
from dglcell.training.ranks import is_rank_zero, leave_group
from dglcell.training.record import EpochLog
from dglcell.training.report import evaluate_parts, report
from dglcell.training.task import StrainTask
from dglcell.training.tracking import tracked

log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class RunResult:
    """What a run leaves.

    Attributes:
        directory: its files.
        rows: metrics of the model and of the null models on validation and test; empty on all ranks but the first.
    """

    directory: RunDirectory
    rows: list[ResultRow]


def train(config: Config, command: str = "dglcell train") -> RunResult:
    """Train, evaluate, compare with null models, draw; continue where an earlier run of the same name stopped.

    Raises:
        DglcellError: anything the user can mend.
    """
    if not is_rank_zero():
        log.setLevel(logging.WARNING)
    checkpoint = resume_from(config)
    start, finished = look_into(checkpoint, config)
    directory = RunDirectory(config.run_directory)
    pl.seed_everything(config.seed, verbose=False)
    if config.trainer.threads:
        torch.set_num_threads(config.trainer.threads)
    torch.set_float32_matmul_precision("high")
    prepared = prepare_run(config, directory, command, continued=(directory.checkpoints / "last.ckpt").exists())
    if checkpoint is not None:
        check_continues(read_checkpoint(checkpoint), checkpoint, config, prepared.cell, prepared.split)
    task = make_task(config, prepared, directory)
    trainer = make_trainer(config, directory)
    if is_rank_zero():
        write_run_files(config, directory, prepared, task, command)
        task.record.rewind(start)
    if not finished:
        fit(config, trainer, prepared, task, directory, checkpoint)
    return RunResult(directory, report(config, directory, prepared) if is_rank_zero() else [])


def evaluate(path: Path, checkpoint: str | None = None) -> list[ResultRow]:
    """Evaluate a run again, and its null models, on its own split.

    Args:
        path: run directory.
        checkpoint: by name or path; the configured one where None.

    Raises:
        CheckpointError: the run or checkpoint is missing or torn.
    """
    directory = RunDirectory(path)
    trained = load_trained(directory, checkpoint)
    config = dataclasses.replace(trained.config, plot=False)
    prepared = prepare_run(config, directory, "dglcell evaluate", continued=True)
    return evaluate_parts(config, directory, prepared, trained)[0]


def prepare_run(config: Config, directory: RunDirectory, command: str, *, continued: bool) -> Prepared:
    """Cell graph, data and split; of the run directory where it is continued.

    Raises:
        CheckpointError: the store is gone, or not the one the run was started on.
    """
    if not continued:
        return prepare(config, command=command)
    path, split = store_path(config), Split.load(directory.split)
    if not path.exists():
        raise CheckpointError(
            f"the store '{path}' of this run is not here",
            do="work in the folder the run was started in, or build the store again with `dglcell data build`",
        )
    store_sha256 = Store(path).sha256
    if split.store_sha256 != store_sha256:
        raise CheckpointError(
            f"the store '{path}' is not the one this run was started on",
            got=store_sha256[:12],
            expected=split.store_sha256[:12],
            do="put the old store back, or start anew under another `experiment.name`",
        )
    return prepare(config, command=command, cell=CellGraph.load(directory.cell), split=split)


def make_task(config: Config, prepared: Prepared, directory: RunDirectory) -> StrainTask:
    """Model, label statistics of the training part, optimiser settings."""
    dataset, settings = prepared.dataset, config.trainer
    check_kernel(config.model.kernel, device_of(settings.accelerator))
    torch.manual_seed(config.seed)
    model = HeteroCell(ResidentCell(prepared.cell.graph), config.model, len(dataset.phenotypes), prepared.features)
    strains_per_step = config.data.batch_size * settings.devices * settings.num_nodes
    batches = math.ceil(len(prepared.parts["train"]) / strains_per_step)
    return StrainTask(
        model,
        Normaliser.fit(dataset.labels[prepared.parts["train"]], dataset.phenotypes),
        dataset.phenotypes,
        loss=config.loss,
        optimizer=config.optimizer,
        scheduler=config.scheduler,
        epochs=settings.epochs,
        steps=count_steps(batches, settings.epochs, settings.accumulate),
        record=EpochLog(directory.metrics, settings.epochs),
        about=describe_run(config, prepared.cell, prepared.split, dataset.phenotypes, dataset.units),
    )


def write_run_files(
    config: Config, directory: RunDirectory, prepared: Prepared, task: StrainTask, command: str
) -> None:
    """Everything that is needed to run again, written before the first step."""
    directory.checkpoints.mkdir(parents=True, exist_ok=True)
    with atomic_file(directory.config) as partial:
        partial.write_text(to_yaml(config))
    hashes = {
        "cell": prepared.cell.sha256,
        "gene_vocabulary": prepared.cell.genes.sha256,
        "store": prepared.store.sha256,
        "split": prepared.split.sha256,
    }
    sizes = {name: len(strains) for name, strains in prepared.parts.items()}
    about = {**environment(command), "hashes": hashes, "strains": sizes, "parameters": count_parameters(task.model)}
    write_json(directory.environment, about)
    # Also over those that a run which never came to a checkpoint may have left.
    prepared.split.save(directory.split)
    prepared.cell.save(directory.cell, overwrite=True)


def look_into(checkpoint: Path | None, config: Config) -> tuple[int, bool]:
    """Say what the run continues from.

    Returns:
        the epoch that training begins with, and whether nothing is left to train.

    Raises:
        CheckpointError: the checkpoint is torn.
    """
    if checkpoint is None:
        log.info("training from scratch: no checkpoint in %s", config.run_directory)
        return 0, False
    content = read_checkpoint(checkpoint)
    epoch = int(content["epoch"]) + 1
    log.info("continuing from %s, written after epoch %d", checkpoint, epoch)
    if epoch >= config.trainer.epochs:
        log.info("all %d epochs are done; evaluating", config.trainer.epochs)
        return epoch, True
    if stopped_early(content):
        log.info("training stopped early after epoch %d; evaluating", epoch)
        return epoch, True
    return epoch, False


def fit(
    config: Config,
    trainer: pl.Trainer,
    prepared: Prepared,
    task: StrainTask,
    directory: RunDirectory,
    checkpoint: Path | None,
) -> None:
    """Run Lightning."""
    data = StrainDataModule(
        prepared.dataset,
        prepared.parts,
        batch_size=config.data.batch_size,
        eval_batch_size=config.data.eval_batch_size or config.data.batch_size,
        seed=config.seed,
    )
    with warnings.catch_warnings(), tracked(config, directory) as logger:
        quieten()
        trainer.logger = logger
        try:
            trainer.fit(task, datamodule=data, ckpt_path=checkpoint, weights_only=True)
            if trainer.current_epoch < config.trainer.epochs:
                log.info(
                    "stopped after epoch %d: no better validation loss for %s epochs",
                    trainer.current_epoch,
                    config.trainer.patience,
                )
        except SystemExit as error:
            # Lightning shuts down on the user's interrupt, then exits with 1, as if something were wrong.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            raise
        finally:
            leave_group()


def make_trainer(config: Config, directory: RunDirectory) -> pl.Trainer:
    """Lightning's trainer.

    Raises:
        ConfigError: the machine has no such device, or Lightning no such setting.
    """
    settings = config.trainer
    with warnings.catch_warnings():
        quieten()
        try:
            return pl.Trainer(
                accelerator=settings.accelerator,
                devices=settings.devices,
                num_nodes=settings.num_nodes,
                strategy=settings.strategy,
                precision=settings.precision,  # type: ignore[arg-type]
                max_epochs=settings.epochs,
                gradient_clip_val=settings.clip,
                deterministic="warn" if settings.deterministic else False,
                callbacks=make_callbacks(config, directory),
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


def make_callbacks(config: Config, directory: RunDirectory) -> list[Callback]:
    """Best-loss, best-Pearson and last checkpoints; progress bar, early stopping and accumulation where asked for."""

    def keep(name: str, monitor: str | None, mode: str) -> ModelCheckpoint:
        return ModelCheckpoint(
            directory.checkpoints, name, monitor=monitor, mode=mode, enable_version_counter=False, save_top_k=1
        )

    callbacks: list[Callback] = [
        keep("best_loss", "validation/loss", "min"),
        keep("best_pearson", "validation/pearson", "max"),
        keep("last", None, "min"),
    ]
    if config.trainer.patience is not None:
        callbacks.append(EarlyStopping("validation/loss", patience=config.trainer.patience))
    if shows_bar(config):
        callbacks.append(EpochBar())
    if config.trainer.accumulate:
        callbacks.append(GradientAccumulationScheduler(dict(config.trainer.accumulate)))
    return callbacks


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
    warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*")
    warnings.filterwarnings("ignore", ".*`srun` command is available.*")
    warnings.filterwarnings("ignore", ".*It is recommended to use `self.log.*sync_dist.*")
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
