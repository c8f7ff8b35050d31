"""Checkpoints: tensors and plain containers with a schema version; and continuing a run from one."""

from __future__ import annotations

import logging
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from dglcell.config import AUTO, Config
from dglcell.config_io import parse_config, read_yaml, to_yaml
from dglcell.data.split import Split
from dglcell.data.transform import Normaliser
from dglcell.errors import CheckpointError, ConfigError, listing
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.models.build import make_model
from dglcell.models.model import StrainModel
from dglcell.run_directory import RunDirectory

# Checkpoints: tensors and plain containers with a schema version.


SCHEMA_VERSION = 2


@dataclass(frozen=True)
class Trained:
    """A model that can predict.

    Attributes:
        model: in evaluation mode.
        normaliser: label statistics of its training part.
        config: of its run.
        cell: its cell graph.
        phenotypes: T names.
        units: T units.
        epoch: after which the checkpoint was written.
        path: of the checkpoint.
    """

    model: StrainModel
    normaliser: Normaliser
    config: Config
    cell: CellGraph
    phenotypes: tuple[str, ...]
    units: tuple[str, ...]
    epoch: int
    path: Path


class ReadCheckpoint:
    """A checkpoint file that was read and checked.

    Attributes:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._content: dict[str, Any] | None = read_checkpoint(path)

    @property
    def content(self) -> dict[str, Any]:
        """What is in it, until it is taken away."""
        assert self._content is not None
        return self._content

    def take(self) -> dict[str, Any]:
        """What is in it; kept here no longer, so that its memory is free once the caller is done with it."""
        content, self._content = self.content, None
        return content


def describe_run(
    config: Config, cell: CellGraph, split: Split, phenotypes: tuple[str, ...], units: tuple[str, ...]
) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    return {
        "schema": SCHEMA_VERSION,
        "config": to_yaml(config),
        "cell_sha256": cell.sha256,
        "split_sha256": split.sha256,
        "gene_vocabulary_sha256": cell.genes.sha256,
        "phenotypes": list(phenotypes),
        "units": list(units),
    }


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Load and check a checkpoint file, also the checksums of all its tensors, which torch does not look at.

    Raises:
        CheckpointError: torn, damaged, not written by dglcell, or of another schema.
    """
    try:
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
        if damaged is not None:
            raise zipfile.BadZipFile(f"'{damaged}' in it does not fit its checksum")
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError, ValueError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"checkpoint '{path}' cannot be read",
            got=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            expected="a complete file of tensors and plain containers",
            do="it may be torn: use another checkpoint of the run (`resume=PATH`, `--checkpoint`), or remove it",
        ) from error
    about = content.get("dglcell") if isinstance(content, dict) else None
    if not isinstance(about, dict) or "state_dict" not in content:
        raise CheckpointError(f"'{path}' is not a checkpoint of dglcell")
    schema = about.get("schema", 0)
    if schema != SCHEMA_VERSION:
        newer = schema > SCHEMA_VERSION
        raise CheckpointError(
            f"checkpoint '{path}' was written by {'a newer' if newer else 'an older'} dglcell",
            got=f"schema {schema}",
            expected=f"schema {SCHEMA_VERSION}",
            do="upgrade dglcell" if newer else "use the version that wrote it, or train again",
        )
    return content


def read_config(directory: RunDirectory) -> Config:
    """The resolved configuration of a run.

    Raises:
        CheckpointError: the directory holds none.
    """
    if not directory.config.is_file():
        raise CheckpointError(f"'{directory.path}' is not a run directory", expected="a directory with config.yaml")
    return parse_config(read_yaml(directory.config), where=str(directory.config))


