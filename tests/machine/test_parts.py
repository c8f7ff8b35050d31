"""Parts of a step are seen by a profiler, and cost nothing without."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import profile

from dglcell.machine.parts import Part


@Part("pooling")
def pooled(depth: int) -> int:
    return depth and predicted(depth)


@Part("heads")
def predicted(depth: int) -> int:
    return pooled(depth - 1)


def test_a_profiler_sees_blocks_and_calls() -> None:
    with profile() as profiler:
        with Part("loss"):
            pass
        with pytest.raises(KeyError), Part("data"):
            raise KeyError
        pooled(1)
    events = sorted(
        (event for event in profiler.events() if event.is_user_annotation), key=lambda e: e.time_range.start
    )
    assert [event.name for event in events] == ["loss", "data", "pooling", "heads", "pooling"]
    # Each call has a range of its own, in that of its caller.
    assert events[2].time_range.end >= events[3].time_range.end >= events[4].time_range.end


def test_a_profiler_may_begin_and_end_within_a_part() -> None:
    with Part("loss"), profile() as profiler:
        inner = Part("heads").__enter__()
    inner.__exit__()
    assert {event.name for event in profiler.events()} <= {"heads"}


def test_without_a_profiler_no_range_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dglcell.machine.parts.record_function", None)
    assert pooled(2) == 0


def test_compiled_code_is_one_graph_with_and_without_a_profiler() -> None:
    @Part("pooling")
    def gate(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    # `fullgraph` refuses whatever the compiler cannot see through, as a profiler's range would be.
    compiled = torch.compile(lambda x: gate(x) + 1, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
    with profile() as profiler:
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
        gate(torch.ones(3))
    assert [event.name for event in profiler.events()].count("pooling") == 1
