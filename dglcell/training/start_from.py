"""Start a run from the weights of another run, as far as the models of both have the same ones."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from dglcell.config.experiment import Config
from dglcell.data.config import EVALUATED, PARTS, TRAIN
from dglcell.data.split import Split
from dglcell.errors import CheckpointError, count, listing
from dglcell.models.model import StrainModel
from dglcell.report.run_files import read_run_config
from dglcell.runs.directory import RunDirectory
from dglcell.trained_models import find_run
from dglcell.training.checkpoint import MODEL
from dglcell.training.checkpoint_file import ReadCheckpoint
from dglcell.training.prepare import Prepared

log = logging.getLogger("dglcell")


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
    return ReadCheckpoint(path, to_continue=False)


def take_weights(read: ReadCheckpoint, model: StrainModel, prepared: Prepared) -> None:
    """Copy the weights of another run whose names and shapes the model has, too, and say which stay fresh.

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
    fresh = [name for name, weight in own.items() if name not in state or state[name].shape != weight.shape]
    if all(own[name].ndim < 2 for name in own.keys() - set(fresh)):  # a single bias is no start
        raise CheckpointError(
            f"`start_from`: no weight of '{path}' fits this model",
            got=listing(fresh),
            expected="some matrices of the same names and shapes",
            do="give both experiments the same keys of `model`, such as `model.hidden`",
        )
    with torch.no_grad():
        for name in own.keys() - set(fresh):
            own[name].copy_(state[name])
    log.info("starting from the weights of '%s' after %s", path, count(read.epoch + 1, "epoch"))
    if fresh:
        log.info("these weights are not in it, or of another shape: %s", listing(fresh))
    if about.phenotypes != tuple(prepared.dataset.phenotypes):
        log.info("its heads of phenotypes were trained for %s", listing(about.phenotypes))
    _warn_of_tested(path, prepared.split)


def _warn_of_tested(checkpoint: Path, split: Split) -> None:
    """Warn where the other run was trained on strains that this one is evaluated on, or may have been."""
    beside = RunDirectory(checkpoint.parent.parent).split
    other = Split.load(beside) if beside.is_file() else None
    if other is None or other.store_sha256 != split.store_sha256:
        log.info("whether that run was trained on strains of this run's validation or test part is not known")
        return
    for part in EVALUATED:
        number = int(((other.part == TRAIN) & (split.part == PARTS.index(part))).sum())
        if number:
            log.warning(
                "%s strains of the %s part trained the run that this one starts from: results there may show memory "
                "instead of understanding, unless they had other labels there",
                f"{number:,} of {split.counts[part]:,}",
                part,
            )
