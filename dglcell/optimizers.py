"""Make optimisers and learning-rate schedules from a configuration."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from typing import TYPE_CHECKING, Annotated, Any

from dglcell.checks import Number, Positive, at_least, check_values, must, one_of
from dglcell.errors import ConfigError, did_you_mean

# Torch is imported where optimisers are made, so that configurations are read without it.
if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim.lr_scheduler import LRScheduler

SCHEDULES = ("none", "cosine_restarts", "plateau")
Schedule = Annotated[str, one_of(*SCHEDULES)]
Interval = Annotated[str, one_of("epoch", "step")]
NotNegative = Annotated[float, at_least(0)]
AboveZero = Annotated[float, must(lambda factor: factor > 0, "is too small", "more than 0")]
Decay = Annotated[float, must(lambda decay: decay >= 0, "must not be negative")]

PLAIN = ("AdamW", "Adam", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "SGD")
"""These classes take any learning rate and weight decay; only torch can tell whether it takes other settings."""


NAMED_GROUPS = {
    "deviations": r"(.*\.)?own_(effects|vectors)",
    "embedding": r"(.*\.)?embeddings?\..*",
    "heads": r"(?!.*own_(effects|vectors))(global_head|local_head|combination|score)\..*",
}
"""This maps named groups to patterns of their parameters' names; no two groups share a parameter."""


@dataclass
class GroupConfig:
    """Configure how some parameters are optimised."""

    lr: Positive | None = None  # learning rate; that of all parameters where null
    weight_decay: Decay | None = None  # that of all parameters where null


@dataclass
class OptimizerConfig:
    """Configure any class of ``torch.optim``."""

    name: str = "AdamW"  # a class of `torch.optim`
    lr: Positive = 1e-3  # learning rate
    weight_decay: float = 0.0  # weight decay of all parameters
    groups: dict[str, GroupConfig] = field(default_factory=dict)  # of deviations, embedding, heads, or e.g. *.bias
    options: dict[str, Any] = field(default_factory=dict)  # further keyword arguments, e.g. {momentum: 0.9}

    def validate(self) -> None:
        """Check the class and that it takes these arguments.

        Raises:
            ConfigError: naming the key.
        """
        check_values(self, "optimizer")
        if self.name in PLAIN and not self.options and self.weight_decay >= 0:
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
        """Check values.

        Raises:
            ConfigError: naming the key.
        """
        check_values(self, "scheduler")
        if self.first_cycle is not None and self.first_cycle <= self.warmup:
            raise ConfigError(
                "`scheduler.first_cycle` must be longer than `scheduler.warmup`",
                got=self.first_cycle,
                expected=f"more than {self.warmup}",
            )
        if self.name == "plateau" and not 0 < self.factor < 1:
            raise ConfigError(
                "`scheduler.factor` must lie between 0 and 1",
                got=self.factor,
                expected="e.g. 0.5, which halves the rate",
            )


def parameter_groups(config: OptimizerConfig, model: nn.Module) -> list[dict[str, Any]]:
    """Return the parameters of a model as ``torch.optim`` takes them: those of no group first, then every group's own.

    Raises:
        ConfigError: a group has no parameter, or two groups share one.
    """
    names = [name for name, _ in model.named_parameters()]
    group_of: dict[str, str] = {}
    for group in config.groups:
        found = [name for name in names if re.fullmatch(NAMED_GROUPS.get(group) or translate(group), name)]
        twice = next((name for name in found if name in group_of), None)
        if not found:
            parts = dict.fromkeys(f"{name.partition('.')[0]}.*" for name in names if "." in name)
            raise ConfigError(
                f"`optimizer.groups.{group}` names no parameter of this model",
                expected=", ".join([*NAMED_GROUPS, *parts]),
                do="choose another name, or leave the group out",
            )
        if twice is not None:
            raise ConfigError(
                f"`optimizer.groups` puts the parameter '{twice}' into two groups",
                got=f"{group_of[twice]} and {group}",
                do="choose names that have no parameter in common",
            )
        group_of |= dict.fromkeys(found, group)
    members: dict[str | None, list[nn.Parameter]] = {None: []} | {group: [] for group in config.groups}
    for name, parameter in model.named_parameters():
        members[group_of.get(name)].append(parameter)
    settings = {group: {k: v for k, v in vars(own).items() if v is not None} for group, own in config.groups.items()}
    return [{"params": chosen, **settings.get(group or "", {})} for group, chosen in members.items()]


