"""Read a checkpoint file without trust, and check field by field what it must hold."""

from __future__ import annotations

import copy
import functools
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dglcell.config.experiment import KINDS, Config
from dglcell.config.read import parse_config, parse_yaml, without_removed
from dglcell.errors import CheckpointError, DglcellError, OwnClassError, listing
from dglcell.files.untrusted import (
    COUNT,
    LIST,
    MAPPING,
    NAMES,
    SHA256,
    TEXT,
    Kind,
    find_wrong,
    is_count,
    list_of,
    mapping_of,
)

SCHEMA_VERSION = 2

REMEDY = "use another checkpoint of the run (`resume=PATH`, `--checkpoint`), or train again"


def _is_generator_state(value: Any) -> bool:
    """Return whether torch's generator on the host accepts a value as its state."""
    try:
        torch.Generator().set_state(value)
    except (RuntimeError, TypeError):
        return False
    return True


def _is_optimizer_state(value: Any) -> bool:
    """Return whether a value is the state of one optimiser: groups of weights, and the state of each weight."""
    only = value[0] if isinstance(value, list) and len(value) == 1 else None
    kept, groups = (only.get(key) if isinstance(only, Mapping) else None for key in ("state", "param_groups"))
    return isinstance(kept, Mapping) and all(isinstance(v, Mapping) for v in kept.values()) and isinstance(groups, list)


def _is_callback_state(value: Any) -> bool:
    """Return whether a value maps names to states; those that are read before training begins are numbers."""
    return isinstance(value, Mapping) and all(is_count(value.get(key, 0)) for key in ("wait_count", "patience"))


def _is_unfinished(value: Any) -> bool:
    """Return whether a value holds what an epoch's metrics need of its first steps: three tensors of rows."""
    if value is None:
        return True
    seen, seconds = (value.get(key) for key in ("seen", "seconds")) if isinstance(value, Mapping) else (None, None)
    rows = isinstance(seen, list) and len(seen) == 3 and all(isinstance(s, Tensor) and s.ndim > 1 for s in seen)
    return rows and type(seconds) is float and 0 <= seconds < float("inf")


TENSORS = mapping_of(Kind("a tensor", lambda v: isinstance(v, Tensor)))

PREDICTING = {
    "dglcell.config": TEXT,
    "dglcell.cell_sha256": SHA256,
    "dglcell.split_sha256": SHA256,
    "dglcell.gene_vocabulary_sha256": SHA256,
    "dglcell.phenotypes": NAMES,
    "dglcell.units": list_of(TEXT),
    "epoch": COUNT,
    "global_step": COUNT,
    "state_dict": TENSORS,
}
"""This table maps dotted paths to the kinds of their values, for every checkpoint that is used."""

CONTINUING = {
    **PREDICTING,
    "pytorch-lightning_version": Kind("a version", lambda v: isinstance(v, str) and v[:1].isdecimal()),
    "loops.fit_loop": MAPPING,
    "callbacks": mapping_of(Kind("a state with numbers", _is_callback_state)),
    "optimizer_states": Kind("a list of one state", _is_optimizer_state),
    "lr_schedulers": LIST,
    "unfinished": Kind("nothing, or what an unfinished epoch has seen", _is_unfinished),
    "rng.cpu": Kind("the state of torch's generator", _is_generator_state),
}
"""This table is the same for a checkpoint from which a run continues."""


@dataclass(frozen=True)
class About:
    """This is what a checkpoint records about its run.

    Attributes:
        config: validated configuration of the run.
        cell_sha256, split_sha256, gene_vocabulary_sha256: hashes of the cell graph, the split and the gene vocabulary.
        phenotypes: T names.
        units: T units.
    """

    config: Config
    cell_sha256: str
    split_sha256: str
    gene_vocabulary_sha256: str
    phenotypes: tuple[str, ...]
    units: tuple[str, ...]


class ReadCheckpoint:
    """A read checkpoint is a checkpoint file that was read and checked.

    Args:
        fields: the fields that it must have, ``PREDICTING`` or ``CONTINUING``.

    Attributes:
        about: what it records about its run.
        epoch: number of the epoch that was finished or is to be continued, from 0.
        global_step: number of optimiser steps before the checkpoint.
        unfinished: whether the epoch is to be continued.

    Raises:
        CheckpointError: the file is torn, damaged, not written by dglcell, or of another schema; or a field is wrong.
    """

    def __init__(self, path: Path, fields: Mapping[str, Kind] = CONTINUING) -> None:
        self.path = path
        content = read_checkpoint(path, fields)
        self._content: dict[str, Any] | None = content
        self.about = read_about(content["dglcell"], path)
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


def read_checkpoint(path: Path, fields: Mapping[str, Kind] = PREDICTING) -> dict[str, Any]:
    """Load a checkpoint file, and check its fields and the checksums of all its tensors, which torch does not check.

    Raises:
        CheckpointError: the file is torn, damaged, not written by dglcell, or of another schema; or a field is wrong.
    """
    content = _load(path)
    about = content.get("dglcell") if isinstance(content, dict) else None
    if not isinstance(about, dict) or "state_dict" not in content:
        raise CheckpointError(
            f"'{path}' is not a checkpoint of dglcell",
            expected="a .ckpt file that `dglcell train` wrote, or a model that `dglcell models` wrote",
        )
    schema = about.get("schema", 0)
    if not is_count(schema):
        raise refuse(path, "is damaged: `dglcell.schema` is wrong", repr(schema)[:60], f"schema {SCHEMA_VERSION}")
    if schema != SCHEMA_VERSION:
        newer = schema > SCHEMA_VERSION
        raise CheckpointError(
            f"checkpoint '{path}' was written by {'a newer' if newer else 'an older'} dglcell",
            got=f"schema {schema}",
            expected=f"schema {SCHEMA_VERSION}",
            do="upgrade dglcell" if newer else "use the version that wrote it, or train again",
        )
    odd = next((name for name, tensor in tensors_in(content) if not is_plain(tensor)), None)
    if odd is not None:
        raise refuse(path, f"is damaged: `{odd}` is no plain tensor", expected="all its numbers in the file")
    wrong = find_wrong(content, fields)
    if wrong is not None:
        raise refuse(path, f"is damaged: {wrong.what}", wrong.got, wrong.expected)
    _refuse_not_finite(path, content, fields)
    return content


