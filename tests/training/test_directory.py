"""Where a run's files are."""

from __future__ import annotations

from pathlib import Path

import pytest

from dglcell.errors import CheckpointError
from dglcell.run_directory import RunDirectory


def test_checkpoints_are_found_by_name_and_by_path(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    directory.checkpoints.mkdir(parents=True)
    directory.last.touch()
    other = tmp_path / "other.ckpt"
    other.touch()
    assert directory.checkpoint("last") == directory.last == tmp_path / "run/checkpoints/last.ckpt"
    assert directory.checkpoint(str(other)) == other


def test_a_checkpoint_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    with pytest.raises(CheckpointError, match=r"last.ckpt' not found\n  expected: a .*none yet\n  do: +train first"):
        directory.checkpoint("last")
    directory.checkpoints.mkdir()
    directory.last.touch()
    with pytest.raises(CheckpointError, match=r"best_loss.ckpt' not found\n  expected: one of last$"):
        directory.checkpoint("best_loss")


def test_every_file_lies_in_the_directory(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    files = [getattr(directory, name) for name, kind in vars(RunDirectory).items() if isinstance(kind, property)]
    files += [directory.predictions(part) for part in ("validation", "test")]
    assert len(set(files)) == len(files) > 8
    assert all(file.is_relative_to(tmp_path) for file in files)
