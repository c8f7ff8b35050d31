"""Start a run from the weights of another run, as far as the models of both have the same ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from dglcell.config.experiment import Config
from dglcell.data.config import EVALUATED, PARTS, TRAIN
from dglcell.data.split import Split
from dglcell.errors import CheckpointError, count, listing
from dglcell.files.atomic import sha256_file, write_json
from dglcell.models.model import StrainModel
from dglcell.report.run_files import read_run_config
from dglcell.runs.directory import RunDirectory
from dglcell.trained_models import find_run
from dglcell.training.checkpoint import MODEL, shape_of
from dglcell.training.checkpoint_file import PREDICTING, ReadCheckpoint
from dglcell.training.prepare import Prepared

log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class StartedFrom:
    """This record says which weights a run took from another run when it began.

    Attributes:
        checkpoint: path of the checkpoint that they came from.
        sha256: hash of that file.
        epoch: number of epochs that the other run had trained.
        parts: part of the model → how many of its weights were taken, and how many it has.
        trained_on: evaluated part of the split → how many of its strains trained the other run; None where that is not
            known, because the other run has another store, or no split beside its checkpoint.
    """

    checkpoint: str
    sha256: str
    epoch: int
    parts: dict[str, tuple[int, int]]
    trained_on: dict[str, int] | None

    def write(self, directory: RunDirectory) -> None:
        """Write the record into the directory of the new run."""
        write_json(directory.started_from, asdict(self))

    def __str__(self) -> str:
        """Name the checkpoint, the parts that were taken whole, and those that were not."""
        whole = [part for part, (taken, of) in self.parts.items() if taken == of]
        rest = [f"{part} ({taken} of {of} weights)" for part, (taken, of) in self.parts.items() if taken < of]
        new = f"; not, or not whole: {', '.join(rest)}" if rest else ""
        return f"'{self.checkpoint}' after {count(self.epoch, 'epoch')}: {', '.join(whole) or 'no part whole'}{new}"


def read_start(config: Config) -> ReadCheckpoint | None:
    """Read the checkpoint that `start_from` names; return None where it is null.

    Of a run, or of a trained model, it is the checkpoint that the run reports.

    Raises:
        CheckpointError: there is no such run or checkpoint, or it is damaged.
        DataError: a trained model cannot be fetched.
    """
    if config.start_from is None:
        return None
    path = Path(config.start_from)
    if path.suffix != ".ckpt" or not path.is_file():
        run = RunDirectory(find_run(config.start_from))
        path = run.checkpoint(read_run_config(run)["trainer"]["checkpoint"])
    return ReadCheckpoint(path, PREDICTING)


def take_weights(read: ReadCheckpoint, model: StrainModel, prepared: Prepared) -> StartedFrom:
    """Copy the weights of another run whose names and shapes the model has, too, and say which these are.

    Only trained weights are copied. What follows from the training strains, such as the scale of labels, is the new
    run's own.

    Raises:
        CheckpointError: the other run has another cell graph, or no weight that fits.
    """
    path, about = read.path, read.about
    if about.cell_sha256 != prepared.cell.sha256:
        raise CheckpointError(
            f"`start_from`: '{path}' belongs to another cell graph",
            got=f"cell {about.cell_sha256[:12]}",
            expected=f"cell {prepared.cell.sha256[:12]}, that of this run",
            do="give both experiments the same `cell`",
        )
    state = {name.removeprefix(MODEL): tensor for name, tensor in read.take()["state_dict"].items()}
    own = dict(model.named_parameters())
    taken = {name for name, weight in own.items() if name in state and state[name].shape == weight.shape}
    if not any(own[name].ndim > 1 for name in taken):  # a single bias is no start
        raise CheckpointError(
            f"`start_from`: no weight of '{path}' fits this model",
            got=_first_misfit(state, own),
            expected="some matrices of the same names and shapes",
            do="give both experiments the same keys of `model`, such as `model.hidden`",
        )
    with torch.no_grad():
        for name in taken:
            own[name].copy_(state[name])
    parts: dict[str, tuple[int, int]] = {}
    for name in own:
        part = name.partition(".")[0]
        so_far, of = parts.get(part, (0, 0))
        parts[part] = so_far + (name in taken), of + 1
    found = StartedFrom(str(path), sha256_file(path), read.epoch + 1, parts, _trained_on(path, prepared.split))
    log.info("starting from the weights of %s", found)
    if about.phenotypes != tuple(prepared.dataset.phenotypes):
        log.info("its heads of phenotypes were trained for %s", listing(about.phenotypes))
    _warn_of_tested(found, prepared.split)
    return found


def _first_misfit(state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> str:
    """Describe a weight that both models have in different shapes; else say that no name is the same."""
    name = next((name for name in own if name in state and state[name].shape != own[name].shape), None)
    if name is None:
        return "no weight of the same name"
    return f"`{name}` {shape_of(state[name])} instead of {shape_of(own[name])}"


def _trained_on(checkpoint: Path, split: Split) -> dict[str, int] | None:
    """Return how many strains of each evaluated part trained the run of a checkpoint, as `StartedFrom` has it."""
    beside = RunDirectory(checkpoint.parent.parent).split
    if not beside.is_file():
        return None
    other = Split.load(beside)
    if other.store_sha256 != split.store_sha256:
        return None
    trained = other.part == TRAIN
    return {part: int((trained & (split.part == PARTS.index(part))).sum()) for part in EVALUATED}


def _warn_of_tested(found: StartedFrom, split: Split) -> None:
    """Warn where the other run was trained on strains that this one is evaluated on, or may have been."""
    if found.trained_on is None:
        log.info("whether that run was trained on strains of this run's validation or test part is not known")
        return
    for part, number in found.trained_on.items():
        if number:
            log.warning(
                "%s strains of the %s part trained the run that this one starts from: results there may show memory "
                "instead of understanding, unless they had other labels there",
                f"{number:,} of {split.counts[part]:,}",
                part,
            )
