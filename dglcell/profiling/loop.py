"""Lightning's loop under measurement: schedules, repeated batches, counted steps, parts of a step."""

from __future__ import annotations

import dataclasses
import itertools
import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.profilers import Profiler
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Sampler

from dglcell.config import Config
from dglcell.data.datamodule import StrainDataModule, StrainNumbers
from dglcell.data.dataset import EpochBatches, StrainBatch
from dglcell.errors import ConfigError
from dglcell.profiling.spans import OpenSpan, Recorder
from dglcell.training.task import StrainTask

# What a step asks of the bus: bytes copied to the device, and waits of the host for it.


SYNC_WARNING = "called a synchronizing CUDA operation"


@dataclass
class StepCounts:
    """Of one step.

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
        if name == "_to_copy":
            self._count(args[0], out)
        elif name == "copy_":
            self._count(args[1], args[0])
        return out

    def _count(self, source: Tensor, target: Tensor) -> None:
        if source.device.type == "cpu" != target.device.type:
            self.counts.bytes_to_device += target.numel() * target.element_size()


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
            counts.synchronisations = sum(SYNC_WARNING in str(warning.message) for warning in caught)


# How much of a training step is run.


MODES = {
    "data": "batches alone",
    "forward": "batches, predictions and loss",
    "backward": "batches, predictions, loss and gradients",
    "full": "whole training steps",
}


def check_mode(mode: str) -> None:
    """Refuse an unknown mode.

    Raises:
        ConfigError: naming those there are.
    """
    if mode not in MODES:
        raise ConfigError("unknown mode", got=mode, expected=", ".join(MODES), do="set `--mode`")


def config_for(config: Config, mode: str) -> Config:
    """The configuration without what a mode has no use for, and without a progress bar.

    Lightning refuses to clip or to accumulate gradients where it takes no steps.
    """
    trainer = dataclasses.replace(config.trainer, progress=False)
    if mode != "full":
        trainer = dataclasses.replace(trainer, gradient_clip_val=None, accumulate_grad_batches={})
    return dataclasses.replace(config, trainer=trainer)


def restrict(task: StrainTask, mode: str, recorder: Recorder) -> None:
    """Let a task do in a step what a mode says, and no more."""
    if mode == "full":
        return
    whole = task.training_step

    def training_step(batch: StrainBatch, batch_idx: int) -> Tensor | None:
        if mode == "data":
            return None
        loss = whole(batch, batch_idx)
        if mode == "backward":
            task.zero_grad()
            with recorder.span("backward", leaf=True):
                task.manual_backward(loss)
        return None

    task.automatic_optimization = False
    # Of this object alone: it goes before the method of its class.
    vars(task)["training_step"] = training_step


# As many training batches as are asked for, however few an epoch has.


class RepeatedEpochs(Sampler[Tensor]):
    """The first batches of one epoch after the other, each in an order of its own.

    Args:
        epoch: batches of an epoch.
        number: of batches.
    """

    def __init__(self, epoch: EpochBatches, number: int) -> None:
        self.epoch, self.number = epoch, number

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Iterator[Tensor]:
        return itertools.islice(self._all(), self.number)

    def _all(self) -> Iterator[Tensor]:
        for epoch in itertools.count():
            self.epoch.set_epoch(epoch)
            yield from self.epoch


class RepeatedData(StrainDataModule):
    """A data module whose training epoch is so many batches long.

    Attributes:
        number: of batches.
    """

    number = 0

    def train_dataloader(self) -> DataLoader[StrainNumbers]:
        """Shuffled batches of the training part, over several epochs."""
        loader = super().train_dataloader()
        assert isinstance(loader.sampler, EpochBatches)
        batches = RepeatedEpochs(loader.sampler, self.number)
        return DataLoader(loader.dataset, sampler=batches, batch_size=None, pin_memory=loader.pin_memory)


# Lightning's training loop, watched: where its steps begin and end, and what it does in them.


NEXT_BATCH = re.compile(r"\.train_dataloader_next$")

ACTIONS = (
    (NEXT_BATCH, "data/next", False),
    (re.compile(r"^\[Strategy\]\w+\.batch_to_device$"), "data/gather", False),
    (re.compile(r"^\[Strategy\]\w+\.training_step$"), "other/task", False),
    (re.compile(r"^\[Strategy\]\w+\.backward$"), "backward", True),
    (re.compile(r"^\[LightningModule\]\w+\.(optimizer_step|lr_scheduler_step)$"), "optimiser", False),
)
"""What Lightning calls its actions, the component that each is, and whether nothing in it is told apart."""


class FinishedError(Exception):
    """All steps are done; ends Lightning's loop before an epoch would be closed."""


