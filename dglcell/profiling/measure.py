"""``dglcell profile``: a few training steps of an experiment in Lightning's loop, timed, then watched."""

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
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError
from dglcell.files.atomic import atomic_file
from dglcell.machine.devices import Peak, device_of, measured_memory, set_threads
from dglcell.machine.parts import Part
from dglcell.machine.processor import processor_name
from dglcell.models.encoder import PerturbedModel
from dglcell.models.model import count_parameters
from dglcell.profiling.profile import MODES, PROFILE, TRACE, Profile
from dglcell.profiling.trace import STEP, WAITING, read_trace
from dglcell.runs.directory import RunDirectory
from dglcell.runs.usage import environment
from dglcell.training.autotune import lightning_precision
from dglcell.training.batch_size import find_batch_size
from dglcell.training.distributed import check_allocation, launched, leave_group, watch_parent
from dglcell.training.fit import make_callbacks, make_data, make_task, make_trainer, quieten
from dglcell.training.prepare import prepare
from dglcell.training.run import set_up_process
from dglcell.training.signals import StopSignals, is_rank_zero
from dglcell.training.task import StrainTask

log = logging.getLogger("dglcell")


# How much of a training step is run, and on which batches.


def config_for(config: Config, mode: str) -> Config:
    """The configuration without what a mode has no use for, and without a progress bar.

    Lightning refuses to clip or to accumulate gradients where it takes no steps.

    Raises:
        ConfigError: there is no such mode.
    """
    if mode not in MODES:
        raise ConfigError("unknown mode", got=mode, expected=", ".join(MODES), do="set `--mode`")
    trainer = dataclasses.replace(config.trainer, progress=False)
    if mode != "full":
        trainer = dataclasses.replace(trainer, gradient_clip_val=None, accumulate_grad_batches={})
    return dataclasses.replace(config, trainer=trainer)


def restrict(task: StrainTask, mode: str) -> None:
    """Let a task do in a step what a mode says, and no more."""
    if mode == "full":
        return
    whole = task.training_step

    def training_step(batch: Strains, batch_idx: int) -> Tensor | None:
        if mode == "data":
            return None
        loss = whole(batch, batch_idx)
        if mode == "backward":
            task.zero_grad()
            with Part("backward"):
                task.manual_backward(loss)
        return None

    task.automatic_optimization = False
    # Of this object alone: it goes before the method of its class.
    vars(task)["training_step"] = training_step


def repeated(epoch: EpochBatches) -> Iterator[Tensor]:
    """The batches of one epoch after the other, each epoch in an order of its own, without an end."""
    for number in itertools.count():
        epoch.set_epoch(number)
        yield from epoch


class RepeatedData(StrainDataModule):
    """A data module whose training epoch is so many batches long, however few an epoch has.

    Attributes:
        number: how many batches that is.
        batches: the strains of each.
    """

    number = 0

    def train_dataloader(self) -> DataLoader[StrainNumbers]:
        """Shuffled batches of the training part, over several epochs."""
        loader = super().train_dataloader()
        assert isinstance(loader.sampler, EpochBatches)
        self.batches = list(itertools.islice(repeated(loader.sampler), self.number))
        return DataLoader(loader.dataset, sampler=self.batches, batch_size=None, pin_memory=loader.pin_memory)


# Lightning's training loop: where its steps begin and end, and what it does in them.


NEXT_BATCH = re.compile(r"\.train_dataloader_next$")

ACTIONS = (
    (NEXT_BATCH, "data/next"),
    (re.compile(r"^\[Strategy\]\w+\.batch_to_device$"), "data/gather"),
    (re.compile(r"^\[Strategy\]\w+\.backward$"), "backward"),
    (re.compile(r"^\[LightningModule\]\w+\.(optimizer_step|lr_scheduler_step)$"), "optimiser"),
    (re.compile(r"^\[Strategy\]\w+\.training_step$"), "other"),
)
"""What Lightning calls its actions, and the part that each is. The optimiser's step contains those before it."""

WATCHED = 3
"""Steps that the table's shares are of. They follow those that are timed, as the profiler makes them slower."""


class FinishedError(Exception):
    """All steps are done; ends Lightning's loop before an epoch would be closed."""


