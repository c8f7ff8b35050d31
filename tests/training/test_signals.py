"""Which process this is, and how it is told to stop."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from dglcell.config.experiment import TrainerConfig
from dglcell.data.datamodule import StrainNumbers
from dglcell.errors import ConfigError, DataError, StoppedError
from dglcell.runs import RunDirectory
from dglcell.training.callbacks import Preemption, collect_rows, leave_group
from dglcell.training.fit import make_data, make_task
from dglcell.training.prepare import prepare
from dglcell.training.run import check_allocation
from dglcell.training.signals import RANK_VARIABLES, SIGNALS, StopSignals, is_rank_zero, requeue_job, wait_for
from tests.tiny import Tiny


@pytest.mark.parametrize(
    ("environment", "first"),
    [
        ({}, True),
        ({"SLURM_PROCID": "0"}, True),
        ({"SLURM_PROCID": "3"}, False),
        ({"RANK": "0", "LOCAL_RANK": "0"}, True),
        ({"RANK": "4", "LOCAL_RANK": "0"}, False),
        ({"LOCAL_RANK": "1"}, False),
        ({"NODE_RANK": "1", "LOCAL_RANK": "0"}, False),
    ],
)
def test_launchers_say_who_is_first(environment: dict[str, str], first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in RANK_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert is_rank_zero() == first


def test_others_wait_until_the_path_is_there_and_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr("time.sleep", lambda seconds: (naps.append(seconds), (tmp_path / "store").mkdir()))
    wait_for(tmp_path / "store", 60)
    assert len(naps) == 1
    with pytest.raises(DataError, match=r"first process has not made '.*other' within `trainer.timeout`\n.*after -1 s"):
        wait_for(tmp_path / "other", -1)


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """Ctrl-C does what it does in a terminal: a shell that starts these tests in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", SIGNALS)
def test_working_alone_a_signal_ends_the_run_at_once(number: signal.Signals) -> None:
    before = [signal.getsignal(other) for other in SIGNALS]
    with pytest.raises(StoppedError) as stop, StopSignals(requeue=False):
        try:
            signal.raise_signal(number)
        except Exception:
            pytest.fail("was swallowed")
    assert stop.value.signal == number
    assert stop.value.requeued is False
    assert [signal.getsignal(other) for other in SIGNALS] == before


def test_working_together_it_is_noted_and_taken_afterwards() -> None:
    reached = []
    with pytest.raises(StoppedError) as stop, StopSignals(requeue=False) as signals:
        with signals.noted():
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGTERM)
            reached.append(signals.number)
        reached.append("afterwards")
    assert reached == [signal.SIGUSR1]
    assert stop.value.signal == signal.SIGUSR1


def test_an_interrupt_says_how_to_end_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoppedError), StopSignals() as signals, signals.noted():
        assert signal.getsignal(signal.SIGINT) != signal.SIG_DFL
        signal.raise_signal(signal.SIGINT)
        # The next one is left to the system.
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    assert signals.number == signal.SIGINT
    said = "told to stop: what is done is being saved; press Ctrl-C again to end at once"
    assert capfd.readouterr().err.strip().splitlines()[0] == said
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with StopSignals() as signals:
        signal.raise_signal(signal.SIGINT)
        assert signals.number == 0
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_an_interrupt_is_no_reason_to_start_the_job_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fake_scontrol(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for number, requeued in ((signal.SIGINT, False), (signal.SIGTERM, True)):
        with pytest.raises(StoppedError) as stop, StopSignals():
            signal.raise_signal(number)
        assert stop.value.requeued == requeued == asked.exists()


def test_other_ranks_follow_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    with StopSignals(requeue=True) as signals:
        signal.raise_signal(signal.SIGTERM)
        with signals.noted():
            pass
        assert signals.number == signal.SIGTERM
        assert not signals.ask(signal.SIGTERM)


def test_a_forked_worker_can_still_be_ended() -> None:
    context = multiprocessing.get_context("fork")
    with StopSignals(requeue=False) as signals:
        runs = context.Event()
        worker = context.Process(target=lambda: (runs.set(), time.sleep(6000)))
        worker.start()
        assert runs.wait(600)
        worker.terminate()
        worker.join(600)
        assert worker.exitcode == -signal.SIGTERM
    assert signals.number == 0


@pytest.mark.parametrize(
    ("variables", "state", "job"),
    [
        ({"SLURM_JOB_ID": "7"}, "RUNNING", "7"),
        ({"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}, "RUNNING", "7_2"),
        ({"SLURM_JOB_ID": "7"}, "CANCELLED", None),
        ({"SLURM_JOB_ID": "7"}, "RUNNING Requeue=1 Restarts=0", "7"),
        ({"SLURM_JOB_ID": "7"}, "RUNNING Requeue=1 Restarts=1", None),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}, "RUNNING Requeue=1 Restarts=1", "7"),
        ({}, "RUNNING", None),
    ],
)
def test_slurm_is_asked_for_the_job_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], state: str, job: str | None
) -> None:
    asked = fake_scontrol(tmp_path, state)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert requeue_job(variables) == (job is not None)
    assert (asked.read_text() if asked.exists() else None) == (f"{job}\n" if job else None)


