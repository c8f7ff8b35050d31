"""Read checkpoints, make models from them, and continue a run from one."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dglcell.baselines.problem import Baseline
from dglcell.config.experiment import Config
from dglcell.config.read import as_plain_text, parse_config, parse_yaml, to_yaml
from dglcell.data.dataset import Normaliser
from dglcell.data.split import Split
from dglcell.errors import CheckpointError, ConfigError, DglcellError, OwnClassError, count, listing
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.models.model import StrainModel, make_model
from dglcell.report.run_files import read_run_config
from dglcell.runs import RunDirectory
from dglcell.trained_models import cell_of_run

log = logging.getLogger("dglcell")

SCHEMA_VERSION = 2

MODEL = "model."  # with which names of weights begin


class ReadCheckpoint:
    """A checkpoint file that was read, with the validated configuration of its run, and hashes of what it is made of.

    ``epoch``, from 0, was finished or is to be continued (``unfinished``). Where a run shall go on (``to_continue``),
    the file must have more than predictions need.
    """

    def __init__(self, path: Path, *, to_continue: bool = True) -> None:
        self.path = path
        self.content = content = read_checkpoint(path)
        continuing = ("loops", "callbacks", "optimizer_states", "lr_schedulers", "unfinished", "rng")
        wanted = ("epoch", "global_step", *(continuing if to_continue else ()))
        missing = [name for name in wanted if name not in content]
        if missing:
            raise refuse(path, f"is damaged: `{missing[0]}` is missing")
        about = content["dglcell"]
        try:
            where = "its configuration"
            self.config = parse_config(parse_yaml(about["config"], where=where), where=where)
            self.config.validate()
            hashes = (str(about[f"{what}_sha256"]) for what in ("cell", "split", "gene_vocabulary"))
            self.cell_sha256, self.split_sha256, self.gene_vocabulary_sha256 = hashes
            self.phenotypes, self.units = (tuple[str, ...](about[name]) for name in ("phenotypes", "units"))
        except OwnClassError:
            raise  # the checkpoint is right, but a class of the user's own is in another folder
        except (DglcellError, KeyError, TypeError) as error:
            raise refuse(path, "is damaged: it describes its run wrongly", " ".join(str(error).split())) from error
        self.epoch, self.global_step = int(content["epoch"]), int(content["global_step"])
        self.unfinished = content.get("unfinished") is not None


def refuse(path: Path, what: str, got: object = None, expected: object = None) -> CheckpointError:
    """Return the error for a checkpoint that cannot be used."""
    do = "use another checkpoint of the run (`resume=PATH`, `--checkpoint`), or train again"
    return CheckpointError(f"checkpoint '{path}' {what}", got=got, expected=expected, do=do)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Load a checkpoint file with torch, tensors and plain containers only."""
    try:
        with zipfile.ZipFile(path) as file:
            torn = file.testzip()  # torch does not check the checksums
            if torn is not None:
                raise zipfile.BadZipFile(f"'{torn}' in it does not fit its checksum")
            if any(name.endswith("/constants.pkl") for name in file.namelist()):
                raise zipfile.BadZipFile("a program in TorchScript")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the parsers of zip and pickle may raise anything
        # torch's own words advise to load the file unsafely.
        reason = f": {error}" if isinstance(error, (OSError, zipfile.BadZipFile)) else ""
        expected = "a complete file of tensors and plain containers"
        raise refuse(path, "cannot be read", f"{type(error).__name__}{reason}", expected) from error
    about = content.get("dglcell") if isinstance(content, dict) else None
    if not (isinstance(about, dict) and isinstance(content.get("state_dict"), dict)):
        raise CheckpointError(f"'{path}' is not a checkpoint of dglcell", expected="a .ckpt file of `dglcell train`")
    if (schema := about.get("schema")) != SCHEMA_VERSION:
        what = "was written by another version of dglcell"
        raise refuse(path, what, f"schema {schema}", f"schema {SCHEMA_VERSION}")
    return content


