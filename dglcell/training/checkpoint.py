"""Checkpoints: tensors and plain containers with a schema version."""

from __future__ import annotations

import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from dglcell.config import Config
from dglcell.config_io import parse_config, read_yaml, to_yaml
from dglcell.data.split import Split
from dglcell.data.transform import Normaliser
from dglcell.errors import CheckpointError
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.models.build import make_model
from dglcell.models.model import StrainModel
from dglcell.training.directory import RunDirectory

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
    path = directory.checkpoint(checkpoint or read_config(directory).trainer.evaluate)
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
    model = make_model(config.model, ResidentCell(cell.graph), len(about["phenotypes"]), features)
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