class Schedule(NamedTuple):
    """Which steps count.

    Attributes:
        warm_up: steps before.
        steps: that are timed.
    """

    warm_up: int
    steps: int

    @property
    def timed(self) -> int:
        """How many steps there are until all are timed."""
        return self.warm_up + self.steps

    @property
    def total(self) -> int:
        """All of them: one is for the profiler to warm up."""
        return self.timed + 1 + WATCHED


class LoopProfiler(Profiler):
    """Times Lightning's steps, each from one batch to the next, then lets ``torch.profiler`` watch a few more.

    Args:
        schedule: warm-up and timed steps.
        device: on which steps run.
        trace: where the trace is written, and its metadata; None for no trace.

    Attributes:
        phase: contexts that end with the timed steps, then with those that are watched.
        peak: of memory, until they were timed.
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
        """Lightning begins something."""
        if NEXT_BATCH.search(action_name):
            self._begin_step()
        name = next((name for pattern, name in ACTIONS if pattern.search(action_name)), None)
        self._open.append(None if name is None else Part(name).__enter__())

    def stop(self, action_name: str) -> None:
        """Lightning ends what it began last."""
        part = self._open.pop()
        if part is not None:
            part.__exit__()

    def _begin_step(self) -> None:
        """End a step, and begin the next.

        Raises:
            FinishedError: there is none.
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
        """The timed steps."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            return [start.elapsed_time(end) / 1e3 for start, end in pairwise(self._marks)]
        return [end - start for start, end in pairwise(self._marks)]


def _now(device: torch.device) -> Any:
    """This moment; on a GPU that in which its queue comes here, as the host runs ahead of it."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


@contextmanager
def watched(device: torch.device, path: Path, about: dict[str, str]) -> Iterator[None]:
    """Write a trace of what happens inside, every operator of it, where it comes to its end."""
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
    """Shows in a trace when all gradients of a step are there, so that what follows is waiting for other processes."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Average gradients as DistributedDataParallel does by itself, while the backward pass goes on."""

        # PyTorch reads annotations, which it cannot where they are strings.
        def exchange(state, bucket):  # type: ignore[no-untyped-def]
            with Part(WAITING) if bucket.is_last() else nullcontext():
                return allreduce_hook(dist.distributed_c10d._get_default_group(), bucket)

        if isinstance(trainer.strategy.model, DistributedDataParallel):
            trainer.strategy.model.register_comm_hook(None, exchange)


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
    trainer = make_trainer(config, directory, [*(beside if mode == "full" else []), WatchExchange()], profiler)
    if config.data.batch_size == AUTO:
        config = config.with_batch_size(find_batch_size(config, prepared, directory, trainer))
    task = make_task(config, prepared, directory)
    restrict(task, mode)
    data = make_data(config, prepared, RepeatedData)
    run_steps(trainer, task, data, profiler)
    if not is_rank_zero():
        return None
    steps, cell = profiler.seconds(), prepared.cell
    trace = read_trace(folder / TRACE, sum(steps) / len(steps))
    found = Profile(
        experiment=config.experiment.name,
        mode=mode,
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
    watch_parent()
    check_allocation(config.trainer)
    if not is_rank_zero():
        log.setLevel(logging.WARNING)
    set_up_process(config)
    set_threads(torch.get_num_threads())  # no turns: every step is to be like the others


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
    """Let the user's interrupt through: Lightning shuts down on it, then exits with 1, as if something were wrong."""
    try:
        yield
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise


def _take_autotuned(directory: RunDirectory) -> dict[str, Any] | None:
    """What `auto` took, as it was written for all ranks; the file goes, so that a later profile chooses by itself."""
    if not directory.autotuned.exists():
        return None
    content: dict[str, Any] = json.loads(directory.autotuned.read_text(encoding="utf-8"))
    directory.autotuned.unlink()
    return content


def _strategy_of(task: StrainTask) -> str | None:
    """The model's strategy, and what `auto` took; None for a model that has none."""
    if not isinstance(task.model, PerturbedModel):
        return None
    strategy, autotuned = task.model.config.strategy, task.model.autotuned
    return f"auto: {autotuned.strategy}" if strategy == "auto" and autotuned else strategy
