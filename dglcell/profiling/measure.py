"""Time a few training steps of an experiment in Lightning's loop, then trace a few more, for ``dglcell profile``."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
import re
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.profilers import Profiler
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity
from torch.utils.data import DataLoader

from dglcell.config.experiment import AUTO, Config
from dglcell.data.datamodule import StrainDataModule, StrainNumbers
from dglcell.data.dataset import EpochBatches
from dglcell.files.atomic import atomic_file
from dglcell.machine.devices import Peak, device_of, measured_memory, set_threads
from dglcell.machine.parts import Part
from dglcell.machine.processor import processor_name
from dglcell.models.encoder import PerturbedModel
from dglcell.models.model import count_parameters
from dglcell.profiling.profile import PROFILE, TRACE, Profile
from dglcell.profiling.trace import STEP, WAITING, read_trace
from dglcell.runs.directory import RunDirectory
from dglcell.runs.usage import environment
from dglcell.training.autotune import lightning_precision
from dglcell.training.batch_size import find_batch_size
from dglcell.training.distributed import launched, leave_group
from dglcell.training.fit import make_callbacks, make_data, make_task, make_trainer, quieten
from dglcell.training.prepare import prepare, settle_what_models_see
from dglcell.training.run import begin_process, set_up_process
from dglcell.training.signals import StopSignals, is_rank_zero
from dglcell.training.task import StrainTask

log = logging.getLogger("dglcell")


def repeated(epoch: EpochBatches) -> Iterator[Tensor]:
    """Yield the batches of one epoch after the other without end; each epoch has its own order."""
    for number in itertools.count():
        epoch.set_epoch(number)
        yield from epoch


class RepeatedData(StrainDataModule):
    """This data module has a training epoch of a given number of batches, however few a real epoch has."""

    number = 0

    def train_dataloader(self) -> DataLoader[StrainNumbers]:
        """Return shuffled batches of the training part, over several epochs."""
        loader = super().train_dataloader()
        assert isinstance(loader.sampler, EpochBatches)
        self.batches = list(itertools.islice(repeated(loader.sampler), self.number))
        return DataLoader(loader.dataset, sampler=self.batches, batch_size=None, pin_memory=loader.pin_memory)


NEXT_BATCH = re.compile(r"\.train_dataloader_next$")

ACTIONS = (
    (NEXT_BATCH, "data/next"),
    (re.compile(r"^\[Strategy\]\w+\.batch_to_device$"), "data/gather"),
    (re.compile(r"^\[Strategy\]\w+\.backward$"), "backward"),
    (re.compile(r"^\[LightningModule\]\w+\.(optimizer_step|lr_scheduler_step)$"), "optimiser"),
    (re.compile(r"^\[Strategy\]\w+\.training_step$"), "other"),
)
"""This maps Lightning's names of actions to parts. The optimiser's step contains those before it."""

WATCHED = 3
"""The shares in the table come from so many steps. They follow the timed steps, because the profiler slows them."""


class FinishedError(Exception):
    """All steps are done; the error ends Lightning's loop before an epoch would be closed."""


class Schedule(NamedTuple):
    """A schedule says which steps are timed.

    Attributes:
        warm_up: number of steps before the timed steps.
    """

    warm_up: int
    steps: int

    @property
    def timed(self) -> int:
        """Return the number of steps until all timed steps are done."""
        return self.warm_up + self.steps

    @property
    def total(self) -> int:
        """Return the number of all steps, including one in which the profiler warms up."""
        return self.timed + 1 + WATCHED


class LoopProfiler(Profiler):
    """The profiler times Lightning's steps, each from one batch to the next, and then traces a few more steps.

    Args:
        schedule: numbers of warm-up and timed steps.
        trace: path and metadata of the trace; None for no trace.

    Attributes:
        phase: contexts that end with the timed steps, then contexts that end with the traced steps.
        peak: peak of memory up to the end of the timed steps.
    """

    def __init__(
        self, schedule: Schedule, device: torch.device, trace: tuple[Path, dict[str, str]] | None = None
    ) -> None:
        super().__init__()
        self.schedule, self.device, self.trace = schedule, device, trace
        self.phase, self.peak = ExitStack(), Peak()
        self._begun = 0
        self._marks: list[Any] = []
        self._open: list[Part | None] = []
        self._step = ExitStack()

    def start(self, action_name: str) -> None:
        """Note that Lightning begins an action."""
        if NEXT_BATCH.search(action_name):
            self._begin_step()
        name = next((name for pattern, name in ACTIONS if pattern.search(action_name)), None)
        self._open.append(None if name is None else Part(name).__enter__())

    def stop(self, action_name: str) -> None:
        """Note that Lightning ends the action that it began last."""
        part = self._open.pop()
        if part is not None:
            part.__exit__()

    def _begin_step(self) -> None:
        """End the measurement of one step and begin that of the next.

        Raises:
            FinishedError: there is no next step.
        """
        number, self._begun = self._begun, self._begun + 1
        if self.schedule.warm_up <= number <= self.schedule.timed:
            self._marks.append(_now(self.device))
        self._step.close()
        if number in (self.schedule.timed, self.schedule.total):
            self.phase.close()
        if number == self.schedule.total:
            raise FinishedError
        if number != self.schedule.timed:
            self._step.enter_context(Part(STEP))
        elif self.trace is not None:
            self.phase.enter_context(watched(self.device, *self.trace))

    def seconds(self) -> list[float]:
        """Return the seconds of each timed step."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            return [start.elapsed_time(end) / 1e3 for start, end in pairwise(self._marks)]
        return [end - start for start, end in pairwise(self._marks)]


def _now(device: torch.device) -> Any:
    """Return the current time; on a GPU it is when the GPU's queue reaches this point, because the host runs ahead."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


