"""The run directory: what is in it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from dglcell.errors import CheckpointError, listing

CHECKPOINTS = ("best_loss", "best_pearson", "best_average_precision", "last")

PROBE_BYTES = 1 << 16
"""What must fit on the disk for a run to begin."""


@dataclass(frozen=True)
class RunDirectory:
    """Files of one run.

    Attributes:
        path: ``<runs>/<experiment>/seed-<seed>``.
    """

    path: Path

    @property
    def config(self) -> Path:
        """Resolved configuration."""
        return self.path / "config.yaml"

    @property
    def environment(self) -> Path:
        """Versions, git state, hashes."""
        return self.path / "environment.json"

    @property
    def choices(self) -> Path:
        """What `auto` takes, and why."""
        return self.path / "choices.json"

    @property
    def wandb_id(self) -> Path:
        """Id of the W&B run, the same when the run is continued."""
        return self.path / "wandb_id.txt"

    @property
    def split(self) -> Path:
        """The split, with its hash."""
        return self.path / "split.npz"

    @property
    def cell(self) -> Path:
        """The cell graph, so that the run can predict on its own."""
        return self.path / "cell"

    @property
    def metrics(self) -> Path:
        """One JSON line per epoch."""
        return self.path / "metrics.jsonl"

    @property
    def usage(self) -> Path:
        """Time and memory of the training."""
        return self.path / "usage.json"

    @property
    def results(self) -> Path:
        """The table: model and null models."""
        return self.path / "results.json"

    @property
    def report(self) -> Path:
        """The picture."""
        return self.path / "report.png"

    @property
    def page(self) -> Path:
        """The report: one file that has everything."""
        return self.path / "report.html"

    @property
    def figures(self) -> Path:
        """Folder of the report's pictures, and of those drawn during training."""
        return self.path / "figures"

    def epoch_picture(self, epoch: int) -> Path:
        """Picture of the validation part after an epoch, counted from 1."""
        return self.figures / f"epoch-{epoch:03}.png"

    @property
    def embedding(self) -> Path:
        """Embeddings of some test strains."""
        return self.path / "embedding_test.npz"

    @property
    def embedding_map(self) -> Path:
        """A map of these embeddings that took long to find."""
        return self.path / "embedding_map.npz"

    @property
    def relation_weights(self) -> Path:
        """Mean weights of relations in each layer."""
        return self.path / "relation_weights.json"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def last(self) -> Path:
        """The checkpoint of the last finished epoch."""
        return self.checkpoints / "last.ckpt"

    @property
    def interrupted(self) -> Path:
        """The checkpoint of a run that was told to stop in the middle of an epoch."""
        return self.checkpoints / "interrupted.ckpt"

    def check_writable(self) -> None:
        """Refuse a directory that cannot be written, or has no room, before any work; leaves nothing there.

        Raises:
            CheckpointError: naming the folder, and the reason.
        """
        folders = [self.path, self.checkpoints] if self.checkpoints.is_dir() else [self.path]
        for folder in folders:
            there = next(parent for parent in (folder, *folder.parents) if parent.exists())
            try:
                with tempfile.TemporaryFile(dir=there) as file:
                    file.write(bytes(PROBE_BYTES))
            except OSError as error:
                raise CheckpointError(
                    f"the run directory '{self.path}' cannot be written",
                    got=f"'{there}': {error.strerror}",
                    do="set `paths.runs` to a folder that can be written and has room, or mend this one",
                ) from error

    def is_started(self) -> bool:
        """Whether there is something to continue from."""
        return self.last.exists() or self.interrupted.exists()

    def predictions(self, part: str) -> Path:
        """Measured and predicted phenotypes of one part."""
        return self.path / f"predictions_{part}.csv"

    def checkpoint(self, name: str) -> Path:
        """Path of a checkpoint by name or path.

        Raises:
            CheckpointError: it does not exist.
        """
        path = self.checkpoints / f"{name}.ckpt" if name in CHECKPOINTS else Path(name)
        if not path.is_file():
            there = sorted(p.stem for p in self.checkpoints.glob("*.ckpt"))
            raise CheckpointError(
                f"checkpoint '{path}' not found",
                expected="one of " + listing(there) if there else "a checkpoint; this run has none yet",
                do="train first with `dglcell train`" if not there else None,
            )
        return path