def make_optimizer(
    config: OptimizerConfig, parameters: Iterable[torch.nn.Parameter] | Iterable[dict[str, Any]]
) -> torch.optim.Optimizer:
    """Make the optimiser over ``parameters``, which may come in groups with settings of their own.

    On a GPU the optimiser counts its steps there, where it can.

    Raises:
        ConfigError: there is no such class, or it refuses the arguments.
    """
    import torch

    kind = getattr(torch.optim, config.name, None)
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)) or kind is torch.optim.Optimizer:
        known = [n for n in dir(torch.optim) if n[0].isupper() and n not in ("Optimizer", "LBFGS", "SparseAdam")]
        do = did_you_mean(config.name, known)
        raise ConfigError("`optimizer.name` is not in torch.optim", got=config.name, expected=", ".join(known), do=do)
    try:
        groups: list[Any] = list(parameters)
        weights = itertools.chain.from_iterable(g["params"] if isinstance(g, dict) else [g] for g in groups)
        settings = {"lr": config.lr, "weight_decay": config.weight_decay, **config.options}
        takes = inspect.signature(kind).parameters
        if {w.device.type for w in weights} == {"cuda"} and "capturable" in takes:
            # All state is on the device, so that a step never waits; one kernel does what hundreds would do.
            settings = {"capturable": True} | ({"fused": True} if "fused" in takes else {}) | settings
        optimizer: torch.optim.Optimizer = kind(groups, **settings)
        for group in optimizer.param_groups:
            group["lr"] = rate_of(group, group["params"][0].device)
        return optimizer
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise ConfigError(
            f"`optimizer`: torch.optim.{config.name} refuses these settings",
            got=error,
            do="mend `optimizer.lr`, `optimizer.weight_decay` or `optimizer.options`",
        ) from error


def rate_of(group: Mapping[str, Any], device: torch.device) -> float | torch.Tensor:
    """Return the learning rate of a group as its optimiser reads it: a tensor where all its state is on a GPU.

    A CUDA graph of a step then reads whatever rate there is.
    """
    import torch

    rate = float(group["lr"])
    return torch.tensor(rate, device=device) if device.type == "cuda" and group.get("capturable") else rate


def cosine_restarts(t: int, *, first_cycle: int, cycle_mult: float, gamma: float, warmup: int, floor: float) -> float:
    """Return the learning rate at time ``t`` as a share of the first maximum.

    The schedule is cosine annealing with warm restarts (Loshchilov & Hutter 2017, *SGDR*, eq. 5), with a linear
    warm-up at the start of each cycle and maxima that shrink by ``gamma`` from cycle to cycle.

    Args:
        t: epochs or steps since the start.
        first_cycle: length of the first cycle.
        cycle_mult: ratio of the lengths of successive cycles (rounded down, at least warm-up + 1).
        gamma: ratio of their maxima.
        warmup: length of the warm-up.
        floor: smallest share.
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
    """Return the number of optimiser steps of a training.

    Args:
        batches: batches per epoch, on one rank.
        accumulate: first epoch → batches per step from then on; one batch before the first entry. The last step of an
            epoch may be short.
    """
    starts = sorted({0, *accumulate} & set(range(epochs)))
    steps = 0
    for start, stop in itertools.pairwise([*starts, epochs]):
        steps += (stop - start) * math.ceil(batches / accumulate.get(start, 1))
    return steps


def make_scheduler(
    config: SchedulerConfig, optimizer: torch.optim.Optimizer, *, epochs: int, steps: int
) -> dict[str, Any] | None:
    """Make the schedule as Lightning takes it; None where the learning rate does not change."""
    from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

    if config.name == "none":
        return None
    scheduler: LRScheduler
    if config.name == "plateau":
        scheduler = ReduceLROnPlateau(
            optimizer,
            factor=config.factor,
            patience=config.patience,
            threshold=config.threshold,
            cooldown=config.cooldown,
            min_lr=config.min_lr,
        )
        return {"scheduler": scheduler, "interval": "epoch", "monitor": "validation/loss"}
    whole = epochs if config.interval == "epoch" else steps
    cycle: dict[str, Any] = {
        "first_cycle": config.first_cycle or max(whole, config.warmup + 1),
        "cycle_mult": config.cycle_mult,
        "gamma": config.gamma,
        "warmup": config.warmup,
        "floor": config.min_lr / float(optimizer.param_groups[0]["lr"]),
    }
    scheduler = LambdaLR(optimizer, lambda t: cosine_restarts(t, **cycle))
    return {"scheduler": scheduler, "interval": config.interval}
