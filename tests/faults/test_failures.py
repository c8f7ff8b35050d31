"""What happens when the disk, the data or another process of a run fails, and when several start at once."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

import dglcell.prediction.predict
from dglcell.cli import main
from dglcell.data.dataset import EpochBatches
from dglcell.data.store import verify_store
from dglcell.errors import DataError
from dglcell.prediction.design import Design
from dglcell.prediction.predict import predict_design
from dglcell.runs import EpochLog, RunDirectory
from dglcell.training.checkpoint import load_trained, read_checkpoint
from dglcell.training.fit import make_data
from dglcell.training.prepare import prepare
from tests.forked import Forked
from tests.integration.processes import DDP, PATIENCE, ended, other_ranks, start, state, wait_until
from tests.integration.test_run import assert_same_end
from tests.small_disk import small_disk
from tests.tiny import BARE, ENDLESS, Tiny, history, process_environment


def run_in(folder: Path) -> RunDirectory:
    return RunDirectory(folder / "tiny" / "seed-0")


def test_a_full_disk_ends_the_run_and_leaves_its_last_checkpoint(tiny: Tiny, tmp_path: Path) -> None:
    run = tiny.train(tmp_path / "full", "trainer.epochs=1").directory
    before = run.last.read_bytes()
    limit = len(before) - 1000  # nothing else of the run is so large
    arguments = tiny.overrides(tmp_path / "full", *BARE, "trainer.epochs=2")
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    process = Forked(["train", str(tiny.file), *arguments], process_environment(), before=limited)
    _, said = process.communicate()
    assert process.returncode == 2, said
    assert said.count("error:") == 1
    assert f"error: checkpoint '{run.checkpoints}/" in said
    assert "cannot be written\n  got:      [Errno 27] File too large\n  do:       make room or choose another" in said
    assert "the same command goes on from the last checkpoint" in said
    assert "Traceback" not in said
    assert run.last.read_bytes() == before
    assert not list(run.checkpoints.glob(".*"))
    tiny.train(tmp_path / "full", "trainer.epochs=2")
    assert_same_end(tiny.train(tmp_path / "whole", "trainer.epochs=2").directory, run)


def test_a_full_disk_stops_predictions_which_go_on_when_there_is_room(
    tiny_run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, design = load_trained(tiny_run), Design.of(range(14), 3)
    monkeypatch.setattr(dglcell.prediction.predict, "PART_STRAINS", 64)

    def predict(out: Path) -> None:
        predict_design([trained], design, out, batch_size=64, report=lambda text: None)

    with small_disk(tmp_path / "disk", 40) as disk:
        out = disk / "out"
        ballast = disk / "ballast"
        ballast.write_bytes(b"\0" * 16_000)
        with pytest.raises(DataError) as error:
            predict(out)
        message = str(error.value)
        assert message.startswith("predictions cannot be written; finished parts are kept in '")
        assert message.endswith("do:       make room; the same command goes on from here")
        assert not [name for name in os.listdir(out) if name.startswith(".")]
        ballast.unlink()
        subprocess.run(["mount", "-o", "remount,size=400k", str(disk)], check=True)
        predict(out)
        predict(tmp_path / "whole.parquet")
        assert pq.read_table(out).equals(pq.read_table(tmp_path / "whole.parquet"))


@pytest.mark.parametrize("runs", ["a file", "/proc/nowhere"])
def test_a_run_directory_that_cannot_be_written_is_refused_before_any_work(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str], runs: str
) -> None:
    (tmp_path / "a file").write_text("in the way")
    options = [f"data.store={tmp_path}/store", f"paths.runs={tmp_path / runs}", *BARE]
    assert main(["train", str(tiny.file), *options]) == 2
    said = capsys.readouterr().err
    assert f"error: the run directory '{tmp_path / runs}/tiny/seed-0' cannot be written\n  got:      '" in said
    assert "do:       set `paths.runs`" in said
    assert not (tmp_path / "store").exists(), "the store of this run has not been built"


def test_a_loss_that_is_not_finite_names_its_batch_and_keeps_the_last_good_checkpoint(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny.train(tmp_path, "trainer.epochs=2").directory
    content = read_checkpoint(run.last)
    for name, weight in content["state_dict"].items():
        if name.startswith("model.") and weight.is_floating_point():
            weight.mul_(1e30)
    torch.save(content, run.last)
    before = run.last.read_bytes()
    assert main(["train", str(tiny.file), *tiny.overrides(tmp_path, *BARE, "trainer.epochs=4")]) == 2
    said = capsys.readouterr().err
    assert run.last.read_bytes() == before
    assert [row["epoch"] for row in history(run)] == [0, 1]
    config = tiny.config(tmp_path)
    data = make_data(config, prepare(config, command="tests"))
    order = data.loader("train", shuffle=True).sampler
    assert isinstance(order, EpochBatches)
    order.set_epoch(2)
    rows = data.dataset.rows[next(iter(order))].tolist()
    assert "error: the training loss is not finite in epoch 3\n  got:      " in said
    assert f" in step 9, batch 1: strains {', '.join(map(str, rows[:20]))} … and 44 more of the store\n" in said


@pytest.mark.slow
def test_a_process_that_is_killed_takes_the_first_one_with_it(tiny: Tiny, tmp_path: Path) -> None:
    process = start(tiny, tmp_path, *DDP, *ENDLESS)
    wait_until(lambda: run_in(tmp_path).last.exists(), process)
    (other,) = other_ranks(process.pid)
    subprocess.run(["kill", "-9", str(other)], check=True)
    assert ended(process.pid)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "error: another process of this run has ended, or has not answered within `trainer.timeout`\n" in said
    assert "Traceback" not in said
    assert torch.isfinite(torch.tensor(read_checkpoint(run_in(tmp_path).last)["global_step"]))


@pytest.mark.slow
def test_no_process_is_left_behind_where_the_first_one_is_killed(tiny: Tiny, tmp_path: Path) -> None:
    process = start(tiny, tmp_path, *DDP, *ENDLESS)
    wait_until(lambda: run_in(tmp_path).last.exists(), process)
    (other,) = other_ranks(process.pid)
    process.kill()
    assert ended(other)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert "error: another process of this run has ended" in said
    assert "Traceback" not in said


OPEN_STORE = """
import logging, signal, sys
from dglcell.config.read import load_config
from dglcell.data import store as store_module
from dglcell.training.prepare import open_store

