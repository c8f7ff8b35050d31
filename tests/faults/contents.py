"""What is in a folder, as plain containers that can be compared; reading it finds every file that is torn."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import torch
import yaml

from dglcell.data.store import verify_store
from dglcell.training.checkpoint import read_checkpoint

IGNORED = ("seconds", "wall_seconds", "peak_memory_bytes", "peak_resident_bytes", "created", "current_score")
"""Keys of what differs from run to run. The last one is Lightning's note of the last checkpoint that was a best one: it
does not read it back."""


def contents(folder: Path) -> dict[str, Any]:
    """Path → content of all files under their final names.

    Raises:
        Exception: a file is torn.
    """
    return {str(path.relative_to(folder)): content(path) for path in _files(folder) if not is_unfinished(path, folder)}


def unfinished(folder: Path) -> list[str]:
    """Return files and folders under temporary names."""
    return [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if is_unfinished(path, folder)]


def is_unfinished(path: Path, folder: Path) -> bool:
    """Return whether it has a temporary name, or a folder that it is in does."""
    names = path.relative_to(folder).parts
    return any(
        (name[0] == "." and (".partial-" in name or "owner.json" in name)) or name.endswith((".partial", ".joined"))
        for name in names
    )


def differences(expected: dict[str, Any], folder: Path) -> list[str]:
    """In what a folder is not as it should be."""
    found = contents(folder)
    texts = [f"{name} is left behind" for name in unfinished(folder)]
    texts += [f"{name} is missing" for name in expected.keys() - found.keys()]
    texts += [f"{name} is too much" for name in found.keys() - expected.keys()]
    return texts + [f"{name} differs" for name in expected.keys() & found.keys() if expected[name] != found[name]]


def content(path: Path) -> Any:
    """Return what is in one file, without times."""
    if path.name == "data.mdb":
        return verify_store(path.parent).sha256
    if path.suffix == ".sha256":
        assert path.read_text(encoding="utf-8").strip() == _hash(path.with_suffix(""))
        return "the hash of the file beside it"
    if path.suffix == ".ckpt":
        return _plain(read_checkpoint(path))
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {name: _plain(arrays[name]) for name in arrays.files}
    if path.name.endswith("owner.json"):
        return sorted(json.loads(path.read_text(encoding="utf-8")))  # it says what process this is
    if path.suffix == ".json":
        return _plain(json.loads(path.read_text(encoding="utf-8")))
    if path.suffix == ".jsonl":
        return _rows(path)
    if path.suffix == ".yaml":
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.suffix == ".parquet":
        pq.read_table(path)
        return _hash(path)
    if path.suffix == ".csv":
        assert path.read_bytes().endswith(b"\n")
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file, strict=True))
        assert len({len(row) for row in rows}) == 1
        return rows
    return _picture(path)


def _picture(path: Path) -> str:
    """Pictures and pages; drawn at another time, they differ in a date at most."""
    if path.suffix == ".svg":
        ElementTree.parse(path)
    else:
        end = {".png": b"IEND\xaeB`\x82", ".html": b"</html>"}[path.suffix]
        assert path.read_bytes().rstrip().endswith(end)
    return path.suffix


def _rows(path: Path) -> list[Any]:
    """Epochs; the last line may be torn, which whoever reads the record leaves out."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return [_plain(json.loads(line)) for line in lines[:-1]]


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value)).hexdigest()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items() if key not in IGNORED}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