def _load(path: Path) -> Any:
    """Load a file with torch, tensors and plain containers only, if its parts are whole and no larger than the file.

    Raises:
        CheckpointError: the file cannot be read. torch's words, which advise to load it unsafely, are left out.
    """
    try:
        size = path.stat().st_size
        with zipfile.ZipFile(path) as file:
            declared = sum(member.file_size for member in file.infolist())
            if declared > size:
                raise zipfile.BadZipFile(f"parts of {declared:,} bytes in a file of {size:,}")
            torn = file.testzip()
            if any(name.endswith("/constants.pkl") for name in file.namelist()):
                raise zipfile.BadZipFile("a program in TorchScript")
        if torn is not None:
            raise zipfile.BadZipFile(f"'{torn}' in it does not fit its checksum")
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the parsers of zip and pickle may raise anything
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f": {error}" if isinstance(error, (OSError, zipfile.BadZipFile)) else ""
        raise CheckpointError(
            f"checkpoint '{path}' cannot be read",
            got=f"the object '{named[1]}' in it" if named else f"{type(error).__name__}{reason}",
            expected="a complete file of tensors and plain containers",
            do="it may be torn: use another checkpoint of the run (`resume=PATH`, `--checkpoint`), or remove it",
        ) from error


def tensors_in(content: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield dotted path and tensor of everything in nested containers; each container is visited once."""
    left, seen = [(name, content)], set[int]()
    while left:
        path, value = left.pop()
        if isinstance(value, Tensor):
            yield path, value
        elif isinstance(value, (Mapping, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            left += [(f"{path}.{key}".lstrip("."), item) for key, item in items]


FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
INTEGERS = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def is_plain(tensor: Tensor) -> bool:
    """Return whether all numbers of a tensor are on the host, of a usual type, and each in its own place in memory."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.dtype in FLOATS | INTEGERS
        and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
    )


def _refuse_not_finite(path: Path, content: dict[str, Any], fields: Mapping[str, Kind]) -> None:
    """Refuse weights and optimiser states that are not finite, and a scale that is not above 0.

    Labels that a loss has kept may be NaN, because they may be missing.
    """
    state = {name: tensor for name, tensor in content["state_dict"].items() if not name.startswith("loss.")}
    parts = {"state_dict": state}
    if "optimizer_states" in fields:
        parts["optimizer_states"] = content["optimizer_states"]
    for name, tensor in tensors_in(parts):
        if not tensor.isfinite().all():
            bad = int((~tensor.isfinite()).sum())
            raise refuse(path, f"is damaged: `{name}` is not finite", f"{bad:,} of {tensor.numel():,} numbers")
    scale = state.get("normaliser.scale")
    if scale is not None and not (scale > 0).all():
        raise refuse(path, "is damaged: `normaliser.scale` is no scale", float(scale.min()), "more than 0")


def read_recorded(text: str) -> Config:
    """Return the configuration that a checkpoint holds as text, with every kind as it is known now."""
    if (known := _read_shipped(text)) is not None:
        return copy.deepcopy(known)
    return _read_config(text)


def _read_config(text: str) -> Config:
    where = "its configuration"
    return parse_config(without_removed(parse_yaml(text, where=where)), where=where)


@functools.lru_cache(maxsize=16)
def _read_shipped(text: str) -> Config | None:
    """Return a configuration, which takes a tenth of a second; None where it names classes of the user's own.

    Those may change while the process runs.
    """
    config = _read_config(text)
    kinds = [type(getattr(config, section)).__module__ for section in KINDS]
    return config if all(module.startswith("dglcell.") for module in kinds) else None


def read_about(about: Mapping[str, Any], path: Path) -> About:
    """Read what a checkpoint records about its run, with the configuration as this version reads it.

    Args:
        about: the mapping with the fields of ``PREDICTING``.

    Raises:
        CheckpointError: the configuration is not valid, or does not agree with the rest.
    """
    try:
        config = read_recorded(about["config"])
        config.validate()
    except OwnClassError:
        raise  # the checkpoint is right, but a class of the user's own is in another folder
    except DglcellError as error:
        raise refuse(path, "is damaged: `dglcell.config` is wrong", " ".join(str(error).split())) from error
    names, units = tuple(about["phenotypes"]), tuple(about["units"])
    if not isinstance(config.data.batch_size, int):
        raise refuse(path, "is damaged: `data.batch_size` of its configuration is no number", config.data.batch_size)
    if len(units) != len(names) or config.data.phenotypes not in (None, [], list(names)):
        raise refuse(
            path,
            "is damaged: its phenotypes do not agree",
            f"{listing(names)}; {len(units)} units; `data.phenotypes: {config.data.phenotypes}`",
            "the same names, and a unit for each",
        )
    cell, split, genes = (about[f"{what}_sha256"] for what in ("cell", "split", "gene_vocabulary"))
    return About(config, cell, split, genes, names, units)
