"""Read a checkpoint file: tensors and plain containers, or one error that names the file."""

from __future__ import annotations

import copy
import functools
import zipfile
from pathlib import Path
from typing import Any

import torch

from dglcell.config.experiment import KINDS, Config
from dglcell.config.read import parse_config, parse_yaml
from dglcell.errors import CheckpointError, DglcellError, OwnClassError

SCHEMA_VERSION = 2

REMEDY = "use another checkpoint of the run (`resume=PATH`, `--checkpoint`), or train again"

CONTINUING = ("loops", "callbacks", "optimizer_states", "lr_schedulers", "unfinished", "rng")
"""A run continues from these parts of a checkpoint, which predictions do not need."""


class ReadCheckpoint:
    """A read checkpoint is a checkpoint file that was read.

    Args:
        to_continue: whether it must have what a run needs to go on, beside what predictions need.

    Attributes:
        config: validated configuration of its run.
        cell_sha256, split_sha256, gene_vocabulary_sha256: hashes of the run's cell graph, split and gene vocabulary.
        phenotypes, units: T names, and T units.
        epoch: number of the epoch that was finished or is to be continued, from 0.
        global_step: number of optimiser steps before the checkpoint.
        unfinished: whether the epoch is to be continued.

    Raises:
        CheckpointError: the file is torn, not written by dglcell, of another schema, lacks a part, or its configuration
            is not valid.
    """

    def __init__(self, path: Path, *, to_continue: bool = True) -> None:
        self.path = path
        content = read_checkpoint(path)
        self._content: dict[str, Any] | None = content
        wanted = ("epoch", "global_step", *(CONTINUING if to_continue else ()))
        missing = [name for name in wanted if name not in content]
        if missing:
            raise refuse(path, f"is damaged: `{missing[0]}` is missing")
        about = content["dglcell"]
        try:
            self.config = read_recorded(about["config"])
            self.config.validate()
            hashes = (str(about[f"{what}_sha256"]) for what in ("cell", "split", "gene_vocabulary"))
            self.cell_sha256, self.split_sha256, self.gene_vocabulary_sha256 = hashes
            self.phenotypes, self.units = (tuple[str, ...](about[name]) for name in ("phenotypes", "units"))
        except OwnClassError:
            raise  # the checkpoint is right, but a class of the user's own is in another folder
        except (DglcellError, KeyError, TypeError) as error:
            raise refuse(path, "is damaged: what it says of its run is wrong", " ".join(str(error).split())) from error
        self.epoch, self.global_step = int(content["epoch"]), int(content["global_step"])
        self.unfinished = content.get("unfinished") is not None

    @property
    def content(self) -> dict[str, Any]:
        """Return the content of the checkpoint, which is there until it is taken."""
        assert self._content is not None
        return self._content

    def take(self) -> dict[str, Any]:
        """Return the content and keep it here no longer, so that its memory is free once the caller is done with it."""
        content, self._content = self.content, None
        return content


def refuse(path: Path, what: str, got: object = None, expected: object = None) -> CheckpointError:
    """Return the error for a checkpoint that cannot be used."""
    return CheckpointError(f"checkpoint '{path}' {what}", got=got, expected=expected, do=REMEDY)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Load a checkpoint file with torch, tensors and plain containers only.

    Raises:
        CheckpointError: the file is torn, not written by dglcell, or of another schema.
    """
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
        raise refuse(
            path, "cannot be read", f"{type(error).__name__}{reason}", "a complete file of tensors and plain containers"
        ) from error
    about = content.get("dglcell") if isinstance(content, dict) else None
    if not isinstance(about, dict) or not isinstance(content.get("state_dict"), dict):
        raise CheckpointError(
            f"'{path}' is not a checkpoint of dglcell",
            expected="a .ckpt file that `dglcell train` wrote, or a model that `dglcell models` wrote",
        )
    if about.get("schema") != SCHEMA_VERSION:
        raise CheckpointError(
            f"checkpoint '{path}' was written by another version of dglcell",
            got=f"schema {about.get('schema')}",
            expected=f"schema {SCHEMA_VERSION}",
            do="use the version that wrote it, or train again",
        )
    return content


def read_recorded(text: str) -> Config:
    """Return the configuration that a checkpoint holds as text, with every kind as it is known now."""
    if (known := _read_shipped(text)) is not None:
        return copy.deepcopy(known)
    return _read_config(text)


def _read_config(text: str) -> Config:
    where = "its configuration"
    return parse_config(parse_yaml(text, where=where), where=where)


@functools.lru_cache(maxsize=16)
def _read_shipped(text: str) -> Config | None:
    """Return a configuration, which takes a tenth of a second; None where it names classes of the user's own.

    Those may change while the process runs.
    """
    config = _read_config(text)
    kinds = [type(getattr(config, section)).__module__ for section in KINDS]
    return config if all(module.startswith("dglcell.") for module in kinds) else None
