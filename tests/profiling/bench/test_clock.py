"""Steps are repeated as the budget allows."""

from __future__ import annotations

import time

import pytest

from dglcell.profiling.bench.clock import LEAST_STEPS, MOST_STEPS, clock


class Steps:
    """Takes the given seconds, the last value again and again."""

    def __init__(self, *seconds: float) -> None:
        self.seconds, self.done = seconds, 0

    def __call__(self) -> None:
        time.sleep(self.seconds[min(self.done, len(self.seconds) - 1)])
        self.done += 1


def test_short_steps_fill_the_budget_after_two_to_warm_up() -> None:
    steps = Steps(0.03, 0.03, 0.002)
    timing = clock(steps, 0.05, "cpu")
    assert timing.warm_up == 2
    assert steps.done == len(timing.seconds) + 2
    assert LEAST_STEPS <= len(timing.seconds) <= 25
    assert timing.first >= 0.03
    assert timing.median >= 0.002
    assert sum(timing.seconds) >= 0.05


def test_nothing_is_repeated_without_end() -> None:
    assert len(clock(lambda: None, 1e9, "cpu").seconds) == MOST_STEPS


@pytest.mark.parametrize(
    ("first_counts", "seconds", "expected"),
    [
        (True, (0.02,), (1, 1, 2)),
        (True, (0.08,), (1, 0, 1)),
        (False, (0.08, 0.001), (1, 1, 2)),
    ],
)
def test_long_steps_are_timed_once(first_counts: bool, seconds: tuple[float, ...], expected) -> None:
    steps = Steps(*seconds)
    timing = clock(steps, 0.01, "cpu", first_counts=first_counts)
    assert (len(timing.seconds), timing.warm_up, steps.done) == expected
