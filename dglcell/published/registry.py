"""Collect all published files that are known by name; they are declared in ``files.yaml``."""

from __future__ import annotations

import importlib.resources
from dataclasses import replace
from typing import Any

import yaml

from dglcell.published.file import PublishedFile, Recipe

ORIGINALS = "originals"
"""Files from which tables are made are kept in this folder inside the raw folder."""


def read_declarations(package: str, name: str) -> dict[str, Any]:
    """Read a YAML file inside a package."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content: dict[str, Any] = yaml.load(
        importlib.resources.files(package).joinpath(name).read_text(encoding="utf-8"), Loader=loader
    )
    return content


def _file(path: str, fields: dict[str, Any]) -> PublishedFile:
    made = fields.pop("made", None)
    if made is not None:
        made["originals"] = tuple(_original(**original) for original in made["originals"])
    return PublishedFile(path, tuple(fields.pop("urls", ())), made=Recipe(**made) if made else None, **fields)


def _original(url: str, sha256: str, size: int) -> PublishedFile:
    """Make a file of a repository; the repository's owner and name keep it apart from others."""
    _, _, _, owner, repository, *_, name = url.split("/")
    return PublishedFile(f"{ORIGINALS}/{owner}+{repository}/{name}", (url,), sha256, size)


def _files() -> dict[str, PublishedFile]:
    declared = read_declarations("dglcell.published", "files.yaml")
    parts = {path: fields.pop("part") for path, fields in declared.items() if "part" in fields}
    files = {path: _file(path, fields) for path, fields in declared.items()}
    return files | {path: replace(files[path], part=files[part]) for path, part in parts.items()}


FILES = _files()
"""This maps paths in the raw folder to published files."""
