"""All published files that are known by name; they are declared in ``files.yaml``."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

from dglcell.published.file import PublishedFile, Recipe

ORIGINALS = "originals"
"""Folder inside the raw folder for what tables are made from."""


def read_declarations(package: str, name: str) -> dict[str, Any]:
    """The content of a YAML file inside a package."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content: dict[str, Any] = yaml.load(files(package).joinpath(name).read_text(encoding="utf-8"), Loader=loader)
    return content


def _file(path: str, fields: dict[str, Any]) -> PublishedFile:
    made = fields.pop("made", None)
    if made is not None:
        made["originals"] = tuple(_original(**original) for original in made["originals"])
    return PublishedFile(path, tuple(fields.pop("urls", ())), made=Recipe(**made) if made else None, **fields)


def _original(url: str, sha256: str, size: int) -> PublishedFile:
    """A file of a repository; its owner and name keep it apart from others."""
    _, _, _, owner, repository, *_, name = url.split("/")
    return PublishedFile(f"{ORIGINALS}/{owner}+{repository}/{name}", (url,), sha256, size)


FILES = {path: _file(path, fields) for path, fields in read_declarations("dglcell.published", "files.yaml").items()}
"""Path in the raw folder → file."""