@dataclass(frozen=True)
class Chosen:
    """Say what predicts a phenotype: the network, a baseline, or both, each with a weight."""

    name: str  #: what it is called in the table of results
    baseline: Baseline | None = None  #: the fitted baseline; None where the network predicts alone
    weight: float = 0.0  #: weight of the baseline, from 0 to 1; that of the network is the rest
    #: whether it was the best on the validation part, so that the intervals of the run are its own
    is_best: bool = True
    why: str = ""  #: the scores by which the best was chosen, in words


@dataclass(frozen=True)
class Trained:
    """Hold the model of a checkpoint with everything that predictions need."""

    model: StrainModel  #: the model in evaluation mode
    normaliser: Normaliser  #: label statistics of its training part
    config: Config  #: configuration of its run
    cell: CellGraph  #: its cell graph
    phenotypes: tuple[str, ...]  #: T names
    units: tuple[str, ...]  #: T units
    epoch: int  #: the epoch after which the checkpoint was written
    path: Path  #: path of the checkpoint
    split_sha256: str  #: SHA-256 of the split that it was trained on
    run: RunDirectory  #: directory of its run
    #: phenotype → what predicts it (`dglcell.training.predicting`); the network predicts the others
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
    """Load the model of a run from a checkpoint: a name of ``CHECKPOINTS``, a path, or the one that is configured."""
    if not directory.path.is_dir():
        raise CheckpointError(f"run directory '{directory.path}' not found", do="give the path that `train` printed")
    config = read_run_config(directory)
    path = directory.checkpoint(checkpoint or config["trainer"]["checkpoint"])
    read = ReadCheckpoint(path, to_continue=False)
    if read.config.seed != config["seed"]:
        raise refuse(path, "belongs to another run", f"seed {read.config.seed}", f"seed {config['seed']}")
    state = read.content["state_dict"]
    cell = cell or cell_of_run(directory)
    if cell.sha256 != read.cell_sha256:
        raise refuse(path, "belongs to another cell graph", cell.sha256[:12], read.cell_sha256[:12])
    if cell.genes.sha256 != read.gene_vocabulary_sha256:
        raise refuse(path, "is damaged: it names other genes than those of its cell graph")
    try:
        normaliser = Normaliser(read.config.data.normalise, state["normaliser.shift"], state["normaliser.scale"])
    except KeyError as error:
        raise refuse(path, f"is damaged: {error} is missing") from error
    of_run = read.config, cell, read.phenotypes, read.units, read.epoch, path, read.split_sha256, directory
    return Trained(_read_model(read, cell, state).eval(), normaliser, *of_run)


def _read_model(read: ReadCheckpoint, cell: CellGraph, state: Mapping[str, Tensor]) -> StrainModel:
    """Make the model of a checkpoint, which must have exactly the weights that its configuration asks for."""
    weights = {name.removeprefix(MODEL): tensor for name, tensor in state.items() if name.startswith(MODEL)}
    matches = {name: re.fullmatch(r"(?:encoder\.)?features\.(\w+)", name) for name in weights}
    features = {match[1]: weights[name] for name, match in matches.items() if match is not None}
    try:
        made = make_model(read.config.model, ResidentCell.of(cell), len(read.phenotypes), features)
        made.load_state_dict(weights)
    except (RuntimeError, ValueError, IndexError) as error:
        raise refuse(read.path, "does not fit the model", error, "the weights that its configuration has") from error
    return made


FREE_KEYS = (
    *("resume", "plot", "baselines", "paths", "tracking", "slurm", "experiment", "data.eval_batch_size"),
    *("trainer.epochs", "trainer.threads", "trainer.timeout", "trainer.checkpoint"),
    "data.store",  # its content is checked by hash
)
"""Keys that may differ between a run and its continuation."""


