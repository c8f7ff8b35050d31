"""Make models from checkpoints, and continue a run from one."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from dglcell.baselines.problem import NullModel
from dglcell.config.experiment import Config
from dglcell.config.read import as_plain_text, parse_config, to_yaml
from dglcell.data.split import Split
from dglcell.data.transform import Normaliser
from dglcell.errors import CheckpointError, ConfigError, count, listing
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.models.model import StrainModel, make_model
from dglcell.report.run_files import read_run_config
from dglcell.runs.directory import RunDirectory
from dglcell.trained_models import cell_of_run
from dglcell.training.checkpoint_file import SCHEMA_VERSION, ReadCheckpoint, refuse
from dglcell.training.checkpoint_file import read_checkpoint as read_checkpoint

log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class Chosen:
    """Say what predicts a phenotype: the network, a baseline, or both, each with a weight.

    Attributes:
        name: what it is called in the table of results.
        baseline: the fitted baseline; None where the network predicts alone.
        weight: weight of the baseline, from 0 to 1; that of the network is the rest.
        is_best: whether it was the best on the validation part, so that the intervals of the run are its own.
        why: the scores by which the best was chosen, in words.
    """

    name: str
    baseline: NullModel | None = None
    weight: float = 0.0
    is_best: bool = True
    why: str = ""


@dataclass(frozen=True)
class Trained:
    """Hold the model of a checkpoint with everything that predictions need.

    Attributes:
        model: the model in evaluation mode.
        normaliser: label statistics of its training part.
        config: configuration of its run.
        cell: its cell graph.
        phenotypes: T names.
        units: T units.
        epoch: the epoch after which the checkpoint was written.
        path: path of the checkpoint.
        split_sha256: SHA-256 of the split that it was trained on.
        chosen: phenotype → what predicts it (`dglcell.training.predicting`); the network predicts the others.
    """

    model: StrainModel
    normaliser: Normaliser
    config: Config
    cell: CellGraph
    phenotypes: tuple[str, ...]
    units: tuple[str, ...]
    epoch: int
    path: Path
    split_sha256: str
    chosen: Mapping[str, Chosen] = field(default_factory=dict)

    def predicts(self, phenotype: str) -> Chosen:
        """Return what predicts a phenotype."""
        return self.chosen.get(phenotype) or Chosen(self.config.model.name)


def describe_run(config: Config, cell: CellGraph, split: Split, units: Mapping[str, str]) -> dict[str, Any]:
    """Return what a checkpoint records about its run; ``units`` are those of the phenotypes, in order."""
    return {
        "schema": SCHEMA_VERSION,
        "config": to_yaml(config),
        "cell_sha256": cell.sha256,
        "split_sha256": split.sha256,
        "gene_vocabulary_sha256": cell.genes.sha256,
        "phenotypes": list(units),
        "units": list(units.values()),
    }


def load_trained(directory: RunDirectory, checkpoint: str | None = None, cell: CellGraph | None = None) -> Trained:
    """Load the model of a run from a checkpoint.

    Args:
        checkpoint: a name of ``CHECKPOINTS``, or a path; None for the one that the run configured.
        cell: the run's cell graph, if it is loaded already.

    Raises:
        CheckpointError: the run or checkpoint is missing or torn, or belongs to another cell graph.
    """
    if not directory.path.is_dir():
        raise CheckpointError(f"run directory '{directory.path}' not found", do="give the path that `train` printed")
    path = directory.checkpoint(checkpoint or read_run_config(directory)["trainer"]["checkpoint"])
    read = ReadCheckpoint(path, to_continue=False)
    state = read.take()["state_dict"]
    cell = cell or cell_of_run(directory)
    if cell.sha256 != read.cell_sha256:
        raise CheckpointError(
            f"checkpoint '{path}' belongs to another cell graph",
            got=f"cell {cell.sha256[:12]}",
            expected=f"cell {read.cell_sha256[:12]}",
            do="use the run directory that the checkpoint was written in",
        )
    if cell.genes.sha256 != read.gene_vocabulary_sha256:
        raise refuse(path, "is damaged: it names other genes than those of its cell graph")
    model = _read_model(read, cell, state)
    try:
        normaliser = Normaliser(read.config.data.normalise, *(state[f"normaliser.{name}"] for name in NORMALISER))
    except KeyError as error:
        raise refuse(path, f"is damaged: {error} is missing") from error
    return Trained(
        model.eval(), normaliser, read.config, cell, read.phenotypes, read.units, read.epoch, path, read.split_sha256
    )


MODEL = "model."
"""The names of weights begin with this text."""

NORMALISER = ("shift", "scale")


def _read_model(read: ReadCheckpoint, cell: CellGraph, state: Mapping[str, Tensor]) -> StrainModel:
    """Make the model of a checkpoint, which must have exactly the weights that its configuration asks for.

    Raises:
        CheckpointError: weights are missing, of another shape, or of no model.
    """
    weights = {name.removeprefix(MODEL): tensor for name, tensor in state.items() if name.startswith(MODEL)}
    matches = {name: re.fullmatch(r"(?:encoder\.)?features\.(\w+)", name) for name in weights}
    features = {match[1]: weights[name] for name, match in matches.items() if match is not None}
    try:
        made = make_model(read.config.model, ResidentCell.of(cell), len(read.phenotypes), features)
        made.load_state_dict(weights)
    except (RuntimeError, ValueError, IndexError) as error:
        raise refuse(read.path, "does not fit the model", error, "the weights that its configuration has") from error
    return made


# Keys that may differ between a run and its continuation.
FREE_KEYS = (
    "resume",
    "plot",
    "null_models",
    "paths",
    "tracking",
    "slurm",
    "experiment",
    "trainer.epochs",
    "trainer.threads",
    "trainer.timeout",
    "trainer.checkpoint",
    "data.eval_batch_size",
    "data.store",  # its content is checked by hash
)


SETTLED_KEYS = ("model.conditions", "model.strength_curves")
"""Where these keys are null, a run records what its strains have, and its continuation may leave them null again."""


def resume_from(config: Config) -> ReadCheckpoint | None:
    """Read and check the checkpoint that this run continues; return None to start anew.

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
    before = parse_config(read_run_config(directory), where=str(directory.config))
    refuse_changes(before, config, where=f"the run in '{directory.path}'")
    return newest