@dataclass(frozen=True)
class Schedule:
    """Which steps count.

    Attributes:
        warm_up: steps before.
        steps: that are timed. One more follows, in which copies and waits are counted.
    """

    warm_up: int
    steps: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.warm_up + self.steps + 1


class LoopProfiler(Profiler):
    """Turns what Lightning says of its progress into spans; a step is from one batch to the next.

    Args:
        recorder: of the spans.
        schedule: warm-up and timed steps.
        device: on which the last step is counted.
    """

    def __init__(self, recorder: Recorder, schedule: Schedule, device: torch.device) -> None:
        super().__init__()
        self.recorder, self.schedule, self.device = recorder, schedule, device
        self.counts = StepCounts()
        self._begun = 0
        self._open: list[OpenSpan | None] = []
        self._counting = ExitStack()

    def start(self, action_name: str) -> None:
        """Lightning begins something."""
        if NEXT_BATCH.search(action_name):
            self._begin_step()
        found = next(((name, leaf) for pattern, name, leaf in ACTIONS if pattern.search(action_name)), None)
        self._open.append(None if found is None else self.recorder.open(found[0], leaf=found[1]))

    def stop(self, action_name: str) -> None:
        """Lightning ends what it began last."""
        self.recorder.close(self._open.pop())

    def finish(self) -> None:
        """Stop counting."""
        self._counting.close()

    def _begin_step(self) -> None:
        number, self._begun = self._begun, self._begun + 1
        if number == self.schedule.warm_up:
            self.recorder.forget()
        if number < self.schedule.warm_up + self.schedule.steps:
            self.recorder.step()
        else:
            self.recorder.stop()
            self.counts = self._counting.enter_context(counted(self.device))


class LoopCallback(pl.Callback):
    """Counts strains, shows waits for other processes, and ends the loop.

    Args:
        recorder: of the spans.
        schedule: warm-up and timed steps.
    """

    def __init__(self, recorder: Recorder, schedule: Schedule) -> None:
        self.recorder, self.schedule = recorder, schedule
        self.samples = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Watch the exchange of gradients."""
        if isinstance(trainer.strategy.model, DistributedDataParallel):
            # PyTorch compares annotations, which it cannot read where they are strings; a lambda has none.
            trainer.strategy.model.register_comm_hook(
                self.recorder, lambda recorder, bucket: exchange(recorder, bucket)
            )

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Count strains of timed steps."""
        assert isinstance(batch, StrainBatch)
        if 0 <= batch_idx - self.schedule.warm_up < self.schedule.steps:
            self.samples += len(batch.strains)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """End the loop after the last step.

        Raises:
            FinishedError: that was it.
        """
        if batch_idx + 1 == self.schedule.total:
            raise FinishedError


def exchange(recorder: Recorder, bucket: dist.GradBucket) -> Future[Tensor]:
    """Average a bucket of gradients over all processes, as DistributedDataParallel does by itself.

    Buckets travel while the backward pass goes on. With the last one all gradients are there: what is left of the
    backward pass is waiting for other processes.
    """
    if bucket.is_last():
        recorder.open("communication", leaf=True, anywhere=True)
    everyone = dist.group.WORLD
    assert everyone is not None
    return allreduce_hook(everyone, bucket)