logging.basicConfig(level=logging.INFO, format="%(message)s")
if {stays}:
    store_module._write = lambda *_: signal.pause()
open_store(load_config({file!r}, [{store!r}]), "tests").read()
sys.exit()
"""
"""What `train` does first, and nothing else."""


@pytest.fixture
def running(tiny: Tiny, tmp_path: Path) -> Iterator[tuple[Forked, RunDirectory]]:
    """Provide a process that trains, and has finished an epoch; it is ended with the test."""
    run = RunDirectory(tmp_path / "tiny" / "seed-0")
    process = start(tiny, tmp_path, *ENDLESS)
    try:
        wait_until(run.last.exists, process)
        yield process, run
    finally:
        process.kill()
        process.communicate()


def train(tiny: Tiny, runs: Path, *options: str) -> int:
    return main(["train", str(tiny.file), *tiny.overrides(runs, *BARE, *options)])


def numbers(run: RunDirectory) -> list[int]:
    return [row["epoch"] for row in EpochLog(run.metrics, 0).read()]


def test_a_second_start_is_refused_and_a_run_whose_lease_was_removed_stops(
    tiny: Tiny, tmp_path: Path, running: tuple[Forked, RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    process, run = running
    for paused in (False, True):
        if paused:
            process.send_signal(signal.SIGSTOP)
            wait_until(lambda: state(process.pid) == "T", process)
        assert train(tiny, tmp_path, *ENDLESS) == 2
        said = capsys.readouterr().err
        assert f"error: another process is writing '{run.path}'\n  got:      process {process.pid} on " in said
        assert process.poll() is None
    lock = run.path / ".owner.json.lock"
    assert f"if its machine is lost, remove '{run.owner}' and '{lock}'" in said
    for path in (run.owner, lock):
        path.unlink()
    epochs = len(numbers(run)) + 2
    assert train(tiny, tmp_path, *ENDLESS, f"trainer.epochs={epochs}") == 0
    last, record = run.last.read_bytes(), run.metrics.read_bytes()
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2, said
    assert f"error: another process has taken over '{run.path}', so this one stops\n  got: " in said
    assert "Traceback" not in said
    assert (run.last.read_bytes(), run.metrics.read_bytes()) == (last, record)
    assert numbers(run) == list(range(epochs))
    assert not list(run.path.rglob(".*.partial-*"))


def test_of_three_starts_at_once_one_trains(tiny: Tiny, tmp_path: Path) -> None:
    processes = [start(tiny, tmp_path, "trainer.epochs=2") for _ in range(3)]
    said = [process.communicate(timeout=PATIENCE)[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert 0 in codes, said
    for code, text in zip(codes, said, strict=True):
        # One that comes when the first has ended evaluates once more.
        assert (code, "is writing" in text) in ((0, False), (2, True)), text
        assert "Traceback" not in text
    run = RunDirectory(tmp_path / "tiny" / "seed-0")
    assert numbers(run) == [0, 1]
    assert not run.owner.exists()


def test_members_of_a_job_array_wait_for_the_store_and_one_follows_a_killed_builder(tiny: Tiny, tmp_path: Path) -> None:
    store = tmp_path / "data" / "store"

    def member(stays: bool) -> Forked:
        program = OPEN_STORE.format(stays=stays, file=str(tiny.file), store=f"data.store={store}")
        return Forked([], process_environment(), before=program)

    builder = member(stays=True)
    wait_until(lambda: list(store.parent.glob(".store.partial-*")), builder)
    others = [member(stays=False) for _ in range(2)]
    for other in others:
        wait_until(lambda: "waiting for" in other.said()[1], other)  # noqa: B023
        assert f"waiting for '{store}', which is written by process {builder.pid} on " in other.said()[1]
    assert not store.exists()
    builder.kill()
    builder.communicate()
    heard = [other.communicate(timeout=PATIENCE)[1] for other in others]
    assert [other.returncode for other in others] == [0, 0], heard
    assert sum("building store" in text for text in heard) == 1
    assert [path.name for path in store.parent.iterdir()] == ["store"]


def test_two_builds_replace_a_store_at_once(tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    arguments = ["data", "build", str(tiny.file), f"data.store={store}", "--overwrite"]
    codes: list[int] = []
    builds = [threading.Thread(target=lambda: codes.append(main(arguments))) for _ in range(2)]
    for build in builds:
        build.start()
    for build in builds:
        build.join()
    assert codes == [0, 0], capsys.readouterr().err
    verify_store(store)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