def load_trained(directory: RunDirectory, checkpoint: str | None = None, cell: CellGraph | None = None) -> Trained:
    """The model of a run as it was at a checkpoint.

    Args:
        directory: of the run.
        checkpoint: a name of ``CHECKPOINTS``, or a path; as the run configured where None.
        cell: the run's cell graph, where it is loaded already.

    Raises:
        CheckpointError: the run or checkpoint is missing or torn, or belongs to another cell graph.
    """
    if not directory.path.is_dir():
        raise CheckpointError(f"run directory '{directory.path}' not found", do="give the path that `train` printed")
    path = directory.checkpoint(checkpoint or read_config(directory).trainer.checkpoint)
    content = read_checkpoint(path)
    about = content["dglcell"]
    cell = cell or CellGraph.load(directory.cell)
    if cell.sha256 != about["cell_sha256"]:
        raise CheckpointError(
            f"checkpoint '{path}' belongs to another cell graph",
            got=f"cell {cell.sha256[:12]}",
            expected=f"cell {about['cell_sha256'][:12]}",
            do="use the run directory that the checkpoint was written in",
        )
    config = parse_config(OmegaConf.create(about["config"]), where=str(path))
    state = content["state_dict"]
    prefix = "model.encoder.features."
    features = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    model = make_model(config.model, ResidentCell.of(cell), len(about["phenotypes"]), features)
    normaliser = Normaliser(config.data.normalise, state["normaliser.shift"], state["normaliser.scale"])
    try:
        model.load_state_dict({k.removeprefix("model."): v for k, v in state.items() if k.startswith("model.")})
    except RuntimeError as error:
        raise CheckpointError(f"checkpoint '{path}' does not fit the model", got=str(error)) from error
    return Trained(
        model.eval(),
        normaliser,
        config,
        cell,
        tuple(about["phenotypes"]),
        tuple(about["units"]),
        int(content["epoch"]),
        path,
    )


# Continuing a run: from which checkpoint, with which settings, and where training begins.


log = logging.getLogger("dglcell")

# What may differ between a run and its continuation.
FREE_KEYS = (
    "resume",
    "plot",
    "null_models",
    "paths",
    "tracking",
    "slurm",
    "experiment",
    "trainer.epochs",
    "trainer.progress",
    "trainer.threads",
    "trainer.timeout",
    "trainer.checkpoint",
    "data.eval_batch_size",
    "data.streaming.readers",
    "data.store",  # its content is checked by hash
)


def resume_from(config: Config) -> ReadCheckpoint | None:
    """The checkpoint that this run continues, read and checked; None to start anew.

    `resume: auto` continues the run directory's last checkpoint if there is one; `never` refuses to overwrite a run;
    a path must exist, and starts a run of its own.

    Raises:
        CheckpointError: the path that was asked for does not exist; the directory holds a run and `resume` is neither
            `auto` nor its last checkpoint; its files are incomplete; or no checkpoint can be read.
        ConfigError: the directory belongs to a run with another configuration.
    """
    directory = RunDirectory(config.run_directory)
    chosen = None if config.resume in ("auto", "never") else directory.checkpoint(config.resume)
    if not directory.is_started():
        return None if chosen is None else ReadCheckpoint(chosen)
    if config.resume == "never":
        raise CheckpointError(
            f"'{directory.path}' holds a run already, and `resume: never` was asked for",
            do="remove the directory, change `experiment.name` or `seed`, or set `resume: auto`",
        )
    newest = newest_checkpoint(directory)
    if chosen is not None and chosen.resolve() != newest.path.resolve():
        raise CheckpointError(
            f"'{directory.path}' holds a run already, which going on from '{chosen}' would overwrite",
            do="set `resume: auto` to continue it, or continue from that checkpoint under another `experiment.name`",
        )
    for path in (directory.config, directory.split, directory.cell):
        if not path.exists():
            raise CheckpointError(
                f"'{directory.path}' cannot be continued: '{path.name}' is missing",
                do="put it back, or remove the directory to start anew",
            )
    refuse_changes(read_yaml(directory.config), config, where=f"the run in '{directory.path}'")
    return newest