@contextmanager
def watched(device: torch.device, path: Path, about: dict[str, str]) -> Iterator[None]:
    """Write a trace of every operator that runs inside the context, if the context ends without an error."""
    # PyTorch's profiler would print a line when it starts, and when it stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with torch.profiler.profile(activities=activities) as profiler:
        for key, value in about.items():
            profiler.add_metadata(key, value)
        yield
    with TemporaryDirectory() as folder, atomic_file(path) as partial:
        whole = Path(folder, TRACE)
        profiler.export_chrome_trace(str(whole))
        shutil.copyfile(whole, partial)


class WatchExchange(pl.Callback):
    """Mark in a trace when all gradients of a step are there, so that later time is waiting for other processes."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Average gradients as DistributedDataParallel does by itself, while the backward pass goes on."""

        # PyTorch reads annotations, and cannot read them as strings.
        def exchange(state, bucket):  # type: ignore[no-untyped-def]
            with Part(WAITING) if bucket.is_last() else nullcontext():
                return allreduce_hook(dist.distributed_c10d._get_default_group(), bucket)

        if isinstance(trainer.strategy.model, DistributedDataParallel):
            trainer.strategy.model.register_comm_hook(None, exchange)


def profile(config: Config, schedule: Schedule, folder: Path, command: str) -> Profile | None:
    """Run training steps as ``dglcell train`` does, from fresh weights, and write a profile and a trace.

    Nothing of the experiment's runs is read or written. What happens between epochs (validation, checkpoints) is not
    part of a step.

    Args:
        schedule: numbers of warm-up and timed steps.
        folder: folder for ``profile.json`` and ``trace.json.gz``.

    Returns:
        the profile; None on all ranks but the first.

    Raises:
        DglcellError: there is a fault that the user can mend.
    """
    config = dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, progress=False))
    _set_up(config)
    directory, prepared = RunDirectory(folder), prepare(config, command=command)
    config = settle_what_models_see(config, prepared)
    device = torch.device(device_of(config.trainer.accelerator))
    about = {"experiment": config.experiment.name}
    profiler = LoopProfiler(schedule, device, (folder / TRACE, about) if is_rank_zero() else None)
    # Signals keep their usual effect here.
    beside = make_callbacks(config, directory, prepared.dataset.kinds, StopSignals(requeue=False))
    trainer = make_trainer(config, directory, [*beside, WatchExchange()], profiler)
    if config.data.batch_size == AUTO:
        config = config.with_batch_size(find_batch_size(config, prepared, directory, trainer))
    task = make_task(config, prepared, directory)
    data = make_data(config, prepared, RepeatedData)
    run_steps(trainer, task, data, profiler)
    if not is_rank_zero():
        return None
    steps, cell = profiler.seconds(), prepared.cell
    trace = read_trace(folder / TRACE, sum(steps) / len(steps))
    found = Profile(
        experiment=config.experiment.name,
        model=config.model.name,
        strategy=_strategy_of(task),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu: {processor_name()}",
        threads=torch.get_num_threads(),
        world_size=trainer.world_size,
        batch_size=config.data.training_batch,
        dtype=lightning_precision(config.trainer.precision),
        nodes=cell.num_nodes,
        edges={relation[1]: len(cell.edges(relation)) for relation in cell.relations},
        cell_sha256=cell.sha256,
        parameters=count_parameters(task.model),
        clock="device stream" if device.type == "cuda" else "host",
        warm_up=schedule.warm_up,
        steps=steps,
        samples=trainer.world_size * sum(len(one) for one in data.batches[schedule.warm_up : schedule.timed]),
        components={name: share * sum(steps) for name, share in trace.shares.items()},
        bytes_to_device=trace.bytes_to_device,
        synchronisations=trace.synchronisations,
        peak_memory_bytes=profiler.peak.bytes,
        autotuned=_take_autotuned(directory),
        environment=environment(command),
    )
    found.write(folder / PROFILE)
    return found


def _set_up(config: Config) -> None:
    """Prepare the process for steps of an experiment."""
    begin_process(config)
    set_up_process(config)
    set_threads(torch.get_num_threads())  # no `ThreadTurns`, because all steps shall be alike


def run_steps(trainer: pl.Trainer, task: StrainTask, data: RepeatedData, profiler: LoopProfiler) -> None:
    """Run the steps of the profiler's schedule in Lightning's own loop."""
    data.number = profiler.schedule.total + 1  # asking for the last one ends the loop
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        quieten()
        profiler.peak = profiler.phase.enter_context(measured_memory(str(trainer.strategy.root_device)))
        stack.enter_context(launched(trainer))
        stack.callback(leave_group)
        stack.enter_context(suppress(FinishedError))
        stack.push(profiler.phase)  # after an error no trace is written
        stack.enter_context(_interrupts())
        trainer.fit(task, datamodule=data)


@contextmanager
def _interrupts() -> Iterator[None]:
    """Let the user's interrupt through, because Lightning would shut down and exit with 1 as if there were an error."""
    try:
        yield
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise


def _take_autotuned(directory: RunDirectory) -> dict[str, Any] | None:
    """Return the choices of `auto` written for all ranks, and remove their file: a later profile chooses anew."""
    if not directory.autotuned.exists():
        return None
    content: dict[str, Any] = json.loads(directory.autotuned.read_text(encoding="utf-8"))
    directory.autotuned.unlink()
    return content


def _strategy_of(task: StrainTask) -> str | None:
    """Return the model's strategy and the choices of `auto`, or None for a model without a strategy."""
    if not isinstance(task.model, PerturbedModel):
        return None
    strategy, autotuned = task.model.config.strategy, task.model.autotuned
    return f"auto: {autotuned.strategy}" if strategy == "auto" and autotuned else strategy
