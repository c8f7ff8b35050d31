"""The batch of predictions: what fits into memory by trials of a few strains, and what never changes by it."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from dglcell.cli import main
from dglcell.machine.devices import Peak
from dglcell.runs.directory import RunDirectory
from dglcell.training import batch_trials
from dglcell.training.batch_trials import MOST, fitting_batch, measure
from dglcell.training.evaluate import evaluate_run

CPU = torch.device("cpu")
MIB = 2**20
NEVER = 10**9


class Work:
    """Takes so many MiB for each strain.

    Args:
        mib: of a strain.
        memory: strains for which there is not enough.
    """

    taken = 0
    """Bytes of the last work."""

    def __init__(self, mib: int, memory: int) -> None:
        self.mib, self.memory, self.tried = mib, memory, list[int]()

    def __call__(self, number: int) -> None:
        if number >= self.memory:
            raise MemoryError
        if number not in self.tried:
            self.tried.append(number)
        Work.taken = number * self.mib * MIB


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Pretends that so many bytes are free, and that works take what they say.

    The resident set of the tests' own process rises for other reasons as well, and by how much depends on the machine.
    """

    @contextlib.contextmanager
    def said(device: str, *, collect: bool) -> Iterator[Peak]:
        peak = Peak()
        yield peak
        peak.bytes = Work.taken

    def free(room: int | None) -> None:
        monkeypatch.setattr(batch_trials, "available", lambda device: room)
        monkeypatch.setattr(batch_trials, "measured_memory", said)

    return free


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_trial_measures_no_less_than_the_work_took() -> None:
    trial = measure(lambda number: torch.ones(number * 32 * MIB // 4), CPU, 4)
    assert trial is not None
    assert trial.bytes is not None
    assert trial.bytes > 0.9 * 128 * MIB


FITTING = {
    # The free MiB, the strains, how many are wanted, those for which there is not enough; what is chosen and tried.
    "its share of memory": (300, 1000, MOST, NEVER, 32, [2, 4, 8]),  # 0.6 of the room, 4 MiB a strain
    "half of it": (150, 1000, MOST, NEVER, 16, [2, 4, 8]),
    "little": (20, 1000, MOST, NEVER, 2, [2]),
    "nothing": (1, 1000, MOST, NEVER, 1, [2]),
    "no more are tried than would fit": (38, 1000, MOST, NEVER, 4, [2, 4]),
    "where there is plenty two strains say so": (2**20, 1000, MOST, NEVER, MOST, [2]),
    "of 45 that fit a power of two": (300, 1000, 60, NEVER, 32, [2, 4, 8]),
    "what is wanted need not be one": (300, 1000, 40, NEVER, 40, [2, 4, 8]),
    "at most an eighth of 15 strains is tried": (1200, 15, MOST, NEVER, MOST, []),
    "of 16": (1200, 16, MOST, NEVER, 128, [2]),
    "of 63": (1200, 63, MOST, NEVER, 128, [2, 4]),
    "of 64": (1200, 64, MOST, NEVER, 128, [2, 4, 8]),
    "memory runs out for 2": (1200, 1000, MOST, 2, 1, []),
    "memory runs out for 4": (1200, 1000, MOST, 4, 2, [2]),
    "memory runs out for 8": (1200, 1000, MOST, 8, 4, [2, 4]),
    "unknown memory limits nothing": (None, 1000, MOST, NEVER, MOST, [2]),
}


@pytest.mark.parametrize(("room", "strains", "most", "memory", "expected", "tried"), FITTING.values(), ids=FITTING)
def test_batches_are_as_large_as_memory_allows(
    machine: Callable[[int | None], None],
    room: int | None,
    strains: int,
    most: int,
    memory: int,
    expected: int,
    tried: list[int],
) -> None:
    machine(room and room * MIB)
    work = Work(4, memory)
    assert (fitting_batch(work, CPU, strains, most), work.tried) == (expected, tried)


def test_processes_share_what_is_free(machine: Callable[[int | None], None], monkeypatch: pytest.MonkeyPatch) -> None:
    machine(300 * MIB)
    for name, value in {"RANK": 0, "WORLD_SIZE": 4, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 4}.items():
        monkeypatch.setenv(name, str(value))
    assert fitting_batch(Work(4, NEVER), CPU, 1000) == 8


def test_other_errors_are_not_hidden(machine: Callable[[int | None], None]) -> None:
    machine(1200 * MIB)
    with pytest.raises(RuntimeError, match="shapes"):
        fitting_batch(lambda number: torch.ones(2, 3) @ torch.ones(2, 3), CPU, 1000)


@pytest.mark.parametrize("of", ["table", "design"])
def test_predictions_in_smaller_batches_are_the_same(
    of: str,
    tiny_run: RunDirectory,
    tmp_path: Path,
    machine: Callable[[int | None], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="dglcell")
    if of == "table":
        genes = [row["genes"] for row in csv.DictReader(tiny_run.predictions("test").open())]
        (tmp_path / "in.csv").write_text("\n".join(["genes", *genes]))
        arguments = ["predict", str(tiny_run.path), str(tmp_path / "in.csv")]
    else:
        arguments = ["predict", str(tiny_run.path), "--all-pairs", "--limit", "40"]

    def predict(name: str, *options: str) -> np.ndarray:
        caplog.clear()
        assert main([*arguments, "-o", str(tmp_path / name), *options]) == 0
        return pq.read_table(tmp_path / name)["predicted_fitness"].to_numpy()

    expected = predict("plenty.parquet")
    assert "batches of" not in caplog.text
    machine(-1)
    found = predict("short.parquet")
    assert "batches of 1 strain in place of 256: more may not fit into memory" in caplog.text
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    found = predict("asked.parquet", "--batch-size", "256")
    assert "batches of" not in caplog.text
    assert found.tolist() == expected.tolist()


def test_a_run_is_evaluated_on_a_machine_with_less_memory(
    tiny_run: RunDirectory, machine: Callable[[int | None], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="dglcell")
    expected = evaluate_run(tiny_run.path)[0].metrics
    assert "batches of" not in caplog.text
    machine(-1)
    found = evaluate_run(tiny_run.path)[0].metrics
    assert "batches of 1 strain in place of 64" in caplog.text
    assert found == pytest.approx(expected, rel=1e-3)
