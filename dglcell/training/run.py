"""Run one training, from configuration to table, picture and checkpoints, and its ablation without messages."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import Logger

from dglcell.config.experiment import Config, TrainerConfig
from dglcell.data.split import Split
from dglcell.errors import ConfigError, OwnerError, count
from dglcell.files import lives
from dglcell.files.atomic import atomic_file, write_json
from dglcell.files.owner import Lease, current_holder, held
from dglcell.graph.cell import save_cell
from dglcell.kernels.spmm import check_kernel
from dglcell.machine import check_device, device_of, number_of, set_threads
from dglcell.metrics import WITHOUT_MESSAGES, ResultRow
from dglcell.models.model import count_parameters
from dglcell.perturbation.perturb import check_strategy_device
from dglcell.report.page import write_report
from dglcell.runs import RunDirectory, environment, memory_peak, write_usage
from dglcell.training.checkpoint import check_continues, resume_from, starting_point
from dglcell.training.evaluate import ABLATION, ablation_rows, report, rows_as_json
from dglcell.training.fit import fit, make_callbacks, make_task, make_trainer
from dglcell.training.prepare import Prepared, prepare, prepare_run, settle_what_models_see
from dglcell.training.signals import PARENT, POLL_SECONDS, StopSignals, is_rank_zero
from dglcell.training.task import StrainTask

log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class RunResult:
    """A result holds the files and metrics of a run."""

    directory: RunDirectory  #: the run directory with its files
    #: metrics of the model and of the baselines on validation and test; empty on all ranks but the first
    rows: list[ResultRow]


def train(
    config: Config,
    command: str = "dglcell train",
    signals: StopSignals | None = None,
    callbacks: Sequence[Callback] = (),
    loggers: Sequence[Logger] = (),
) -> RunResult:
    """Train, evaluate, compare with baselines, and draw; continue where an earlier run of the same name stopped.

    Where ``signals`` is None, signals are received for the time of the run. Callbacks and loggers are those of
    Lightning, beside the package's own.
    """
    for name, given, kind in (("callbacks", callbacks, Callback), ("logger", loggers, Logger)):
        if wrong := next((repr(one) for one in given if not isinstance(one, kind)), None):
            expected = f"objects of classes derived from {kind.__module__}.{kind.__qualname__}"
            raise ConfigError(f"`{name}` cannot be used", got=wrong, expected=expected)
    began, first = time.monotonic(), is_rank_zero()
    with ExitStack() as stack:
        signals = signals or stack.enter_context(StopSignals(config.slurm.requeue))
        check_allocation(config.trainer)
        check_machine(config)
        directory = RunDirectory(config.run_directory)
        if first:
            directory.check_writable()
            stack.enter_context(held(Lease(directory.owner, directory.path)))
        else:
            log.setLevel(logging.WARNING)
            follow_owner(directory, config.trainer.timeout)
        checkpoint = resume_from(config)
        start, finished = starting_point(checkpoint, config)
        set_up_process(config)
        continued = directory.is_started()
        if checkpoint and finished and not continued:
            raise ConfigError(f"'{checkpoint.path}' has no epoch left to train", do="raise `trainer.epochs`")
        prepared = prepare_run(config, directory, command) if continued else prepare(config, command=command)
        config = settle_what_models_see(config, prepared)
        if checkpoint is not None:
            check_continues(checkpoint, config, prepared.cell, prepared.split)
        config = settle_checkpoint(config, prepared)
        callbacks = [*make_callbacks(config, directory, prepared.dataset.kinds, signals), *callbacks]
        trainer = make_trainer(config, directory, callbacks)
        task = make_task(config, prepared, directory, checkpoint)
        if first:
            write_run_files(config, directory, prepared, task, command, continued=continued)
            task.record.rewind(start)
            if not finished:
                directory.usage.unlink(missing_ok=True)  # it was for fewer epochs
        if not finished:
            fit(task, trainer, prepared, None if checkpoint is None else checkpoint.path, signals, loggers)
        if not first:
            return RunResult(directory, [])
        device = trainer.strategy.root_device
        peak = None if finished else memory_peak(device)
        rows = report(config, directory, prepared)
        if not finished or not directory.usage.exists():  # a process may have been killed after its last checkpoint
            write_usage(directory, device, peak, trainer.world_size, time.monotonic() - began, start)
        return RunResult(directory, rows)


def follow_owner(directory: RunDirectory, timeout: float) -> None:
    """Wait, in a process other than the first, while processes that were started earlier still write the run.

    Otherwise its checkpoint would be read too early. The first process may own the run already, or be about to.
    """
    until = time.monotonic() + timeout
    while PARENT not in os.environ and (holder := current_holder(directory.owner, foreign=True)):
        if time.monotonic() >= until:
            what = f"the run in '{directory.path}' is written by processes that were started before"
            raise OwnerError(what, got=holder, do="wait until they have ended, or stop them")
        time.sleep(POLL_SECONDS)


def settle_checkpoint(config: Config, prepared: Prepared) -> Config:
    """Return the configuration, which evaluates the last epoch if the validation part is too small to choose one."""
    why = prepared.too_few_to_choose()
    if why is None or config.trainer.checkpoint == "last":
        return config
    log.info("the last epoch is reported, and not `trainer.checkpoint: %s`: %s", config.trainer.checkpoint, why)
    if config.trainer.patience is not None or config.scheduler.name == "plateau":
        log.warning("early stopping and the schedule `plateau` follow the validation part all the same: %s", why)
    return replace(config, trainer=replace(config.trainer, checkpoint="last"))


def check_allocation(trainer: TrainerConfig, environment: Mapping[str, str] = os.environ) -> None:
    """Compare a job's tasks, nodes and GPUs with `trainer.devices` and `trainer.num_nodes`, before anything waits.

    Processes that wait for others that were never started hang until the job's time is up, and a job that was given
    GPUs must not train on CPUs. Outside SLURM, and in an interactive shell of SLURM, nothing is compared.
    """
    if "SLURM_JOB_ID" not in environment or environment.get("SLURM_JOB_NAME") in ("bash", "interactive"):
        return
    nodes, tasks = (number_of(environment, name, 1) for name in ("SLURM_NNODES", "SLURM_NTASKS"))
    wanted, keys = trainer.devices * trainer.num_nodes, f"`trainer.devices: {trainer.devices}`"
    remedy = "let `dglcell job submit` make the script, or change these keys"
    if (nodes, tasks) != (trainer.num_nodes, wanted):
        expected = f"{wanted} tasks on {trainer.num_nodes} nodes: {keys}, `trainer.num_nodes: {trainer.num_nodes}`"
        got = f"{tasks} tasks on {nodes} nodes from SLURM"
        raise ConfigError("the job does not fit the experiment", got=got, expected=expected, do=remedy)
    if wanted > 1 and "SLURM_STEP_NUM_TASKS" not in environment:
        what = "the job starts one process where the experiment needs several"
        raise ConfigError(what, expected=f"{wanted} processes: `srun dglcell train …`", do=remedy)
    given, seen = number_of(environment, "SLURM_GPUS_ON_NODE", 0), torch.cuda.device_count()
    wants = trainer.accelerator != "cpu" and (given > 0 or trainer.accelerator != "auto")
    if wants and seen < trainer.devices:
        got, expected = f"{given} GPUs on this node by SLURM, {seen} that torch sees", f"{trainer.devices} GPUs: {keys}"
        do = "install a torch with CUDA, run containers with --nv, or set `trainer.accelerator: cpu`"
        raise ConfigError("the job has other GPUs than the experiment needs", got=got, expected=expected, do=do)


def check_machine(config: Config) -> None:
    """Refuse settings that this machine cannot run, before anything is read or computed."""
    settings, device = config.trainer, device_of(config.trainer.accelerator)
    check_device(device)
    if device == "cuda" and torch.cuda.device_count() < settings.devices:
        what, most = "`trainer.devices` is more than torch sees", f"at most {torch.cuda.device_count()}"
        raise ConfigError(what, got=settings.devices, expected=most, do="see `dglcell doctor`")
    check_kernel(config.model.kernel, device)
    check_strategy_device(getattr(config.model, "strategy", "auto"), device)  # only some models have a strategy


def set_up_process(config: Config) -> None:
    """Seed the generators, and fix the number of threads."""
    pl.seed_everything(config.seed, verbose=False)
    # No result depends on uninitialised memory, and filling it would take a sixth of a step on a GPU.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    set_threads(config.trainer.given_threads)


def write_run_files(
    config: Config, directory: RunDirectory, prepared: Prepared, task: StrainTask, command: str, *, continued: bool
) -> None:
    """Write configuration, versions and hashes before the first step."""
    directory.checkpoints.mkdir(parents=True, exist_ok=True)
    # Only the owner of the run writes here, so files that no living process of this machine writes are abandoned.
    for partial in directory.checkpoints.glob(".*.partial-*"):
        if not lives(partial.name.rpartition(".partial-")[2]):
            partial.unlink(missing_ok=True)
    with atomic_file(directory.config) as partial:
        partial.write_text(task.about["config"], encoding="utf-8")
    about = {
        **environment(command),
        "hashes": {"gene_vocabulary": prepared.cell.genes.sha256, **prepared.hashes},
        "strains": {name: len(strains) for name, strains in prepared.parts.items()},
        "cell": {"genes": len(prepared.cell.genes), "edges": prepared.cell.num_edges},
        "split": prepared.split.meta,
        "model": config.model.about(),
        "parameters": count_parameters(task.model),
    }
    write_json(directory.environment, about)
    if not continued:
        # This also replaces files of a run that never reached a checkpoint.
        prepared.split.save(directory.split)
        save_cell(prepared.cell, directory.cell, overwrite=True)


def without_messages(config: Config, epochs: int) -> Config:
    """Return the same experiment with no round of messages, and without reactions that are lost because others are.

    The best epoch is chosen on the validation part, even if the experiment would take the last one.
    """
    model = config.model
    quiet = model.without_messages()
    if quiet is None:
        what = "there is no ablation without messages, because the model itself passes none in rounds"
        raise ConfigError(what, expected="`model.layers: 1` or more", do="leave `--without-messages` out")
    best = "best_loss" if config.trainer.checkpoint == "last" else config.trainer.checkpoint
    ablation = replace(
        config,
        experiment=replace(config.experiment, name=f"{config.experiment.name}{ABLATION}", expected=None),
        cell=replace(config.cell, lose_blocked=False),
        model=quiet,
        trainer=replace(config.trainer, epochs=epochs, checkpoint=best),
        baselines=False,
        plot=False,
        resume="never" if config.resume == "never" else "auto",
    )
    ablation.validate()
    return ablation


def train_ablation(config: Config, epochs: int, command: str, signals: StopSignals | None = None) -> list[ResultRow]:
    """Train or continue the ablation, add its rows to the results of the run, if it is finished, and return them."""
    ablation = without_messages(config, epochs)
    log.info("training %s for at most %s", ablation.experiment.name, count(ablation.trainer.epochs, "epoch"))
    train(ablation, command, signals)
    run = RunDirectory(config.run_directory)
    if not run.results.exists():
        return []
    rows = ablation_rows(run.path, Split.load(run.split).sha256)
    results: dict[str, Any] = json.loads(run.results.read_text(encoding="utf-8"))
    kept = [row for row in results["rows"] if row["model"] != WITHOUT_MESSAGES]
    write_json(run.results, {**results, "rows": kept + rows_as_json(rows)})
    if config.plot:
        write_report(run.path)
    return rows