def fake_scontrol(folder: Path, state: str = "RUNNING") -> Path:
    """Write a program in place of SLURM's, and return the file that it writes the requeued jobs to."""
    asked = folder / "requeued"
    program = folder / "scontrol"
    program.write_text(f'#!/bin/sh\n[ "$1" = show ] && echo JobState={state}\n[ "$1" = show ] || echo $2 >> {asked}\n')
    program.chmod(0o755)
    return asked


class Careless:
    """Is told to stop where Python ignores exceptions."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_comes_in_a_destructor_is_not_lost(number: signal.Signals) -> None:
    with pytest.raises(StoppedError) as stopped, StopSignals(requeue=False):
        careless = Careless(number)
        del careless
        time.sleep(60)
    assert stopped.value.signal == number


def test_a_signal_that_something_has_swallowed_ends_what_begins_next() -> None:
    with pytest.raises(StoppedError), StopSignals(requeue=False) as stop:
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGUSR1)
        with stop.noted():
            pytest.fail("goes on")


STEP = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "one", "SLURM_STEP_NUM_TASKS": "4"}


ONE = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "one", "SLURM_NNODES": "1"}
ALLOCATIONS: list[tuple[dict[str, Any], dict[str, str], str | None]] = [
    ({"devices": 2, "num_nodes": 2}, STEP | {"SLURM_NNODES": "2", "SLURM_NTASKS": "4"}, None),
    ({}, ONE | {"SLURM_NTASKS": "1"}, None),
    ({"devices": 8}, {}, None),
    ({"devices": 8}, ONE | {"SLURM_JOB_NAME": "interactive", "SLURM_NTASKS": "1"}, None),
    ({"devices": 2, "num_nodes": 2}, STEP | {"SLURM_NNODES": "1", "SLURM_NTASKS": "4"}, "4 tasks on 1 nodes"),
    ({"devices": 2, "num_nodes": 2}, STEP | {"SLURM_NNODES": "2", "SLURM_NTASKS": "1"}, "1 tasks on 2 nodes"),
    ({"devices": 2}, ONE | {"SLURM_NTASKS": "2"}, "starts one process where the experiment needs several"),
    ({"devices": 64}, STEP | ONE | {"SLURM_NTASKS": "64", "SLURM_GPUS_ON_NODE": "64"}, "64 GPUs on this node"),
    ({"devices": 64, "accelerator": "gpu"}, STEP | ONE | {"SLURM_NTASKS": "64"}, "0 GPUs on this node"),
    ({"devices": 64, "accelerator": "cpu"}, STEP | ONE | {"SLURM_NTASKS": "64", "SLURM_GPUS_ON_NODE": "64"}, None),
]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_of_several_batches_the_first_bad_one_is_named(value: float, tmp_path: Path) -> None:
    watch = Preemption(RunDirectory(tmp_path), StopSignals(), None, timedelta(seconds=1))
    for i, loss in enumerate((1.0, 2.0, value, math.nan, 1.0)):
        watch._losses.append((torch.tensor(loss), torch.arange(3) + 10 * i, i // 2 + 1, i + 1))
    for _ in range(2):
        found = watch._bad_batch()
        assert found is not None
        assert (found[0], found[1], str(found[2]), found[3]) == (3, 2, str(value), [20, 21, 22])
    del watch._losses[2:]
    assert (watch._bad_batch(), watch._losses) == (None, [])


@pytest.mark.parametrize(("keys", "environment", "said"), ALLOCATIONS)
def test_a_job_has_the_processes_and_gpus_of_its_experiment(
    keys: dict[str, Any], environment: dict[str, str], said: str | None
) -> None:
    if said is None:
        check_allocation(TrainerConfig(**keys), environment)
        return
    with pytest.raises(ConfigError, match=said):
        check_allocation(TrainerConfig(**keys), environment)


SIZES = (3, 0, 2)


def gather_in_group(rank: int, folder: str) -> None:
    """One process: gathers its rows and saves what it sees."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=len(SIZES))
    rows = torch.arange(SIZES[rank] * 2.0).view(-1, 2) + 100 * rank
    torch.save(collect_rows(rows), f"{folder}/{rank}.pt")
    leave_group()
    assert not dist.is_initialized()


