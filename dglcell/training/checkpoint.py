"""Make models from checkpoints, and continue a run from one."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from dglcell.baselines.fit import NullModel
from dglcell.baselines.packed import PackedNulls
from dglcell.config.experiment import Config
from dglcell.config.read import as_plain_text, parse_config, to_yaml
from dglcell.data.split import Split
from dglcell.data.transform import Normaliser
from dglcell.errors import CheckpointError, ConfigError, count, listing
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE
from dglcell.models.config import MODELS
from dglcell.models.model import StrainModel, make_model
from dglcell.nn.links import Link
from dglcell.nn.null_share import NullShare
from dglcell.report.run_files import read_run_config
from dglcell.runs.directory import RunDirectory
from dglcell.trained_models import cell_of_run
from dglcell.training.checkpoint_file import PREDICTING, SCHEMA_VERSION, ReadCheckpoint, refuse
from dglcell.training.checkpoint_file import read_checkpoint as read_checkpoint

log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class Chosen:
    """Name the model that predicts a phenotype best on the validation part.

    Attributes:
        name: name of the model.
        null_model: null model that predicts in place of the run's own model; None where the run's own model predicts.
    """

    name: str
    null_model: NullModel | None = None


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
        chosen: phenotype → the model chosen for it (`dglcell.training.with_null`); ``model`` predicts the others.
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

    @property
    def null_models(self) -> dict[str, NullModel]:
        """Return phenotype → the null model that predicts it in place of the model."""
        found = {phenotype: chosen.null_model for phenotype, chosen in self.chosen.items()}
        return {phenotype: model for phenotype, model in found.items() if model is not None}


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


def read_config(directory: RunDirectory) -> Config:
    """Return the resolved configuration of a run.

    Raises:
        CheckpointError: the directory holds no configuration, or a damaged one.
    """
    return parse_config(read_run_config(directory), where=str(directory.config))


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
    read = ReadCheckpoint(path, PREDICTING)
    about, state = read.about, read.take()["state_dict"]
    cell = cell or cell_of_run(directory)
    if cell.sha256 != about.cell_sha256:
        raise CheckpointError(
            f"checkpoint '{path}' belongs to another cell graph",
            got=f"cell {cell.sha256[:12]}",
            expected=f"cell {about.cell_sha256[:12]}",
            do="use the run directory that the checkpoint was written in",
        )
    if cell.genes.sha256 != about.gene_vocabulary_sha256:
        raise refuse(path, "is damaged: it names other genes than those of its cell graph")
    model = _read_model(read, cell, {k: v for k, v in state.items() if k.startswith((MODEL, "normaliser."))})
    return Trained(
        model.eval(),
        Normaliser(about.config.data.normalise, *(state[f"normaliser.{name}"] for name in NORMALISER)),
        about.config,
        cell,
        about.phenotypes,
        about.units,
        read.epoch,
        path,
        about.split_sha256,
    )


MODEL = "model."
"""The names of weights begin with this text."""

NORMALISER = ("shift", "scale")

MOST = 100_000
"""No size of a model is larger than this."""


def _read_model(read: ReadCheckpoint, cell: CellGraph, state: Mapping[str, Tensor]) -> StrainModel:
    """Make the model of a checkpoint, which must have the weights that its configuration asks for.

    The model is first made without memory for weights, because a configuration may ask for more memory than there is.

    Raises:
        CheckpointError: weights are missing, of another shape or type, or of no model.
    """
    about, path = read.about, read.path
    model, built_in = about.config.model, about.config.model.name in MODELS
    large = next((key for key, size in vars(model).items() if type(size) is int and size > MOST), None)
    if large is not None and built_in:
        raise refuse(path, f"does not fit the model: `model.{large}` is too large", getattr(model, large), MOST)
    features = _features(read, cell, state)
    weights = {name.removeprefix(MODEL): tensor for name, tensor in state.items() if name.startswith(MODEL)}

    # Each model has its own resident cell, because the tensors that a model keeps there have no memory yet either.
    resident, outputs = ResidentCell.of(cell), len(about.phenotypes)
    without_memory = Unfilled() if built_in else nullcontext()
    with torch.device("meta" if built_in else "cpu"), without_memory, at_most(4 * len(state) + 100, path):
        planned = make_model(model, resident, outputs, features)
        planned.make_room(weights)
    expected = {MODEL + name: weight for name, weight in planned.state_dict().items()}
    expected |= {f"normaliser.{name}": torch.empty(outputs) for name in NORMALISER}
    differing = misfits(state, expected, precision_of(about.config))
    if differing:
        raise refuse(path, "does not fit the model", listing(differing, 5), "the weights that its configuration has")
    made = make_model(model, ResidentCell.of(cell), outputs, features)
    made.make_room(weights)
    made.load_state_dict(weights)
    nulls = made.find(NullShare)
    if nulls is not None:
        nulls.read = partial(PackedNulls.unpack, cell=cell)
        try:
            nulls.predictor()
        except ValueError as error:
            raise refuse(path, "is damaged: `null_share.packed` is wrong", error) from error
    link = made.find(Link)
    measured = None if link is None else link.measured
    if measured is not None and not measured.fits(cell.num_nodes[GENE]):
        raise refuse(path, "is damaged: its measured strains are wrong", expected="genes of the cell graph")
    return made


def _features(read: ReadCheckpoint, cell: CellGraph, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return node type → [N, F] fixed input features, which are kept among the weights.

    Raises:
        CheckpointError: the features are not tables of this cell graph's nodes.
    """
    matches = {name: re.fullmatch(r"model\.(?:encoder\.)?features\.(\w+)", name) for name in state}
    features = {match[1]: state[name] for name, match in matches.items() if match is not None}
    for node_type, table in features.items():
        if table.ndim != 2 or len(table) != cell.num_nodes.get(node_type):
            got = shape_of(table)
            raise refuse(read.path, f"does not fit the cell graph: features of '{node_type}' are wrong", got)
    return features


