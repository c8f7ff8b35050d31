"""Optimisers and schedules."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dglcell.errors import ConfigError
from dglcell.optimizers import OptimizerConfig, SchedulerConfig, cosine_restarts, make_optimizer, make_scheduler


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2, 2))]


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD"])
def test_optimisers_of_torch_make_steps(name: str) -> None:
    weights = parameters()
    optimizer = make_optimizer(OptimizerConfig(name, lr=0.1, weight_decay=0.0), weights)
    assert type(optimizer) is getattr(torch.optim, name)
    assert not optimizer.param_groups[0].get("capturable"), "steps are counted on the device on a GPU alone"
    before = sum(w.sum().item() for w in weights)
    sum(w.square().sum() for w in weights).backward()  # type: ignore[union-attr]
    optimizer.step()
    assert sum(w.sum().item() for w in weights) < before


def test_options_reach_the_optimiser() -> None:
    config = OptimizerConfig("SGD", lr=0.5, weight_decay=0.25, options={"momentum": 0.9, "nesterov": True})
    config.validate()
    group = make_optimizer(config, parameters()).param_groups[0]
    assert (group["lr"], group["weight_decay"], group["momentum"], group["nesterov"]) == (0.5, 0.25, 0.9, True)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (OptimizerConfig("RMSprop"), r"`optimizer.name` is unknown\n  got: +RMSprop\n  expected: AdamW, Adam, SGD"),
        (OptimizerConfig("AdamW", options={"momentum": 0.9}), r"AdamW refuses these settings\n  got: .*momentum"),
        (OptimizerConfig("SGD", options={"nesterov": True}), "SGD refuses these settings"),
        (OptimizerConfig(options={"lr": 3.0}), "multiple values for keyword argument 'lr'"),
        (OptimizerConfig(weight_decay=-1.0), "`optimizer.weight_decay` is too small"),
        (OptimizerConfig(lr=0.0), r"`optimizer.lr` must be positive\n  got: +0.0"),
        (OptimizerConfig(lr=math.nan), "`optimizer.lr` is no finite number"),
        (SchedulerConfig("linear"), r"`scheduler.name` is unknown\n  got: +linear\n  expected: none, cosine_restarts"),
        (SchedulerConfig("cosine_restarts", interval="day"), "`scheduler.interval` is unknown"),
        (SchedulerConfig("cosine_restarts", first_cycle=5, warmup=5), r"first_cycle` must be longer .*\n.*\n.*than 5"),
        (SchedulerConfig("cosine_restarts", cycle_mult=0.0), "`scheduler.cycle_mult` is too small"),
        (SchedulerConfig("cosine_restarts", warmup=-1), "`scheduler.warmup` is too small"),
        (SchedulerConfig("plateau", factor=1.0), "`scheduler.factor` must lie between 0 and 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(config: OptimizerConfig | SchedulerConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config.validate()


def rates(config: SchedulerConfig, lr: float, length: int, **whole: int) -> list[float]:
    optimizer = make_optimizer(OptimizerConfig("SGD", lr=lr), parameters())
    made = make_scheduler(config, optimizer, **{"epochs": 10, "steps": 1000, **whole})
    assert made is not None
    found = []
    for _ in range(length):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        made["scheduler"].step()
    return found


def test_cosine_restarts_with_the_cycles_of_torchcell() -> None:
    config = SchedulerConfig("cosine_restarts", first_cycle=300, cycle_mult=0.75, gamma=0.5, min_lr=1e-6)
    found = rates(config, 5e-4, 300 + 225 + 168 + 126 + 10)
    expected: list[float] = []
    for cycle, length in enumerate([300, 225, 168, 126, 94]):
        top = 5e-4 * 0.5**cycle
        expected += [1e-6 + (top - 1e-6) * (1 + math.cos(math.pi * i / length)) / 2 for i in range(length)]
    assert found == pytest.approx(expected[: len(found)], rel=1e-9)
    assert [found[i] for i in (0, 300, 525, 693)] == pytest.approx([5e-4, 2.5e-4, 1.25e-4, 6.25e-5])


@given(
    first=st.integers(3, 50),
    mult=st.floats(0.3, 3),
    gamma=st.floats(0.1, 1),
    warmup=st.integers(0, 2),
    floor=st.floats(0, 0.05),
    t=st.integers(0, 500),
)
def test_cosine_stays_within_bounds(first: int, mult: float, gamma: float, warmup: int, floor: float, t: int) -> None:
    share = cosine_restarts(t, first_cycle=first, cycle_mult=mult, gamma=gamma, warmup=warmup, floor=floor)
    assert floor - 1e-12 <= share <= 1 + 1e-12


def test_the_plateau_waits_and_then_falls() -> None:
    config = SchedulerConfig("plateau", factor=0.1, patience=1, cooldown=0, threshold=0.0, min_lr=1e-3)
    optimizer = make_optimizer(OptimizerConfig("SGD", lr=1.0), parameters())
    made = make_scheduler(config, optimizer, epochs=9, steps=9)
    assert made is not None
    assert made["monitor"] == "validation/loss"
    found = []
    for loss in (3.0, 2.0, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5):
        made["scheduler"].step(loss)
        found.append(optimizer.param_groups[0]["lr"])
    assert found == pytest.approx([1, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 0.001])
