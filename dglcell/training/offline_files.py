"""Files that W&B wrote offline: which there are, which are complete, and which were uploaded.

A run that was continued has several, one for each time it was started, all under one run id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dglcell.errors import DataError

COMPLETE = "complete"
"""Lies beside a file to which nothing will be added."""


@dataclass(frozen=True)
class OfflineFile:
    """One of them.

    Attributes:
        path: of the ``.wandb`` file.
        ended: whether the training that wrote it has ended, as far as its run directory tells.
    """

    path: Path
    ended: bool

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.path.parents[2]

    @property
    def marker(self) -> Path:
        """What W&B leaves beside a file that it has uploaded."""
        return self.path.with_name(f"{self.path.name}.synced")

    def is_uploaded(self) -> bool:
        """Whether W&B has all of it."""
        return self.marker.exists() and self.marker.stat().st_mtime_ns >= self.path.stat().st_mtime_ns


def mark_complete(folder: Path) -> None:
    """Say that nothing will be added to the file in ``folder``."""
    (folder / COMPLETE).touch()


def find_offline_files(folder: Path) -> list[OfflineFile]:
    """The files of a run, or of all runs below a folder; those of one run from the oldest on.

    Raises:
        DataError: the folder is not there.
    """
    if not folder.is_dir():
        raise DataError(
            f"run directory '{folder}' not found", expected="a run, or a folder of runs, as `train` made it"
        )
    # W&B names its folders by date and time.
    runs = sorted({path.parents[1] for path in folder.rglob("wandb/offline-run-*/run-*.wandb")})
    return [file for run in runs for file in _of_run(sorted(run.glob("offline-run-*/run-*.wandb")))]


def _of_run(paths: Sequence[Path]) -> list[OfflineFile]:
    """A file without an end, which a killed process leaves, is no more written to when the next one has been begun."""
    return [OfflineFile(path, path != paths[-1] or (path.parent / COMPLETE).exists()) for path in paths]
