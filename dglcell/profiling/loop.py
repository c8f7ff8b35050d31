"""Lightning's training loop, watched: where its steps begin and end, and what it does in them."""

from __future__ import annotations

import re
from contextlib import ExitStack
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

from dglcell.data.dataset import StrainBatch
from dglcell.profiling.spans import OpenSpan, Recorder
from dglcell.profiling.step_counts import StepCounts, counted

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
