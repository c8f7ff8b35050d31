"""The run directory: what is in it, and which checkpoint a run continues from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from dglcell.config import CHECKPOINTS, Config, to_yaml
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
        CheckpointError: the path that was asked for does not exist, or the directory holds a run and `resume: never`.
        ConfigError: the directory belongs to a run with another configuration.
    """
    directory = RunDirectory(config.run_directory)
    if config.resume not in ("auto", "never"):
        return directory.checkpoint(config.resume)
    last = directory.checkpoints / "last.ckpt"
    if not last.exists():
        return None
    if config.resume == "never":
        raise CheckpointError(
            f"'{directory.path}' holds a run already, and `resume: never` was asked for",
            do="remove the directory, change `experiment.name` or `seed`, or set `resume: auto`",
        )
    changed = changed_keys(directory.config, config)
    if changed:
        raise ConfigError(
            f"'{directory.path}' holds a run with another configuration",
            got="different: " + listing(changed),
            expected="the same settings, to continue it",
            do="change `experiment.name` or `seed`, or remove the directory",
        )
    return last


def changed_keys(path: Path, config: Config) -> list[str]:
    """Dotted keys in which ``config`` differs from the one saved at ``path``, but for those that may."""
    old = _flat(OmegaConf.to_container(OmegaConf.load(path)))
    new = _flat(OmegaConf.to_container(OmegaConf.create(to_yaml(config))))
    changed = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    return [key for key in changed if not any(key == free or key.startswith(free + ".") for free in FREE_KEYS)]


def _flat(value: object, prefix: str = "") -> dict[str, object]:
    if isinstance(value, dict) and value:
        return {k: v for name, item in value.items() for k, v in _flat(item, f"{prefix}{name}.").items()}
    return {prefix.rstrip("."): value}
