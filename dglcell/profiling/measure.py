"""``dglcell profile``: a few training steps of an experiment, run and watched."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from dglcell.config.experiment import AUTO, Config
from dglcell.machine.devices import device_of, measured_memory, set_threads
from dglcell.machine.processor import processor_name
from dglcell.models.encoder import PerturbedModel
from dglcell.models.model import count_parameters
from dglcell.profiling.loop import (
    FinishedError,
    LoopCallback,
    LoopProfiler,
    RepeatedData,
    Schedule,
    config_for,
    restrict,
)
from dglcell.profiling.profile import PROFILE, TRACE, Profile
from dglcell.profiling.spans import spans_in
from dglcell.runs.directory import RunDirectory
from dglcell.runs.usage import environment
from dglcell.training.autotune import lightning_precision
from dglcell.training.batch_size import find_batch_size
from dglcell.training.distributed import check_allocation, launched, leave_group, watch_parent
from dglcell.training.fit import make_callbacks, make_data, make_task, make_trainer, quieten
from dglcell.training.prepare import Prepared, prepare
from dglcell.training.run import set_up_process
from dglcell.training.signals import StopSignals, is_rank_zero
from dglcell.training.task import StrainTask

log = logging.getLogger("dglcell")


def profile(config: Config, schedule: Schedule, mode: str, folder: Path, command: str) -> Profile | None:
    """Run training steps as ``dglcell train`` does, from fresh weights, and write a profile and a trace.

    Nothing of the experiment's runs is read or written. What happens between epochs (validation, checkpoints) is not
    part of a step.

    Args:
        config: validated.
        schedule: warm-up and timed steps.
        mode: one of ``MODES``.
        folder: for ``profile.json`` and ``trace.json.gz``.
        command: as typed.

    Returns:
        the profile; None on all ranks but the first.

    Raises:
        DglcellError: anything the user can mend.
    """
    config = config_for(config, mode)
    _set_up(config)
    directory, prepared = RunDirectory(folder), prepare(config, command=command)
    device = torch.device(device_of(config.trainer.accelerator))
    about = {"experiment": config.experiment.name, "mode": mode}
    profiler = LoopProfiler(schedule, device, (folder / TRACE, about) if is_rank_zero() else None)
    # What a run does beside its steps is part of whole ones only. Its signals do here what they always do.
    beside = make_callbacks(config, directory, prepared.dataset.kinds, StopSignals(requeue=False))
    callbacks = [*(beside if mode == "full" else []), LoopCallback(profiler)]
    trainer = make_trainer(config, directory, callbacks, profiler)
    if config.data.batch_size == AUTO:
        config = config.with_batch_size(find_batch_size(config, prepared, directory, trainer))
    task = make_task(config, prepared, directory)
    restrict(task, mode, profiler.recorder)
    data = make_data(config, prepared, RepeatedData)
    run_steps(trainer, task, data, profiler)
    if not is_rank_zero():
        return None
    found = describe(config, mode, prepared, task, data, profiler, directory, command)
    found.write(folder / PROFILE)
    return found


def _set_up(config: Config) -> None:
    """Prepare the process for steps of an experiment."""
    watch_parent()
    check_allocation(config.trainer)
    if not is_rank_zero():
        log.setLevel(logging.WARNING)
    set_up_process(config)
    set_threads(torch.get_num_threads())  # no turns: every step is to be like the others


def run_steps(trainer: pl.Trainer, task: StrainTask, data: RepeatedData, profiler: LoopProfiler) -> None:
    """Run the steps of the profiler's schedule in Lightning's own loop."""
    data.number = profiler.schedule.total
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        quieten()
        profiler.peak = profiler.phase.enter_context(measured_memory(str(trainer.strategy.root_device)))
        stack.enter_context(spans_in(task, profiler.recorder))
        stack.enter_context(launched(trainer))
        stack.callback(leave_group)
        stack.callback(profiler.phase.close)
        stack.enter_context(suppress(FinishedError))
        stack.enter_context(_interrupts())
        trainer.fit(task, datamodule=data)


@contextmanager
def _interrupts() -> Iterator[None]:
    """Let the user's interrupt through: Lightning shuts down on it, then exits with 1, as if something were wrong."""
    try:
        yield
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise


def describe(
    config: Config,
    mode: str,
    prepared: Prepared,
    task: StrainTask,
    data: RepeatedData,
    profiler: LoopProfiler,
    directory: RunDirectory,
    command: str,
) -> Profile:
    """The profile of the steps that a task has run on data, as a profiler saw them."""
    cell, device, processes = prepared.cell, profiler.device, task.trainer.world_size
    warm_up, steps = profiler.schedule
    return Profile(
        experiment=config.experiment.name,
        mode=mode,
        model=config.model.name,
        strategy=strategy_of(task),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu: {processor_name()}",
        threads=torch.get_num_threads(),
        world_size=processes,
        batch_size=config.data.training_batch,
        dtype=lightning_precision(config.trainer.precision),
        nodes=cell.num_nodes,
        edges={relation[1]: len(cell.edges(relation)) for relation in cell.relations},
        cell_sha256=cell.sha256,
        parameters=count_parameters(task.model),
        clock=profiler.recorder.clock.title,
        warm_up=warm_up,
        steps=[nanoseconds / 1e9 for nanoseconds in profiler.steps],
        samples=processes * sum(len(strains) for strains in data.batches[warm_up : warm_up + steps]),
        components={name: nanoseconds / 1e9 for name, nanoseconds in profiler.times.items()},
        bytes_to_device=profiler.counts.bytes_to_device,
        synchronisations=profiler.counts.synchronisations,
        peak_memory_bytes=profiler.peak.bytes,
        autotuned=take_autotuned(directory),
        environment=environment(command),
    )


def take_autotuned(directory: RunDirectory) -> dict[str, Any] | None:
    """What `auto` took, as it was written for all ranks; the file goes, so that a later profile chooses by itself."""
    if not directory.autotuned.exists():
        return None
    content: dict[str, Any] = json.loads(directory.autotuned.read_text(encoding="utf-8"))
    directory.autotuned.unlink()
    return content


def strategy_of(task: StrainTask) -> str | None:
    """The model's strategy, and what `auto` took; None for a model that has none."""
    if not isinstance(task.model, PerturbedModel):
        return None
    strategy, autotuned = task.model.config.strategy, task.model.autotuned
    return f"auto: {autotuned.strategy}" if strategy == "auto" and autotuned else strategy
