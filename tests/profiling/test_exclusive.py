"""Exclusive times of known traces, and of any nesting."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.errors import DataError
from dglcell.profiling.account import Event, account, read_trace, write_trace
from dglcell.profiling.spans import Span

MAIN = ("0", "0")


def event(name: str, start: float, duration: float, thread: int = 0, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": start, "dur": duration, "pid": 0, "tid": thread, **more}


# One step of 100 µs as PyTorch writes it, with everything that is counted twice or wrongly by adding up durations.
KNOWN = [
    {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
    event("before", 900, 50),
    event("ProfilerStep#7", 1000, 100, cat="user_annotation"),
    event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1000, 10),
    event("aten::index", 1002, 6),
    event("forward", 1010, 30),
    event("aggregation/physical", 1015, 10),
    event("aten::mm", 1016, 8),
    event("aten::dot", 1017, 3),
    event("Optimizer.step#AdamW.step", 1080, 15),
    event("aten::add_", 1082, 5),
    # The backward pass runs in a thread of its own, for which the first one waits.
    event("autograd::engine::evaluate_function: MmBackward0", 1040, 40, thread=1),
    event("aten::mm", 1050, 20, thread=1),
    # The same step as the GPU's row shows it.
    event("ProfilerStep#7", 1000, 400, thread=7, cat="gpu_user_annotation"),
    event("gemm", 1020, 300, thread=7, cat="kernel"),
]


@pytest.fixture(params=["plain", "list", "gz"])
def known(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / ("trace.json.gz" if request.param == "gz" else "trace.json")
    content = json.dumps(KNOWN if request.param == "list" else {"traceEvents": KNOWN})
    path.write_bytes(gzip.compress(content.encode()) if request.param == "gz" else content.encode())
    return path


def test_a_known_trace_is_divided_as_by_hand(known: Path) -> None:
    accounting = account(read_trace(known))
    assert accounting.steps == (100_000,)
    # The step itself is neither the optimiser nor counted beside what is in it; operators belong to what they are in.
    assert accounting.times == {
        "data": 10_000,
        "aggregation/physical": 10_000,
        "optimiser": 15_000,
        "other/loop": 65_000,
    }


def test_a_trace_of_pytorch_is_divided(tmp_path: Path) -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=3),
        acc_events=True,
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(tmp_path / "torch.json")),
    ) as profiler:
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
            profiler.step()
    accounting = account(read_trace(tmp_path / "torch.json"))
    assert len(accounting.steps) == 3
    assert sum(accounting.times.values()) == accounting.wall
    assert {"optimiser", "backward", "other/loop"} == {name for name, time in accounting.times.items() if time}
    assert accounting.times["optimiser"] < accounting.wall


def test_times_of_other_threads_cost_their_caller_nothing_but_its_waiting() -> None:
    mine = [Event("step", MAIN, 0, 100), Event("backward", MAIN, 20, 70)]
    theirs = [Event("pooling", ("0", str(n)), 0, 100) for n in range(1, 5)]
    assert account(mine + theirs).times == account(mine).times == {"backward": 50, "other/loop": 50}


def test_a_child_that_seems_to_outlast_its_parent_is_cut() -> None:
    events = [Event("step", MAIN, 0, 100), Event("loss", MAIN, 10, 50), Event("pooling", MAIN, 40, 53)]
    assert account(events).times == {"loss": 30, "pooling": 10, "other/loop": 60}


def test_a_span_of_the_same_component_is_counted_once() -> None:
    events = [Event("step", MAIN, 0, 100), Event("heads", MAIN, 0, 50), Event("heads", MAIN, 0, 50)]
    assert account(events).times == {"heads": 50, "other/loop": 50}


NAMES = st.sampled_from(["data", "updates", "aggregation/physical", "aten::mm", "ProfilerStep#3", "loss"])


@st.composite
def nested(draw: st.DrawFn, start: int = 0, end: int = 1000, depth: int = 0) -> list[Event]:
    """Events that nest as calls do, in a range of time."""
    events: list[Event] = []
    cuts = sorted(draw(st.lists(st.integers(start, end), max_size=6 if depth < 3 else 0)))
    for low, high in zip(cuts[::2], cuts[1::2], strict=False):
        events.append(Event(draw(NAMES), MAIN, low, high))
        events += draw(nested(low, high, depth + 1))
    return events


@settings(max_examples=60)
@given(nested(), st.randoms())
def test_every_moment_belongs_to_the_innermost_component(events: list[Event], random: Any) -> None:
    # The reference looks at every nanosecond, and at all events around it.
    expected: Counter[str] = Counter()
    order = {id(e): i for i, e in enumerate(events)}
    component = {"aten::mm": None, "ProfilerStep#3": None}
    for moment in range(1000):
        around = [e for e in events if e.start <= moment < e.end]
        names = [component.get(e.name, e.name) for e in sorted(around, key=lambda e: order[id(e)])]
        expected[next((name for name in reversed(names) if name), "other/loop")] += 1
    step = Event("step", MAIN, 0, 1000)
    found = account([step, *events])
    assert sum(found.times.values()) == found.wall == 1000
    assert {name: time for name, time in found.times.items() if time} == dict(expected)


def test_a_trace_that_is_written_reads_back_to_the_nanosecond(tmp_path: Path) -> None:
    path, origin = tmp_path / "trace.json.gz", 10**15
    spans = [Span("loss", origin + 3, origin + 12_345_679), Span("step", origin, origin + 987_654_321_001)]
    write_trace(path, spans, {"mode": "full"})
    assert read_trace(path) == [Event("step", MAIN, 0, 987_654_321_001), Event("loss", MAIN, 3, 12_345_679)]
    content = json.loads(gzip.decompress(path.read_bytes()))
    assert content["otherData"] == {"mode": "full"}
    assert {"name", "cat", "ph", "ts", "dur", "pid", "tid"} == set(content["traceEvents"][0])


def test_a_trace_without_steps_is_refused() -> None:
    with pytest.raises(DataError, match=r"the trace has no steps\n  expected: events named `step`"):
        account([Event("loss", MAIN, 0, 5)])


@pytest.mark.parametrize("content", [b"{", b"[1]", b'{"a": 1}', b"\xff\xfe", b"3", b'[{"ph": "X"}]'])
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, content: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=r"trace\.json(\.gz)?' is no trace\n  got: .*\n  expected: JSON with"):
        read_trace(tmp_path / name)