def newest_checkpoint(directory: RunDirectory) -> ReadCheckpoint:
    """Return the checkpoint of the last finished epoch or of a later interruption.

    One that cannot be read is named in a warning and passed over.

    Raises:
        CheckpointError: no checkpoint can be read.
    """
    newest: ReadCheckpoint | None = None
    unreadable: list[CheckpointError] = []
    for path in filter(os.path.lexists, (directory.interrupted, directory.last)):
        try:
            found = ReadCheckpoint(path)
        except CheckpointError as error:
            unreadable.append(error)
            continue
        if newest is None or found.global_step > newest.global_step:
            newest = found
    if newest is None:
        raise unreadable[-1]
    for problem in unreadable:
        log.warning("passed over: %s", problem)
    return newest


def starting_point(checkpoint: ReadCheckpoint | None, config: Config) -> tuple[int, bool]:
    """Log what the run continues from.

    Returns:
        the epoch that training begins with, and whether nothing is left to train.
    """
    if checkpoint is None:
        new = "training from scratch" if config.start_from is None else "training a new run"
        log.info("%s: no checkpoint in %s", new, config.run_directory)
        return 0, False
    path = checkpoint.path
    if checkpoint.unfinished:
        log.info("continuing from %s, in epoch %d, step %d", path, checkpoint.epoch + 1, checkpoint.global_step)
        return checkpoint.epoch, False
    epoch = checkpoint.epoch + 1
    log.info("continuing from %s, written after epoch %d", path, epoch)
    if epoch >= config.trainer.epochs:
        log.info("training is finished after %s; evaluating", count(config.trainer.epochs, "epoch"))
        return epoch, True
    if stopped_early(checkpoint.content):
        log.info("training stopped early after epoch %d; evaluating", epoch)
        return epoch, True
    return epoch, False


def check_continues(checkpoint: ReadCheckpoint, config: Config, cell: CellGraph, split: Split) -> None:
    """Refuse to continue a checkpoint with other settings, another cell graph or another split.

    Raises:
        CheckpointError, ConfigError: something differs; the error names it.
    """
    path = checkpoint.path
    refuse_changes(checkpoint.config, config, where=f"checkpoint '{path}'")
    for what, old, new in (
        ("cell graph", checkpoint.cell_sha256, cell.sha256),
        ("gene vocabulary", checkpoint.gene_vocabulary_sha256, cell.genes.sha256),
        ("split", checkpoint.split_sha256, split.sha256),
    ):
        if old != new:
            raise CheckpointError(
                f"checkpoint '{path}' was trained with another {what}",
                got=f"{what} {new[:12]}",
                expected=f"{what} {old[:12]}",
                do="put its files back, or start anew under another `experiment.name`",
            )


def refuse_changes(old: Config, config: Config, *, where: str) -> None:
    """Refuse to continue with settings other than those a run was started with, except for ``FREE_KEYS``.

    A key that the version which started the run did not have counts as its default.

    Raises:
        ConfigError: keys differ; the error names them with their old and new values.
    """
    before, after = (_flat(as_plain_text(dataclasses.asdict(each))) for each in (old, config))
    settled = [key for key in SETTLED_KEYS if after.get(key, "") is None]
    changed = [
        f"{key}: {before.get(key)} → {after.get(key)}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
        and not any(key == free or key.startswith(free + ".") for free in [*FREE_KEYS, *settled])
    ]
    if changed:
        raise ConfigError(
            f"{where} has another configuration",
            got=listing(changed),
            expected="the same settings, to continue it",
            do="change `experiment.name` or `seed`, or remove the run directory",
        )


def stopped_early(content: dict[str, Any]) -> bool:
    """Return whether early stopping ended the training that wrote this checkpoint."""
    return any(
        state.get("wait_count", 0) >= state.get("patience", 1)
        for name, state in content.get("callbacks", {}).items()
        if name.startswith("EarlyStopping")
    )


def _flat(value: object, prefix: str = "") -> dict[str, object]:
    if isinstance(value, dict) and value:
        return {k: v for name, item in value.items() for k, v in _flat(item, f"{prefix}{name}.").items()}
    return {prefix.rstrip("."): value}