def newest_checkpoint(directory: RunDirectory) -> ReadCheckpoint:
    """Of the last finished epoch, or of a later interruption; one that cannot be read is named and passed over.

    Raises:
        CheckpointError: none can be read.
    """
    newest: ReadCheckpoint | None = None
    unreadable: list[CheckpointError] = []
    for path in (path for path in (directory.interrupted, directory.last) if path.exists()):
        try:
            found = ReadCheckpoint(path)
        except CheckpointError as error:
            unreadable.append(error)
            continue
        if newest is None or found.content["global_step"] > newest.content["global_step"]:
            newest = found
    if newest is None:
        raise unreadable[-1]
    for problem in unreadable:
        log.warning("passed over: %s", problem)
    return newest


def starting_point(checkpoint: ReadCheckpoint | None, config: Config) -> tuple[int, bool]:
    """Say what the run continues from.

    Returns:
        the epoch that training begins with, and whether nothing is left to train.
    """
    if checkpoint is None:
        log.info("training from scratch: no checkpoint in %s", config.run_directory)
        return 0, False
    path, content = checkpoint.path, checkpoint.content
    if content.get("unfinished") is not None:
        log.info("continuing from %s, in epoch %d, step %d", path, content["epoch"] + 1, content["global_step"])
        return int(content["epoch"]), False
    epoch = int(content["epoch"]) + 1
    log.info("continuing from %s, written after epoch %d", path, epoch)
    if epoch >= config.trainer.epochs:
        log.info("all %d epochs are done; evaluating", config.trainer.epochs)
        return epoch, True
    if stopped_early(content):
        log.info("training stopped early after epoch %d; evaluating", epoch)
        return epoch, True
    return epoch, False


def resolve_settings(config: Config, checkpoint: ReadCheckpoint | None) -> Config:
    """Replace `data.batch_size: auto` by what was found when the run that is continued began."""
    if checkpoint is None or config.data.batch_size != AUTO:
        return config
    about = OmegaConf.create(checkpoint.content["dglcell"]["config"])
    return config.with_batch_size(int(about.data.batch_size))


def check_continues(checkpoint: ReadCheckpoint, config: Config, cell: CellGraph, split: Split) -> None:
    """Refuse to continue a checkpoint with other settings, another cell graph or another split.

    Args:
        checkpoint: to be continued.
        config, cell, split: of this run.

    Raises:
        CheckpointError, ConfigError: naming what differs.
    """
    path, about = checkpoint.path, checkpoint.content["dglcell"]
    refuse_changes(OmegaConf.create(about["config"]), config, where=f"checkpoint '{path}'")
    for what, old, new in (
        ("cell graph", about["cell_sha256"], cell.sha256),
        ("split", about["split_sha256"], split.sha256),
    ):
        if old != new:
            raise CheckpointError(
                f"checkpoint '{path}' was trained with another {what}",
                got=f"{what} {new[:12]}",
                expected=f"{what} {old[:12]}",
                do="put its files back, or start anew under another `experiment.name`",
            )


def refuse_changes(old: DictConfig, config: Config, *, where: str) -> None:
    """Refuse to continue with other settings than those a run was started with, but for ``FREE_KEYS``.

    Raises:
        ConfigError: naming the keys with their old and new values.
    """
    before = _flat(OmegaConf.to_container(old))
    after = _flat(OmegaConf.to_container(OmegaConf.create(to_yaml(config))))
    if config.data.batch_size == AUTO:
        after["data.batch_size"] = before.get("data.batch_size")
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


def stopped_early(content: dict[str, Any]) -> bool:
    """Whether early stopping ended the training that wrote this checkpoint."""
    return any(
        state.get("wait_count", 0) >= state.get("patience", 1)
        for name, state in content.get("callbacks", {}).items()
        if name.startswith("EarlyStopping")
    )


def _flat(value: object, prefix: str = "") -> dict[str, object]:
    if isinstance(value, dict) and value:
        return {k: v for name, item in value.items() for k, v in _flat(item, f"{prefix}{name}.").items()}
    return {prefix.rstrip("."): value}
