"""Spans: nested, on one thread, inside of steps; every moment belongs to the innermost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.profiling.spans import LEAVES, HostClock, Recorder, spanned
from tests.profiling.set_clock import SetClock


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def test_steps_follow_each_other_without_a_gap(clock: SetClock) -> None:
    recorder = Recorder(clock)
    for clock.now in (5, 10, 25):
        recorder.step()
    clock.now = 30
    recorder.stop()
    assert recorder.divide() == ([5, 15, 5], {"other/loop": 25})


def test_nothing_is_recorded_outside_of_steps(clock: SetClock) -> None:
    recorder = Recorder(clock)
    for clock.now in (10, 30):
        with recorder.span("loss"):
            clock.now += 3
        recorder.step()
        clock.now += 7
        recorder.stop()
        with recorder.span("loss"):
            clock.now += 4
    assert recorder.divide() == ([7, 7], {"other/loop": 14})


def test_a_span_s_own_time_is_without_what_is_in_it(clock: SetClock) -> None:
    recorder = Recorder(clock)
    recorder.step()
    clock.now = 10
    with recorder.span("updates"):
        clock.now = 15
        with recorder.span("aggregation/physical"):
            clock.now = 25
        with recorder.span("aggregation/genetic"), recorder.span("aggregation/genetic"):
            clock.now = 28
        clock.now = 40
    with recorder.span("optimiser"):
        clock.now = 90
    clock.now = 100
    recorder.stop()
    own = {"updates": 17, "aggregation/physical": 10, "aggregation/genetic": 3, "optimiser": 50, "other/loop": 20}
    assert recorder.divide() == ([100], own)


def test_nothing_is_told_apart_in_gradients_but_waiting(clock: SetClock) -> None:
    recorder = Recorder(clock)
    recorder.step()
    with recorder.span("backward"), recorder.span("pooling"):
        clock.now = 5
        recorder.open("communication")
        with recorder.span("updates"):
            clock.now = 8
    clock.now = 9
    recorder.stop()
    # What is still open in a span ends with it.
    assert recorder.divide() == ([9], {"backward": 5, "communication": 3, "other/loop": 1})


@pytest.mark.parametrize(("name", "own"), [("pooling", {"updates": 7}), ("communication", {"communication": 7})])
def test_other_threads_are_part_of_what_their_caller_waits_in(clock: SetClock, name: str, own: dict[str, int]) -> None:
    recorder = Recorder(clock)

    def work() -> None:
        with recorder.span(name):
            clock.now = 7

    recorder.step()
    with recorder.span("updates"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    recorder.stop()
    steps, times = recorder.divide()
    assert steps == [7]
    assert +Counter(times) == own


def test_a_span_ends_with_an_exception(clock: SetClock) -> None:
    recorder = Recorder(clock)
    recorder.step()
    with pytest.raises(KeyError), recorder.span("loss"):
        clock.now = 3
        raise KeyError
    clock.now = 4
    recorder.stop()
    assert recorder.divide() == ([4], {"loss": 3, "other/loop": 1})


NAMES = st.sampled_from(["data", "updates", "aggregation/physical", "backward", "communication", "loss"])
# What begins, if anything, how long nothing else happens, and how many spans end then.
MOVES = st.lists(st.tuples(st.one_of(st.none(), NAMES), st.integers(0, 9), st.integers(0, 3)), max_size=40)


@settings(max_examples=200)
@given(MOVES)
def test_every_moment_belongs_to_the_innermost_component(moves: list[tuple[str | None, int, int]]) -> None:
    clock, expected, around = SetClock(), Counter[str](), ["other/loop"]
    recorder = Recorder(clock)
    recorder.step()
    spans = []
    for name, length, ends in moves:
        if name is not None:
            spans.append(recorder.open(name))
            around.append(name if name == "communication" or around[-1] not in LEAVES else around[-1])
        clock.now += length
        expected[around[-1]] += length
        for _ in range(min(ends, len(spans))):
            recorder.close(spans.pop())
            around.pop()
    recorder.stop()
    steps, times = recorder.divide()
    assert steps == [clock.now]
    assert +Counter(times) == +expected


def test_the_clock_of_the_host_goes_forwards() -> None:
    recorder = Recorder(HostClock())
    recorder.step()
    with recorder.span("loss"):
        torch.ones(100, 100) @ torch.ones(100, 100)
    recorder.stop()
    (step,), times = recorder.divide()
    assert step == sum(times.values())
    assert min(times.values()) > 0


def test_a_function_opens_a_span_named_after_its_arguments(clock: SetClock) -> None:
    recorder = Recorder(clock)

    def work(edges: SimpleNamespace, *, until: int) -> str:
        clock.now = until
        return "done"

    name: Callable[..., str] = lambda edges, **_: f"aggregation/{edges.relation}"  # noqa: E731
    recorder.step()
    assert spanned(work, name, recorder)(SimpleNamespace(relation="physical"), until=4) == "done"
    recorder.stop()
    assert recorder.divide()[1] == {"aggregation/physical": 4, "other/loop": 0}


def test_what_is_compiled_is_compiled_as_without_spans(clock: SetClock) -> None:
    recorder = Recorder(clock)
    gate = spanned(lambda x: x * 2, "pooling", recorder)
    recorder.step()
    # `fullgraph` refuses whatever the compiler cannot see through, as a recorder would be.
    compiled = torch.compile(lambda x: gate(x) + 1, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
    assert gate(torch.ones(3)).sum() == 6
    recorder.stop()
    # Called as it is, it opens one.
    assert set(recorder.divide()[1]) == {"pooling", "other/loop"}
