"""Published files in the raw folder: where they lie, where they can be had, and whether they are the right ones."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dglcell.errors import DataError
from dglcell.files.atomic import find_raw
from dglcell.published.download import DECLARED, FIRST_USE, RemoteFile, check_content, check_file, read_record
from dglcell.published.recipes import RECIPES, Recipe

ARCHIVES = "archives"
"""Folder inside the raw folder for archives of which one file is used."""

UNCHECKED = "nothing to compare with"
"""Trust in a file whose publisher states no hash and which was put there by hand."""


@dataclass(frozen=True)
class RawFile:
    """A file as its publisher offers it.

    In the raw folder a copy packed with gzip, ``path`` with ``.gz`` at its end, is as good as the file: what is
    declared of the file is then compared with its content.

    Attributes:
        path: absolute, or relative to the working or the raw folder.
        url: where it can be downloaded; None where only a copy by hand will do.
        sha256: of its bytes, where it is known: never a guess.
        size: in bytes, where it is known.
        member: if the URL leads to an archive (.zip, .tgz), the file in it.
        archive_sha256: of that archive, where it is known.
        content: as of `RemoteFile`.
    """

    path: str
    url: str | None = None
    sha256: str | None = None
    size: int | None = None
    member: str | None = None
    archive_sha256: str | None = None
    content: str | None = None

    @property
    def name(self) -> str:
        """The last part of its path."""
        return Path(self.path).name

    @property
    def recipe(self) -> Recipe | None:
        """How it is made from published files, if it is."""
        return RECIPES.get(self.path)

    @property
    def downloads(self) -> tuple[RemoteFile, ...]:
        """What is downloaded to have it: a file, or those that it is made from, or nothing."""
        if self.recipe is not None:
            return self.recipe.downloads
        if self.url is None:
            return ()
        if self.member is not None:
            return (RemoteFile(self.url, f"{ARCHIVES}/{self.url.rpartition('/')[2]}", self.archive_sha256),)
        return (self.remote,)

    @property
    def addresses(self) -> list[str]:
        """All that is downloaded to have it; nothing where only a copy by hand will do."""
        return [file.url for file in self.downloads]

    @property
    def address(self) -> str:
        """Where it can be had, in words."""
        return self.url or "where it was published"

    @property
    def remote(self) -> RemoteFile:
        """What is known of its bytes."""
        return RemoteFile(self.address, self.path, self.sha256, self.size, self.content)

    def find(self, raw: str | None = None) -> Path:
        """Where it is, or its packed copy.

        Args:
            raw: the raw folder; see `find_raw`.

        Raises:
            DataError: it is not there; the message says where it can be had.
        """
        try:
            return find_raw(self.path, raw)
        except DataError as error:
            missing = error
        with suppress(DataError):
            return find_raw(f"{self.path}.gz", raw)
        if not self.addresses:
            raise missing
        raise DataError(
            f"raw file '{self.path}' not found",
            got="it is neither in the working folder nor in the raw folder (`--raw`, `DGLCELL_RAW`)",
            expected=("the table made" if self.recipe else "the file")
            + f" from {' and '.join(self.addresses)}"
            + (f", in it {self.member}" if self.member else ""),
            do="run `dglcell data fetch --all` with the experiment's file, where there is internet access",
        )

    def check(self, path: Path) -> Checked:
        """Compare what `find` found with the hash that is declared, or recorded when it was downloaded.

        Raises:
            DataError: it is another file, or cut off.
        """
        if self.sha256 is None and self.content is None:
            sha256 = check_file(RemoteFile(self.address, path.name), path)
            return Checked(sha256, FIRST_USE if read_record(path) else UNCHECKED)
        if path.name == self.name or self.sha256 is None:
            return Checked(check_file(self.remote, path), DECLARED)
        return Checked(check_content(path, self.sha256, f"remove it, and take it from {self.address}"), DECLARED)


@dataclass(frozen=True)
class Checked:
    """A file's hash and what it was compared with.

    Attributes:
        sha256: of its bytes as published.
        trust: `DECLARED`, `FIRST_USE` or `UNCHECKED`.
    """

    sha256: str
    trust: str

    def provenance(self) -> dict[str, Any]:
        """As plain containers."""
        return {"sha256": self.sha256, "trust": self.trust}
