"""How much of a training step is run."""

from __future__ import annotations

import dataclasses

from torch import Tensor

from dglcell.config import Config
from dglcell.data.dataset import StrainBatch
from dglcell.errors import ConfigError
from dglcell.profiling.spans import Recorder
from dglcell.training.task import StrainTask

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
        trainer = dataclasses.replace(trainer, clip=None, accumulate={})
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
