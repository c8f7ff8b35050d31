"""The run directory: what is in it, and which checkpoint a run continues from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from dglcell.config import CHECKPOINTS, Config
from dglcell.config_io import read_yaml, to_yaml
from dglcell.errors import CheckpointError, ConfigError, listing

# What may differ between a run and its continuation.
FREE_KEYS = (
    "resume",
    "plot",
    "null_models",
    "paths",
    "tracking",
    "experiment",
    "trainer.epochs",
    "trainer.progress",
    "trainer.threads",
    "trainer.evaluate",
    "data.eval_batch_size",
    "data.store",  # its content is checked by hash
)


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
    def results(self) -> Path:
        """The table: model and null models."""
        return self.path / "results.json"

    @property
    def report(self) -> Path:
        """The picture."""
        return self.path / "report.png"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / "checkpoints"

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


def resume_from(config: Config) -> Path | None:
    """The checkpoint that this run continues, or None to start anew.

    `resume: auto` continues the run directory's last checkpoint if there is one; `never` refuses to overwrite a run;
    a path must exist.

    Raises:
        CheckpointError: the path that was asked for does not exist, the directory holds a run and `resume: never`, or
            its files are incomplete.
        ConfigError: the directory belongs to a run with another configuration.
    """
    directory = RunDirectory(config.run_directory)
    chosen = None if config.resume in ("auto", "never") else directory.checkpoint(config.resume)
    last = directory.checkpoints / "last.ckpt"
    if not last.exists():
        return chosen
    if config.resume == "never":
        raise CheckpointError(
            f"'{directory.path}' holds a run already, and `resume: never` was asked for",
            do="remove the directory, change `experiment.name` or `seed`, or set `resume: auto`",
        )
    for path in (directory.config, directory.split, directory.cell):
        if not path.exists():
            raise CheckpointError(
                f"'{directory.path}' cannot be continued: '{path.name}' is missing",
                do="put it back, or remove the directory to start anew",
            )
    refuse_changes(read_yaml(directory.config), config, where=f"the run in '{directory.path}'")
    return chosen or last


def refuse_changes(old: DictConfig, config: Config, *, where: str) -> None:
    """Refuse to continue with other settings than those a run was started with, but for ``FREE_KEYS``.

    Raises:
        ConfigError: naming the keys with their old and new values.
    """
    before = _flat(OmegaConf.to_container(old))
    after = _flat(OmegaConf.to_container(OmegaConf.create(to_yaml(config))))
    changed = [
        f"{key}: {before.get(key)} → {after.get(key)}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
        and not any(key == free or key.startswith(free + ".") for free in FREE_KEYS)
    ]
    if changed:
        raise ConfigError(
            f"{where} has another configuration",
            got=listing(changed),
            expected="the same settings, to continue it",
            do="change `experiment.name` or `seed`, or remove the run directory",
        )


def _flat(value: object, prefix: str = "") -> dict[str, object]:
    if isinstance(value, dict) and value:
        return {k: v for name, item in value.items() for k, v in _flat(item, f"{prefix}{name}.").items()}
    return {prefix.rstrip("."): value}
