"""Spans: nested, on one thread, inside of steps."""

from __future__ import annotations

import threading

import pytest

from dglcell.profiling.spans import Recorder, Span
from tests.profiling.set_clock import SetClock


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def test_steps_follow_each_other_without_a_gap(clock: SetClock) -> None:
    recorder = Recorder(clock)
    for clock.now in (0, 10, 25):
        recorder.step()
    clock.now = 30
    recorder.stop()
    assert recorder.spans() == [Span("step", 0, 10), Span("step", 10, 25), Span("step", 25, 30)]


def test_nothing_is_recorded_outside_of_steps(clock: SetClock) -> None:
    recorder = Recorder(clock)
    with recorder.span("loss"):
        pass
    recorder.step()
    recorder.stop()
    with recorder.span("loss"):
        pass
    assert [span.name for span in recorder.spans()] == ["step"]


def test_what_was_recorded_is_forgotten(clock: SetClock) -> None:
    recorder = Recorder(clock)
    recorder.step()
    with recorder.span("loss"):
        recorder.forget()
    assert recorder.spans() == []


def test_nothing_begins_in_a_leaf_but_what_may_begin_anywhere(clock: SetClock) -> None:
    recorder = Recorder(clock)
    recorder.step()
    with recorder.span("backward", leaf=True), recorder.span("pooling"):
        clock.now = 5
        recorder.open("communication", anywhere=True)
        clock.now = 8
    recorder.stop()
    # What is still open in a span ends with it.
    assert set(recorder.spans()) == {Span("backward", 0, 8), Span("communication", 5, 8), Span("step", 0, 8)}


def test_other_threads_are_part_of_what_their_caller_waits_in(clock: SetClock) -> None:
    recorder = Recorder(clock)

    def work() -> None:
        with recorder.span("pooling"):
            clock.now = 7

    recorder.step()
    with recorder.span("updates"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    recorder.stop()
    assert set(recorder.spans()) == {Span("updates", 0, 7), Span("step", 0, 7)}


def test_a_span_ends_with_an_exception(clock: SetClock) -> None:
    recorder = Recorder(clock)
    recorder.step()
    with pytest.raises(KeyError), recorder.span("loss"):
        clock.now = 3
        raise KeyError
    clock.now = 4
    recorder.stop()
    assert set(recorder.spans()) == {Span("loss", 0, 3), Span("step", 0, 4)}