@pytest.mark.slow
def test_ranks_with_different_numbers_of_rows_see_all_of_them(tmp_path: Path) -> None:
    mp.spawn(gather_in_group, (str(tmp_path),), nprocs=len(SIZES))
    expected = torch.tensor([[0.0, 1], [2, 3], [4, 5], [200, 201], [202, 203]])
    for rank in range(len(SIZES)):
        assert torch.equal(torch.load(tmp_path / f"{rank}.pt"), expected)


MODELS = {
    "node_mask": ["model.strategy=node_mask"],
    "difference": ["model.strategy=difference"],
    "edge_mask": ["model.strategy=edge_mask"],
    "attention": ["model.conv=gatv2", "model.strategy=edge_mask"],
    "set operator": ["model={name: set_operator}"],
    "compared strains": ["loss={name: mle_wass_supcr, buffer_size: 50}"],
}


def tensors(thing: object, where: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors that can be reached from an object, registered or not, with how."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    parts: dict[str, object] = {}
    if isinstance(thing, Tensor):
        yield where, thing
    elif isinstance(thing, dict):
        parts = {f"{where}[{key!r}]": value for key, value in thing.items()}
    elif isinstance(thing, list | tuple | set):
        parts = {f"{where}[{i}]": value for i, value in enumerate(thing)}
    elif isinstance(thing, nn.Module) or (dataclasses.is_dataclass(thing) and not isinstance(thing, type)):
        parts = {f"{where}.{name}": value for name, value in vars(thing).items()}
    for name, part in parts.items():
        yield from tensors(part, name, seen)


def left_behind(thing: object) -> list[str]:
    return [name for name, tensor in tensors(thing, "", set()) if tensor.device.type != "meta"]


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_no_tensor_of_a_task_stays_behind(tiny: Tiny, tmp_path: Path, options: list[str]) -> None:
    config = tiny.config(tmp_path, *options)
    task = make_task(config, prepare(config, command="tests"), RunDirectory(tmp_path))
    assert len(left_behind(task)) > 20
    assert left_behind(task.to("meta")) == []


def test_batches_are_gathered_on_the_device_of_their_rank(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny.config(tmp_path)
    data = make_data(config, prepare(config, command="tests"))
    batch = data.transfer_batch_to_device(StrainNumbers(torch.tensor([3, 1]), 3), torch.device("meta"), 0)
    assert batch.labels.shape == (2, 1)
    assert left_behind(batch) == []
    assert {tensor.device.type for _, tensor in tensors(data.dataset, "", set())} == {"cpu"}
