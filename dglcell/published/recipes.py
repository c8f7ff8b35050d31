"""Tables that are made from files of public repositories, and how; the recipes themselves are ``recipes.yaml``."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from dglcell.errors import DataError
from dglcell.files.atomic import atomic_file
from dglcell.published.download import RemoteFile, check_file, fetch

ORIGINALS = "originals"
"""Folder inside the raw folder for what recipes download."""


@dataclass(frozen=True)
class Recipe:
    """How a table is made.

    Attributes:
        path: of the table, inside the raw folder; a gzip file.
        description: what it holds.
        citation: the publication.
        licence: as its publisher states it.
        downloads: files that it is made from; each of a fixed version, with its hash.
        convert: name of the conversion; see `dglcell.published.conversions`.
        sha256: of the table, unpacked.
        size: of the table in bytes, unpacked.
        arguments: of the conversion.
    """

    path: str
    description: str
    citation: str
    licence: str
    downloads: tuple[RemoteFile, ...]
    convert: str
    sha256: str
    size: int
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def table(self) -> RemoteFile:
        """What is known of the table's bytes."""
        return RemoteFile("", self.path, content=self.sha256)


def download_size(files: Iterable[RemoteFile]) -> int:
    """Bytes of files, each counted once whatever addresses it has; 0 where that of one is not known."""
    sizes = {file.name: file.size for file in files}
    return 0 if None in sizes.values() else sum(size or 0 for size in sizes.values())


def make(recipe: Recipe, folder: str | Path) -> Path:
    """The table inside ``folder``, made from downloads unless it is there; checked in either case.

    Args:
        recipe: how it is made.
        folder: the raw folder. Downloads go to `ORIGINALS` in it, and stay there.

    Raises:
        DataError: a file cannot be downloaded, or it or the table is not what it should be.
    """
    target = Path(folder) / recipe.path
    if target.is_file():
        check_file(recipe.table, target)
        return target
    originals = [fetch(file, folder) for file in recipe.downloads]
    from dglcell.published.conversions import convert

    content = convert(recipe.convert, originals, recipe.arguments)
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != recipe.sha256:
        raise DataError(
            f"'{recipe.path}' was made from the right files, but is not the table it should be",
            got=f"{len(content):,} bytes, sha256 {sha256}",
            expected=f"{recipe.size:,} bytes, sha256 {recipe.sha256}",
            do="install the newest pandas and rdata, and try again; or report it with their versions",
        )
    with atomic_file(target) as partial:
        # Without a time in it, the same table has the same bytes.
        partial.write_bytes(gzip.compress(content, mtime=0))
    return target


def _original(url: str, sha256: str, size: int) -> RemoteFile:
    """A file of a repository; its owner and name keep it apart from others."""
    _, _, _, owner, repository, *_, name = url.split("/")
    return RemoteFile(url, f"{ORIGINALS}/{owner}+{repository}/{name}", sha256, size)


def _read() -> dict[str, Recipe]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = yaml.load(files("dglcell.published").joinpath("recipes.yaml").read_text(encoding="utf-8"), Loader=loader)
    return {
        path: Recipe(path, downloads=tuple(_original(**file) for file in fields.pop("downloads")), **fields)
        for path, fields in content.items()
    }


RECIPES = _read()
"""Path in the raw folder → how the table is made."""
