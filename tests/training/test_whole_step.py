"""Steps as one piece: what Lightning does step by step, bit for bit; and when a recorded step may be used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import GradientAccumulationScheduler
from torch import Tensor

from dglcell.data.columns import PHENOTYPE, Column
from dglcell.data.strains import Strains
from dglcell.runs.directory import RunDirectory
from dglcell.training import whole_step
from dglcell.training.fit import fit, make_callbacks, make_task, make_trainer
from dglcell.training.prepare import prepare
from dglcell.training.run import set_up_process
from dglcell.training.signals import StopSignals
from dglcell.training.whole_step import Replay, WholeStep, Work, fits
from tests.tiny import BARE, Tiny, history


def record(work: Work, batch: Strains) -> Replay:
    """Return what a CUDA graph does, on a CPU: the same work on the same tensors; nothing derived from them is kept."""
    return lambda: work(batch.map(lambda tensor: tensor))


def plainly(work: Work, batch: Strains) -> Sequence[Tensor]:
    return work(batch)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_step, "WORTH", 2)
    monkeypatch.setattr(whole_step, "ASIDE", 1)


def trained(tiny: Tiny, folder: Path, *, whole: bool) -> tuple[dict[str, Tensor], RunDirectory]:
    """Return weights after two epochs, and where the record is."""
    config = tiny.config(folder, *BARE, "data.batch_size=20", "model.dropout=0.1")
    directory, signals = RunDirectory(config.run_directory), StopSignals(False)
    directory.checkpoints.mkdir(parents=True)
    set_up_process(config)
    prepared = prepare(config, command="test")
    trainer = make_trainer(config, directory, make_callbacks(config, directory, prepared.dataset.kinds, signals))
    task = make_task(config, prepared, directory)
    if whole:
        task.whole_step = WholeStep(task._whole, record, plainly)
    fit(config, trainer, prepared, task, directory, None, signals)
    assert not whole or task.whole_step._recorded
    return task.state_dict(), directory


def test_whole_steps_are_lightnings_bit_for_bit(tiny: Tiny, tmp_path: Path) -> None:
    (expected, plain), (found, whole) = (trained(tiny, tmp_path / str(w), whole=w) for w in (False, True))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert history(whole) == history(plain)
    last = [torch.load(directory.last, weights_only=True) for directory in (plain, whole)]
    assert last[0]["loops"] == last[1]["loops"]


def batch_of(strains: int, first: float) -> Strains:
    labels = {Column(PHENOTYPE, "y"): np.arange(strains, dtype=np.float32) + np.float32(first)}
    genes = np.arange(strains, dtype=np.int32)[:, None]
    return Strains.from_matrix([f"g{i}" for i in range(9)], genes, columns=labels, units={"y": ""}).to("cpu")


def test_a_step_is_recorded_when_enough_of_its_kind_were_done() -> None:
    did: list[str] = []

    def work(batch: Strains) -> list[Tensor]:
        did.append("work")
        return [batch.labels]

    def recorded(work: Work, batch: Strains) -> Replay:
        did.append("record")
        return lambda: (did.append("replay"), [batch.labels])[1]

    whole = WholeStep(work, recorded, plainly)

    def step(strains: int, first: float, key: int) -> str:
        did.clear()
        batch = batch_of(strains, first)
        assert torch.equal(whole(batch, key)[0], batch.labels)
        return " ".join(did)

    assert [step(4, float(i), 0) for i in range(4)] == ["work", "work", "record replay", "replay"]
    assert step(3, 9.0, 0) == "work", "a last, shorter batch is done as ever"
    assert step(4, 10.0, 0) == "replay", "and does not undo the recording"
    assert [step(4, float(i), 1) for i in range(3)] == ["work", "work", "record replay"], "another key"


def test_results_of_a_replay_are_kept() -> None:
    whole = WholeStep(lambda batch: [batch.labels], record, plainly)
    results = [whole(batch_of(4, float(number)), 0)[0] for number in range(6)]
    assert [float(result[0, 0]) for result in results] == [float(number) for number in range(6)]


def test_steps_that_cannot_be_recorded_are_done_as_ever() -> None:
    def fails(work: Work, batch: Strains) -> Replay:
        raise RuntimeError("operation not permitted when stream is capturing")

    whole = WholeStep(lambda batch: [batch.labels + 1], fails, plainly)
    assert [float(whole(batch_of(2, float(i)), 0)[0][0, 0]) for i in range(5)] == [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("settings", "right"),
    [
        ({}, True),
        ({"precision": "64-true"}, True),
        ({"precision": "bf16-mixed"}, False),
        ({"accumulate_grad_batches": 2}, False),
        ({"callbacks": [GradientAccumulationScheduler({3: 2})]}, False),  # it accumulates later
    ],
    ids=["plain", "double", "mixed", "accumulating", "accumulating later"],
)
def test_steps_that_are_not_alike_are_no_whole(settings: dict[str, Any], right: bool) -> None:
    assert fits(pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, **settings)) == right
