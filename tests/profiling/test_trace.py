"""Every moment of a step belongs to the innermost part of its trace, and a GPU's work to the part that launched it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dglcell.profiling.trace import Traced, read_trace

MAIN, OTHER = 1, 2


def range_of(name: str, start: float, end: float, *, thread: int = MAIN) -> dict[str, Any]:
    """As ``record_function`` leaves it in a trace."""
    return {"ph": "X", "cat": "user_annotation", "name": name, "tid": thread, "ts": start, "dur": end - start}


def of_gpu(category: str, name: str, start: float, end: float, correlation: int, **arguments: object) -> dict[str, Any]:
    found = range_of(name, start, end, thread=OTHER)
    return found | {"cat": category, "args": {"correlation": correlation, **arguments}}


def divided(folder: Path, *events: dict[str, Any], seconds: float = 1.0) -> Traced:
    """Of a trace with these events, and one of another kind."""
    with gzip.open(folder / "trace.json.gz", "wt") as file:
        json.dump({"traceEvents": [{"ph": "M", "name": "process_name"}, *events]}, file)
    return read_trace(folder / "trace.json.gz", seconds)


STEP = range_of("step", 0, 100)


@pytest.mark.parametrize(
    ("ranges", "times"),
    [
        ([], {"other": 100}),
        ([("loss", 10, 30)], {"loss": 20, "other": 80}),
        # The time of a part is without what is told apart in it.
        (
            [("updates", 10, 40), ("aggregation/physical", 15, 25), ("aggregation/genetic", 25, 28), ("loss", 40, 50)],
            {"updates": 17, "aggregation/physical": 10, "aggregation/genetic": 3, "loss": 10, "other": 60},
        ),
        ([("optimiser", 0, 100), ("other", 5, 60), ("heads", 5, 20)], {"optimiser": 45, "other": 40, "heads": 15}),
        # Nothing is told apart in gradients but waiting, which lasts as long as they do.
        (
            [("backward", 10, 90), ("updates", 20, 30), ("communication", 50, 51), ("updates", 60, 61)],
            {"backward": 40, "communication": 40, "other": 20},
        ),
        ([("loss", 10, 30), ("communication", 15, 25)], {"loss": 10, "communication": 10, "other": 80}),
        # What is no part, and what is before the first step, is nothing of its own.
        ([("loss", -30, -10), ("Optimizer.step#AdamW.step", 10, 30)], {"other": 100}),
    ],
)
def test_every_moment_belongs_to_the_innermost_part(
    tmp_path: Path, ranges: list[tuple[str, float, float]], times: dict[str, float]
) -> None:
    # Ranges are in no order.
    found = divided(tmp_path, *reversed([range_of(*one) for one in ranges]), STEP)
    assert {name: share for name, share in found.shares.items() if share} == pytest.approx(
        {name: time / 100 for name, time in times.items()}
    )
    assert (found.bytes_to_device, found.synchronisations) == (0, None)


def test_steps_add_up_and_what_lies_between_them_is_nobody_s(tmp_path: Path) -> None:
    events = [STEP, range_of("step", 150, 250), range_of("loss", 90, 100), range_of("loss", 150, 200)]
    assert divided(tmp_path, *events).shares == pytest.approx({"loss": 0.3, "other": 0.7})


def test_other_threads_are_part_of_what_the_steps_wait_in(tmp_path: Path) -> None:
    backward = range_of("backward", 10, 90)
    there = [range_of("updates", 20, 30, thread=OTHER), range_of("communication", 60, 61, thread=OTHER)]
    found = divided(tmp_path, STEP, backward, *there, range_of("heads", 0, 10, thread=OTHER))
    assert found.shares == pytest.approx({"backward": 0.5, "communication": 0.3, "other": 0.2})


def test_a_gpu_works_for_the_part_that_launched_its_work(tmp_path: Path) -> None:
    events = [
        STEP,
        range_of("heads", 10, 20),
        range_of("backward", 30, 40),
        of_gpu("cuda_runtime", "cudaLaunchKernel", 12, 13, 1),
        of_gpu("cuda_runtime", "cudaMemcpyAsync", 25, 26, 2),
        of_gpu("cuda_runtime", "cudaStreamSynchronize", 26, 29, 3),
        of_gpu("cuda_driver", "cuLaunchKernel", 35, 36, 4),  # of another thread
        of_gpu("cuda_runtime", "cudaDeviceSynchronize", 120, 130, 5),
        of_gpu("kernel", "gemm", 60, 70, 1, stream=7),
        of_gpu("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 70, 72, 2, bytes=480),
        of_gpu("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 72, 73, 4, bytes=9),
        of_gpu("kernel", "sum", 73, 90, 4),
        of_gpu("kernel", "of what is before", 0, 10, 99),
    ]
    # The device had nothing to do for 10 of 40 µs that a step takes where nobody looks.
    assert divided(tmp_path, *events, seconds=40e-6) == Traced(
        pytest.approx({"heads": 10 / 40, "other": 12 / 40, "backward": 18 / 40}),  # type: ignore[arg-type]
        bytes_to_device=480,
        synchronisations=1,
    )
    # It was never idle.
    assert divided(tmp_path, *events, seconds=1e-6).shares == pytest.approx(
        {"heads": 10 / 30, "other": 2 / 30, "backward": 18 / 30}
    )
