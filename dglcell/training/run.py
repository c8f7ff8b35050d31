"""One training run, from configuration to table, picture and checkpoints."""

from __future__ import annotations

import dataclasses
import logging
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping, GradientAccumulationScheduler, ModelCheckpoint

from dglcell.config import Config, to_yaml
from dglcell.data.datamodule import StrainDataModule
from dglcell.data.split import Split
from dglcell.data.transform import Normaliser
from dglcell.errors import CheckpointError, ConfigError
from dglcell.files import atomic_file, write_json
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.kernels.spmm import check_kernel
from dglcell.models.hetero_cell import HeteroCell, count_parameters
from dglcell.training.checkpoint import describe_run, load_trained, read_checkpoint
from dglcell.training.directory import RunDirectory, resume_from
from dglcell.training.environment import environment
from dglcell.training.metrics import ResultRow
from dglcell.training.prepare import Prepared, prepare
from dglcell.training.record import EpochLog
from dglcell.training.report import evaluate_parts, report
from dglcell.training.task import StrainTask
from dglcell.training.tracking import make_logger

log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class RunResult:
    """What a run leaves.

    Attributes:
        directory: its files.
        rows: metrics of the model and of the null models on validation and test.
    """

    directory: RunDirectory
    rows: list[ResultRow]


def train(config: Config, command: str = "dglcell train") -> RunResult:
    """Train, evaluate, compare with null models, draw; continue where an earlier run of the same name stopped.

    Raises:
        DglcellError: anything the user can mend.
    """
    checkpoint = resume_from(config)
    directory = RunDirectory(config.run_directory)
    pl.seed_everything(config.seed, verbose=False)
    if config.trainer.threads:
        torch.set_num_threads(config.trainer.threads)
    torch.set_float32_matmul_precision("high")
    prepared = prepare_run(config, directory, command, continued=checkpoint is not None)
    task = make_task(config, prepared, directory)
    write_run_files(config, directory, prepared, task, command)
    start = start_epoch(checkpoint, config)
    task.record.rewind(start)
    if start < config.trainer.epochs:
        fit(config, prepared, task, directory, checkpoint)
    else:
        log.info("all %d epochs are done; evaluating", config.trainer.epochs)
    return RunResult(directory, report(config, directory, prepared))


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
        CheckpointError: the store is not the one the run was started on.
    """
    if not continued:
        return prepare(config, command=command)
    split = Split.load(directory.split)
    prepared = prepare(config, command=command, cell=CellGraph.load(directory.cell), split=split)
    if split.store_sha256 != prepared.store.sha256:
        raise CheckpointError(
            f"the store '{prepared.store.path}' is not the one this run was started on",
            got=prepared.store.sha256[:12],
            expected=split.store_sha256[:12],
            do="put the old store back, or start anew under another `experiment.name`",
        )
    return prepared


def make_task(config: Config, prepared: Prepared, directory: RunDirectory) -> StrainTask:
    """Model, label statistics of the training part, optimiser settings."""
    dataset = prepared.dataset
    accelerator = "cuda" if config.trainer.accelerator == "gpu" else "cpu"
    check_kernel(config.model.kernel, accelerator)
    torch.manual_seed(config.seed)
    model = HeteroCell(ResidentCell(prepared.cell.graph), config.model, outputs=len(dataset.phenotypes))
    return StrainTask(
        model,
        Normaliser.fit(dataset.labels[prepared.parts["train"]], dataset.phenotypes),
        dataset.phenotypes,
        loss=config.loss,
        optimizer=config.optimizer,
        scheduler=config.scheduler,
        epochs=config.trainer.epochs,
        record=EpochLog(directory.metrics, config.trainer.epochs),
        about=describe_run(config, prepared.cell, dataset.phenotypes, dataset.units),
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
    if not directory.split.exists():
        prepared.split.save(directory.split)
    if not directory.cell.exists():
        prepared.cell.save(directory.cell)


def start_epoch(checkpoint: Path | None, config: Config) -> int:
    """The epoch that training begins with; says what it continues from.

    Raises:
        CheckpointError: the checkpoint is torn.
    """
    if checkpoint is None:
        log.info("training from scratch: no checkpoint in %s", config.run_directory)
        return 0
    epoch = int(read_checkpoint(checkpoint)["epoch"]) + 1
    log.info("continuing from %s, written after epoch %d", checkpoint, epoch)
    return epoch


def fit(config: Config, prepared: Prepared, task: StrainTask, directory: RunDirectory, checkpoint: Path | None) -> None:
    """Run Lightning."""
    data = StrainDataModule(
        prepared.dataset,
        prepared.parts,
        batch_size=config.data.batch_size,
        eval_batch_size=config.data.eval_batch_size or config.data.batch_size,
        seed=config.seed,
    )
    settings = config.trainer
    bar = settings.progress and sys.stderr.isatty()
    with warnings.catch_warnings():
        quieten()
        try:
            trainer = pl.Trainer(
                accelerator=settings.accelerator,
                devices=settings.devices,
                num_nodes=settings.num_nodes,
                strategy=settings.strategy,
                precision=settings.precision,  # type: ignore[arg-type]
                max_epochs=settings.epochs,
                gradient_clip_val=settings.clip,
                deterministic="warn" if settings.deterministic else False,
                callbacks=make_callbacks(config, directory),
                logger=make_logger(config, directory) or False,
                default_root_dir=directory.path,
                enable_progress_bar=bar,
                enable_model_summary=False,
                num_sanity_val_steps=0,
                use_distributed_sampler=False,
                log_every_n_steps=10,
            )
        except (ValueError, pl.utilities.exceptions.MisconfigurationException) as error:
            raise ConfigError(
                "`trainer` asks for something this machine or Lightning does not have",
                got=error,
                do="see `dglcell doctor`",
            ) from error
        trainer.fit(task, datamodule=data, ckpt_path=checkpoint, weights_only=True)


def make_callbacks(config: Config, directory: RunDirectory) -> list[Callback]:
    """Best-loss, best-Pearson and last checkpoints; early stopping and accumulation where configured."""

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
    if config.trainer.accumulate:
        callbacks.append(GradientAccumulationScheduler(dict(config.trainer.accumulate)))
    return callbacks


def quieten() -> None:
    """Silence advice of Lightning that does not apply: loaders have no workers, because data is resident."""
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*Checkpoint directory .* exists and is not empty.*")
    warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*")
    warnings.filterwarnings("ignore", ".*`srun` command is available.*")
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
