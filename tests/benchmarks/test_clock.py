"""Steps are repeated as the budget allows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.timing import LEAST_STEPS, MOST_STEPS, clock


class Steps:
    """Takes the given seconds, the last value again and again, on a clock that nothing else moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
        self.seconds, self.done, self.now = seconds, 0, 0.0
        monkeypatch.setattr("benchmarks.timing.time", SimpleNamespace(perf_counter=lambda: self.now))

    def __call__(self) -> None:
        self.now += self.seconds[min(self.done, len(self.seconds) - 1)]
        self.done += 1


def test_short_steps_fill_the_budget_after_two_to_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch, 4.0, 4.0, 0.25)
    timing = clock(steps, 5.0, "cpu")
    assert (timing.first, timing.warm_up, steps.done) == (4.0, 2, 22)
    assert timing.seconds == (0.25,) * 20
    assert timing.median == 0.25


def test_steps_that_nearly_fill_the_budget_are_repeated_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clock(Steps(monkeypatch, 4.0), 5.0, "cpu").seconds == (4.0,) * LEAST_STEPS


def test_nothing_is_repeated_without_end() -> None:
    assert len(clock(lambda: None, 1e9, "cpu").seconds) == MOST_STEPS


@pytest.mark.parametrize(
    ("first_counts", "seconds", "expected"),
    [
        (True, (2.0,), (1, 1, 2)),
        (True, (8.0,), (1, 0, 1)),
        (False, (8.0, 0.1), (1, 1, 2)),
    ],
)
def test_long_steps_are_timed_once(
    monkeypatch: pytest.MonkeyPatch, first_counts: bool, seconds: tuple[float, ...], expected: tuple[int, int, int]
) -> None:
    steps = Steps(monkeypatch, *seconds)
    timing = clock(steps, 1.0, "cpu", first_counts=first_counts)
    assert (len(timing.seconds), timing.warm_up, steps.done) == expected