class Unfilled(TorchFunctionMode):
    """Skip normal random numbers of tensors that have no memory: torch would import its compiler for them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") == "normal_":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@contextmanager
def at_most(weights: int, path: Path) -> Iterator[None]:
    """Refuse a checkpoint whose model has many more weights than the checkpoint, before all of them are made.

    Raises:
        CheckpointError: modules made inside the context have more weights than this.
    """
    made = 0

    def count(module: nn.Module, name: str, weight: object) -> None:
        nonlocal made
        made += 1
        if made > weights:
            raise refuse(path, "does not fit the model", "too few weights", "those that its configuration has")

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def precision_of(config: Config) -> torch.dtype:
    """Return the type in which a run keeps its weights."""
    return torch.float64 if config.trainer.lightning_precision == "64-true" else torch.float32


def misfits(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], floats: torch.dtype) -> list[str]:
    """Describe in a few words each weight that differs from what a model has.

    Args:
        found: name → weight of a checkpoint.
        expected: name → weight of a model, whose memory is not read.
        floats: type in which the run kept its numbers.
    """
    return (
        [f"no `{name}`" for name in expected if name not in found]
        + [f"`{name}`, which is no weight" for name in found if name not in expected]
        + [
            f"`{name}` {shape_of(found[name])} instead of {shape_of(weight, floats)}"
            for name, weight in expected.items()
            if name in found and shape_of(found[name]) != shape_of(weight, floats)
        ]
    )


def shape_of(tensor: Tensor, floats: torch.dtype | None = None) -> str:
    """Return type and shape of a tensor as text; ``floats`` replaces the type of a floating-point tensor."""
    dtype = floats if floats is not None and tensor.is_floating_point() else tensor.dtype
    return f"{str(dtype).removeprefix('torch.')} {list(tensor.shape)}"


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
    "trainer.progress",
    "trainer.threads",
    "trainer.timeout",
    "trainer.checkpoint",
    "data.eval_batch_size",
    "data.store",  # its content is checked by hash
)


SETTLED_KEYS = ("model.conditions", "model.nodes", "model.strength_curves")
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
    refuse_changes(read_config(directory), config, where=f"the run in '{directory.path}'")
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
    path, about = checkpoint.path, checkpoint.about
    refuse_changes(about.config, config, where=f"checkpoint '{path}'")
    for what, old, new in (
        ("cell graph", about.cell_sha256, cell.sha256),
        ("gene vocabulary", about.gene_vocabulary_sha256, cell.genes.sha256),
        ("split", about.split_sha256, split.sha256),
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
