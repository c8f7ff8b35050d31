"""Checkpoints appear whole or not at all, are checked, and are read once."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pytest
import torch

from dglcell.errors import CheckpointError
from dglcell.run_directory import RunDirectory
from dglcell.training import checkpoint
from dglcell.training.callbacks import CheckpointFiles
from dglcell.training.checkpoint import ReadCheckpoint, newest_checkpoint, read_checkpoint
from tests.tiny import Tiny

CONTENT = {"state_dict": {"w": torch.arange(50_000.0)}, "dglcell": {"schema": checkpoint.SCHEMA_VERSION}}


def write(path: Path, step: int = 0) -> Path:
    CheckpointFiles().save_checkpoint({**CONTENT, "global_step": step}, path)
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "new/last.ckpt", 3)
    assert [p.name for p in path.parent.iterdir()] == ["last.ckpt"]
    content = CheckpointFiles().load_checkpoint(path)
    assert torch.equal(content["state_dict"]["w"], CONTENT["state_dict"]["w"])
    assert content["global_step"] == 3


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    path = write(tmp_path / "last.ckpt")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(CheckpointError) as error:
            write(path, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    first, got, do = str(error.value).splitlines()
    assert first == f"checkpoint '{path}' cannot be written"
    assert "File too large" in got
    assert "goes on from the last checkpoint" in do
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]
    assert read_checkpoint(path)["global_step"] == 0


def test_a_damaged_tensor_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "last.ckpt")
    with path.open("r+b") as file:
        file.seek(100_000)
        file.write(b"\xff" * 16)
    assert not torch.equal(torch.load(path)["state_dict"]["w"], CONTENT["state_dict"]["w"]), "torch does not notice"
    with pytest.raises(CheckpointError, match=r"last.ckpt' cannot be read\n  got: .*does not fit its checksum"):
        read_checkpoint(path)


def opened(folder: Path, events: list[str]) -> list[str]:
    return [Path(name).name for name in events if Path(name).parent == folder]


EVENTS: list[str] = []
HOOKED: list[bool] = []


@pytest.fixture
def opens() -> list[str]:
    """Files that this process opens from now on."""

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | os.PathLike):
            EVENTS.append(os.fspath(arguments[0]))

    if not HOOKED:  # an audit hook cannot be taken away again
        sys.addaudithook(note)
        HOOKED.append(True)
    EVENTS.clear()
    return EVENTS


def test_a_damaged_interruption_is_named_and_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = RunDirectory(tmp_path)
    write(run.last, 4)
    write(run.interrupted, 5)
    assert newest_checkpoint(run).path == run.interrupted
    with run.interrupted.open("r+b") as file:
        file.seek(100_000)
        file.write(b"\xff" * 16)
    assert newest_checkpoint(run).path == run.last
    assert f"passed over: checkpoint '{run.interrupted}' cannot be read" in caplog.text


def test_a_continued_run_reads_its_checkpoint_once(tiny: Tiny, tmp_path: Path, opens: list[str]) -> None:
    run = tiny.train(tmp_path, "trainer.epochs=1").directory
    reads: list[Path] = []

    def reading(path: Path) -> dict[str, object]:
        reads.append(path)
        return read_checkpoint(path)

    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(checkpoint, "read_checkpoint", reading)
        opens.clear()
        tiny.train(tmp_path, "trainer.epochs=2", "trainer.checkpoint=best_loss")
    assert reads.count(run.last) == 1
    # Once to verify and once to load; then it is written anew.
    assert opened(run.checkpoints, opens).count("last.ckpt") == 2


def test_a_checkpoint_is_handed_over_once(tmp_path: Path) -> None:
    path = write(tmp_path / "last.ckpt")
    files = CheckpointFiles()
    files.read = ReadCheckpoint(path)
    content = files.read.content
    path.unlink()
    assert files.load_checkpoint(path) is content
    with pytest.raises(AssertionError):
        _ = files.read.content