def resume_from(config: Config) -> ReadCheckpoint | None:
    """Read and check the checkpoint that this run continues; return None to start anew.

    `resume: auto` continues the run directory's last checkpoint if there is one; `never` refuses to overwrite a run;
    a path must exist, and starts a run of its own.
    """
    directory = RunDirectory(config.run_directory)
    chosen = None if config.resume in ("auto", "never") else directory.checkpoint(config.resume)
    if not directory.is_started():
        return None if chosen is None else ReadCheckpoint(chosen)
    if config.resume == "never":
        what = f"'{directory.path}' holds a run already, and `resume: never` was asked for"
        raise CheckpointError(what, do="change `experiment.name` or `seed`, or set `resume: auto`")
    newest = newest_checkpoint(directory)
    if chosen is not None and chosen.resolve() != newest.path.resolve():
        what = f"'{directory.path}' holds a run already, which going on from '{chosen}' would overwrite"
        raise CheckpointError(what, do="set `resume: auto` to continue it, or set another `experiment.name`")
    for path in (directory.config, directory.split, directory.cell):
        if not path.exists():
            what = f"'{directory.path}' cannot be continued: '{path.name}' is missing"
            raise CheckpointError(what, do="put it back, or remove the directory to start anew")
    before = parse_config(read_run_config(directory), where=str(directory.config))
    refuse_changes(before, config, where=f"the run in '{directory.path}'")
    return newest


def newest_checkpoint(directory: RunDirectory) -> ReadCheckpoint:
    """Return the checkpoint of the last finished epoch or of a later interruption, passing over one that is torn."""
    found, unreadable = list[ReadCheckpoint](), list[CheckpointError]()
    for path in filter(os.path.lexists, (directory.interrupted, directory.last)):
        try:
            found.append(ReadCheckpoint(path))
        except CheckpointError as error:
            unreadable.append(error)
    if not found:
        raise unreadable[-1]
    for problem in unreadable:
        log.warning("passed over: %s", problem)
    return max(found, key=lambda one: one.global_step)


def starting_point(checkpoint: ReadCheckpoint | None, config: Config) -> tuple[int, bool]:
    """Log what the run continues from; return the epoch that training begins with, and whether nothing is left."""
    if checkpoint is None:
        log.info("training from scratch: no checkpoint in %s", config.run_directory)
        return 0, False
    path, epoch = checkpoint.path, checkpoint.epoch + 1
    if checkpoint.unfinished:
        log.info("continuing from %s, in epoch %d, step %d", path, epoch, checkpoint.global_step)
        return checkpoint.epoch, False
    log.info("continuing from %s, written after epoch %d", path, epoch)
    stopping = [of for name, of in checkpoint.content["callbacks"].items() if name.startswith("EarlyStopping")]
    if epoch >= config.trainer.epochs:
        log.info("training is finished after %s; evaluating", count(epoch, "epoch"))
    elif any(state.get("wait_count", 0) >= state.get("patience", 1) for state in stopping):
        log.info("training stopped early after epoch %d; evaluating", epoch)
    else:
        return epoch, False
    return epoch, True


def check_continues(checkpoint: ReadCheckpoint, config: Config, cell: CellGraph, split: Split) -> None:
    """Refuse to continue a checkpoint with other settings, another cell graph or another split."""
    refuse_changes(checkpoint.config, config, where=f"checkpoint '{checkpoint.path}'")
    for what, old, new in (
        ("cell graph", checkpoint.cell_sha256, cell.sha256),
        ("gene vocabulary", checkpoint.gene_vocabulary_sha256, cell.genes.sha256),
        ("split", checkpoint.split_sha256, split.sha256),
    ):
        if old != new:
            found = (f"{what} {sha256[:12]}" for sha256 in (new, old))
            raise refuse(checkpoint.path, f"was trained with another {what}", *found)


def refuse_changes(old: Config, config: Config, *, where: str) -> None:
    """Refuse to continue with settings other than those a run was started with, except for ``FREE_KEYS``."""
    before, after = (_flat(as_plain_text(dataclasses.asdict(each))) for each in (old, config))
    # Where these keys are null, a run records what its strains have, and its continuation may leave them null again.
    settled = [key for key in ("model.covariates", "model.activity_curves") if after.get(key, "") is None]
    changed = [
        f"{key}: {before.get(key)} → {after.get(key)}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
        and not any(key == free or key.startswith(free + ".") for free in [*FREE_KEYS, *settled])
    ]
    if changed:
        do = "change `experiment.name` or `seed`, or remove the run directory"
        raise ConfigError(f"{where} has another configuration", got=listing(changed), do=do)


def _flat(value: object, prefix: str = "") -> dict[str, object]:
    if isinstance(value, dict) and value:
        return {k: v for name, item in value.items() for k, v in _flat(item, f"{prefix}{name}.").items()}
    return {prefix.rstrip("."): value}
