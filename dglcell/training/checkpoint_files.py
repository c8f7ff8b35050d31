"""Checkpoints on disk: they appear whole or not at all, and are read once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import CheckpointIO

from dglcell.errors import CheckpointError
from dglcell.files import atomic_file
from dglcell.training.checkpoint import ReadCheckpoint, read_checkpoint


class CheckpointFiles(CheckpointIO):
    """How Lightning writes and reads checkpoints of a run.

    Attributes:
        read: a checkpoint whose content is in memory already, handed over when it is asked for.
    """

    read: ReadCheckpoint | None = None

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Write a temporary file, wait until it is on disk, and rename it.

        Raises:
            CheckpointError: it cannot be written, for example because the disk is full.
        """
        try:
            with atomic_file(Path(path)) as partial, open(partial, "wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
        except (OSError, RuntimeError) as error:
            # torch's own error says that a position is unexpected; the reason stands behind it.
            reason = error.__context__ if isinstance(error.__context__, OSError) else error
            raise CheckpointError(
                f"checkpoint '{path}' cannot be written",
                got=reason,
                do="make room or choose another `paths.runs`; "
                "the same command goes on from the last checkpoint that was written",
            ) from error

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """The content of a checkpoint, on the host."""
        if self.read is not None and self.read.path == Path(path):
            return self.read.take()
        return read_checkpoint(Path(path))

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Delete a checkpoint if it is there."""
        Path(path).unlink(missing_ok=True)
