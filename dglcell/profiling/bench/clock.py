"""How long a step takes: as many repetitions as fit into a budget of time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

MOST_STEPS = 200
LEAST_STEPS = 3
LONG_STEP = 6
"""Budgets that a first step may take for a second one to follow it."""


@dataclass(frozen=True)
class Timing:
    """Wall time of repeated steps, with the device's work done.

    Attributes:
        first: seconds of the first step, which also builds, compiles and touches memory anew.
        seconds: of each timed step.
        warm_up: steps that were not counted.
    """

    first: float
    seconds: tuple[float, ...]
    warm_up: int

    @property
    def median(self) -> float:
        """Seconds per step."""
        return statistics.median(self.seconds)


def clock(step: Callable[[], object], budget: float, device: str, *, first_counts: bool = True) -> Timing:
    """Repeat ``step`` for about ``budget`` seconds.

    Two steps warm up. A step of more than a budget is timed once, after one to warm up; one of more than
    ``LONG_STEP`` budgets is its own measurement, which says more than the hour it would take to repeat it.

    Args:
        step: what is timed.
        budget: seconds.
        device: whose queue is waited for.
        first_counts: whether the first step can be that measurement; not where it compiles.
    """
    first = _seconds(step, device)
    if first > LONG_STEP * budget and first_counts:
        return Timing(first, (first,), warm_up=0)
    if first > budget:
        return Timing(first, (_seconds(step, device),), warm_up=1)
    second = _seconds(step, device)
    seconds = [_seconds(step, device)]
    while len(seconds) < MOST_STEPS and (sum(seconds) < budget or (len(seconds) < LEAST_STEPS and second < budget)):
        seconds.append(_seconds(step, device))
    return Timing(first, tuple(seconds), warm_up=2)


def _seconds(step: Callable[[], object], device: str) -> float:
    synchronise(device)
    started = time.perf_counter()
    step()
    synchronise(device)
    return time.perf_counter() - started


def synchronise(device: str) -> None:
    """Wait for a GPU; a CPU is never behind."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
