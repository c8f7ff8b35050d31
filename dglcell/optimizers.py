"""Make optimisers and learning-rate schedules from a configuration."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from dglcell.checks import Number, Positive, at_least, check_values, must, one_of
from dglcell.errors import ConfigError

# Torch is imported where optimisers are made, so that configurations are read without it.
if TYPE_CHECKING:
    import torch
    from torch.optim.lr_scheduler import LRScheduler

Optimizer = Annotated[str, one_of("AdamW", "Adam", "SGD")]
Schedule = Annotated[str, one_of("none", "cosine_restarts", "plateau")]
Interval = Annotated[str, one_of("epoch", "step")]
NotNegative = Annotated[float, at_least(0)]
AboveZero = Annotated[float, must(lambda factor: factor > 0, "is too small", "more than 0")]


@dataclass
class OptimizerConfig:
    """Configure the optimiser."""

    name: Optimizer = "AdamW"  # AdamW | Adam | SGD
    lr: Positive = 1e-3  # learning rate
    weight_decay: NotNegative = 0.0  # weight decay of all parameters
    options: dict[str, Any] = field(default_factory=dict)  # further keyword arguments, e.g. {momentum: 0.9}

    def validate(self) -> None:
        """Check that the optimiser takes these arguments."""
        check_values(self, "optimizer")
        if not self.options:
            return
        import torch

        make_optimizer(self, [torch.nn.Parameter(torch.zeros(1))])


@dataclass
class SchedulerConfig:
    """Configure how the learning rate changes."""

    name: Schedule = "none"  # none | cosine_restarts | plateau
    interval: Interval = "epoch"  # epoch | step: the unit of first_cycle and warmup
    first_cycle: int | None = None  # cosine: length of the first cycle; null: all of training
    cycle_mult: AboveZero = 1.0  # cosine: length of each cycle divided by that of the previous one
    gamma: AboveZero = 1.0  # cosine: maximum of each cycle divided by that of the previous one
    warmup: Number = 0  # cosine: length of the linear rise at the start of each cycle
    min_lr: NotNegative = 1e-6  # smallest learning rate of any schedule
    factor: float = 0.2  # plateau: factor of the learning rate at a reduction
    patience: Number = 3  # plateau: epochs without a better validation loss before a reduction
    threshold: NotNegative = 1e-4  # plateau: smallest relative improvement that counts
    cooldown: Number = 2  # plateau: epochs after a reduction without another one

    def validate(self) -> None:
        """Check values."""
        check_values(self, "scheduler")
        if self.first_cycle is not None and self.first_cycle <= self.warmup:
            what = "`scheduler.first_cycle` must be longer than `scheduler.warmup`"
            raise ConfigError(what, got=self.first_cycle, expected=f"more than {self.warmup}")
        if self.name == "plateau" and not 0 < self.factor < 1:
            what = "`scheduler.factor` must lie between 0 and 1"
            raise ConfigError(what, got=self.factor, expected="e.g. 0.5, which halves the rate")


def make_optimizer(config: OptimizerConfig, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Make the optimiser over ``parameters``; on a GPU it counts its steps there, where it can."""
    import torch

    kind = getattr(torch.optim, config.name)
    weights = list(parameters)
    settings = config.options  # `lr` and `weight_decay` among them would be given twice, which is refused
    takes = inspect.signature(kind).parameters
    if {w.device.type for w in weights} == {"cuda"} and "capturable" in takes:
        # All state is on the device, so that a step never waits; one kernel does what hundreds would do.
        settings = {"capturable": True} | ({"fused": True} if "fused" in takes else {}) | settings
    try:
        optimizer: torch.optim.Optimizer = kind(weights, lr=config.lr, weight_decay=config.weight_decay, **settings)
        for group in optimizer.param_groups:
            group["lr"] = rate_of(group, group["params"][0].device)
        return optimizer
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        what = f"`optimizer`: torch.optim.{config.name} refuses these settings"
        do = "mend `optimizer.lr`, `optimizer.weight_decay` or `optimizer.options`"
        raise ConfigError(what, got=error, do=do) from error


def rate_of(group: Mapping[str, Any], device: torch.device) -> float | torch.Tensor:
    """Return the learning rate of a group: a tensor where all its state is on a GPU, for CUDA graphs to read."""
    import torch

    rate = float(group["lr"])
    return torch.tensor(rate, device=device) if device.type == "cuda" and group.get("capturable") else rate


def cosine_restarts(t: int, *, first_cycle: int, cycle_mult: float, gamma: float, warmup: int, floor: float) -> float:
    """Return the learning rate at time ``t``, in epochs or steps, as a share of the first maximum, ``floor`` at least.

    The schedule is cosine annealing with warm restarts (Loshchilov & Hutter 2017, *SGDR*, eq. 5), with a linear
    warm-up at the start of each cycle. From cycle to cycle maxima shrink by ``gamma``, and lengths by ``cycle_mult``
    (rounded down, at least warm-up + 1).
    """
    cycle, length = 0, first_cycle
    while t >= length:
        t -= length
        cycle += 1
        length = max(int(length * cycle_mult), warmup + 1)
    top = max(gamma**cycle, floor)
    if t < warmup:
        return floor + (top - floor) * t / warmup
    return floor + (top - floor) * 0.5 * (1 + math.cos(math.pi * (t - warmup) / (length - warmup)))


def count_steps(batches: int, epochs: int, accumulate: Mapping[int, int]) -> int:
    """Return the number of optimiser steps of a training with so many batches an epoch, of which the last may be short.

    ``accumulate``: first epoch → batches per step from then on; one batch before the first entry.
    """
    starts = sorted({0, *accumulate} & set(range(epochs)))
    spans = itertools.pairwise([*starts, epochs])
    return sum((stop - start) * math.ceil(batches / accumulate.get(start, 1)) for start, stop in spans)


def make_scheduler(
    config: SchedulerConfig, optimizer: torch.optim.Optimizer, *, epochs: int, steps: int
) -> dict[str, Any] | None:
    """Make the schedule as Lightning takes it; None where the learning rate does not change."""
    from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

    if config.name == "none":
        return None
    scheduler: LRScheduler
    if config.name == "plateau":
        names = ("factor", "patience", "threshold", "cooldown", "min_lr")
        scheduler = ReduceLROnPlateau(optimizer, **{name: getattr(config, name) for name in names})
        return {"scheduler": scheduler, "interval": "epoch", "monitor": "validation/loss"}
    whole = epochs if config.interval == "epoch" else steps
    cycle: dict[str, Any] = {name: getattr(config, name) for name in ("cycle_mult", "gamma", "warmup")}
    cycle["first_cycle"] = config.first_cycle or max(whole, config.warmup + 1)
    cycle["floor"] = config.min_lr / float(optimizer.param_groups[0]["lr"])
    scheduler = LambdaLR(optimizer, lambda t: cosine_restarts(t, **cycle))
    return {"scheduler": scheduler, "interval": config.interval}
