"""Lightning's loop under measurement: parts of a step, repeated batches, and what is watched while steps run."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.profilers import Profiler
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

from dglcell.config.experiment import Config
from dglcell.data.datamodule import StrainDataModule, StrainNumbers
from dglcell.data.dataset import EpochBatches
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError
from dglcell.files.atomic import atomic_file
from dglcell.machine.devices import Peak
from dglcell.profiling.spans import WAITING, Recorder, Span, clock_of
from dglcell.training.task import StrainTask

# How much of a training step is run, and on which batches.


MODES = {
    "data": "batches alone",
    "forward": "batches, predictions and loss",
    "backward": "batches, predictions, loss and gradients",
    "full": "whole training steps",
}


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


def restrict(task: StrainTask, mode: str, recorder: Recorder) -> None:
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
            with recorder.span("backward"):
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


# What a step asks of the bus: bytes copied to the device, and waits of the host for it.


@dataclass
class StepCounts:
    """What one step asked of the bus.

    Attributes:
        bytes_to_device: copied from the host to another device; 0 on a CPU.
        synchronisations: times that the host waited for a GPU; None on a CPU, where there is nothing to wait for.
    """

    bytes_to_device: int = 0
    synchronisations: int | None = None


class CountCopies(TorchDispatchMode):
    """Adds up the bytes of tensors that are copied from the host to another device."""

    def __init__(self, counts: StepCounts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and look whether it is a copy."""
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in ("_to_copy", "copy_"):
            source, target = (args[0], out) if name == "_to_copy" else (args[1], args[0])
            if source.device.type == "cpu" != target.device.type:
                self.counts.bytes_to_device += target.numel() * target.element_size()
        return out


@contextmanager
def counted(device: torch.device) -> Iterator[StepCounts]:
    """Count what happens inside; slows it down, so that it must not be timed."""
    counts = StepCounts()
    if device.type != "cuda":
        yield counts
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with CountCopies(counts):
                yield counts
        finally:
            torch.cuda.set_sync_debug_mode(before)
            synchronising = "called a synchronizing CUDA operation"
            counts.synchronisations = sum(synchronising in str(warning.message) for warning in caught)


# A step as PyTorch's profiler sees it: every operator, and on a GPU every kernel.


@contextmanager
def traced(recorder: Recorder, device: torch.device, path: Path, about: dict[str, str]) -> Iterator[None]:
    """Write a trace of what happens inside, with the recorder's spans; slows it down, so that it must not be timed.

    Args:
        recorder: its spans become ranges of the trace.
        device: on which steps run.
        path: of the trace; ends in ``.json.gz``.
        about: shown as the trace's metadata.
    """
    # PyTorch's profiler would print a line when it starts, and when it stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with torch.profiler.profile(activities=activities) as profiler:
        for key, value in about.items():
            profiler.add_metadata(key, value)
        recorder.tracing = True
        yield
        recorder.tracing = False
    with TemporaryDirectory() as folder, atomic_file(path) as partial:
        plain = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(plain))
        with plain.open("rb") as source, gzip.open(partial, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target)


# Lightning's training loop, watched: where its steps begin and end, and what it does in them.


NEXT_BATCH = re.compile(r"\.train_dataloader_next$")

ACTIONS = (
    (NEXT_BATCH, "data/next"),
    (re.compile(r"^\[Strategy\]\w+\.batch_to_device$"), "data/gather"),
    (re.compile(r"^\[Strategy\]\w+\.training_step$"), "other/task"),
    (re.compile(r"^\[Strategy\]\w+\.backward$"), "backward"),
    (re.compile(r"^\[LightningModule\]\w+\.(optimizer_step|lr_scheduler_step)$"), "optimiser"),
)
"""What Lightning calls its actions, and the component that each is."""


class FinishedError(Exception):
    """All steps are done; ends Lightning's loop before an epoch would be closed."""


class Schedule(NamedTuple):
    """Which steps count.

    Attributes:
        warm_up: steps before.
        steps: that are timed. Two more follow: of one a trace is written, and in one copies and waits are counted.
    """

    warm_up: int
    steps: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.warm_up + self.steps + 2


class LoopProfiler(Profiler):
    """Turns what Lightning says of its progress into spans; a step is from one batch to the next.

    Args:
        schedule: warm-up and timed steps.
        device: on which steps run.
        trace: where the trace of a step is written, and its metadata; None for no trace.

    Attributes:
        recorder: of the spans.
        phase: contexts that end with the timed steps, then with each of the two that follow.
        steps, times: where the time of the timed steps went, see ``Recorder.divide``.
        peak: of memory, until they were done.
        counts: what one step asked of the bus.
    """

    def __init__(
        self, schedule: Schedule, device: torch.device, trace: tuple[Path, dict[str, str]] | None = None
    ) -> None:
        super().__init__()
        self.schedule, self.device, self.trace = schedule, device, trace
        self.recorder, self.phase = Recorder(clock_of(device)), ExitStack()
        self.peak, self.counts = Peak(), StepCounts()
        self.steps: list[int] = []
        self.times: dict[str, int] = {}
        self._begun = 0
        self._open: list[Span | None] = []

    def start(self, action_name: str) -> None:
        """Lightning begins something."""
        if NEXT_BATCH.search(action_name):
            self._begin_step(self._begun - self.schedule.warm_up)
            self._begun += 1
        name = next((name for pattern, name in ACTIONS if pattern.search(action_name)), None)
        self._open.append(None if name is None else self.recorder.open(name))

    def stop(self, action_name: str) -> None:
        """Lightning ends what it began last."""
        self.recorder.close(self._open.pop())

    def _begin_step(self, number: int) -> None:
        """End a step, and begin the next; the timed ones have numbers from 0."""
        after = number - self.schedule.steps
        if after >= 0:
            self.recorder.stop()
            self.phase.close()
        if after == 0:
            self.steps, self.times = self.recorder.divide()
            if self.trace is not None:
                self.phase.enter_context(traced(self.recorder, self.device, *self.trace))
        if after > 0:
            self.counts = self.phase.enter_context(counted(self.device))
        elif number >= 0:
            self.recorder.step()


class LoopCallback(pl.Callback):
    """Shows waits for other processes, and ends the loop.

    Args:
        profiler: records the waits, and knows how many steps there are.
    """

    def __init__(self, profiler: LoopProfiler) -> None:
        self.profiler = profiler

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Watch the exchange of gradients."""
        if isinstance(trainer.strategy.model, DistributedDataParallel):
            # PyTorch compares annotations, which it cannot read where they are strings; a lambda has none.
            trainer.strategy.model.register_comm_hook(
                self.profiler.recorder, lambda recorder, bucket: exchange(recorder, bucket)
            )

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """End the loop after the last step.

        Raises:
            FinishedError: that was it.
        """
        if batch_idx + 1 == self.profiler.schedule.total:
            raise FinishedError


def exchange(recorder: Recorder, bucket: dist.GradBucket) -> Future[Tensor]:
    """Average a bucket of gradients over all processes, as DistributedDataParallel does by itself.

    Buckets travel while the backward pass goes on. With the last one all gradients are there: what is left of the
    backward pass is waiting for other processes.
    """
    if bucket.is_last():
        recorder.open(WAITING)
    everyone = dist.group.WORLD
    assert everyone is not None
    return allreduce_hook(everyone, bucket)
