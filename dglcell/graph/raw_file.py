"""Published files in the raw folder: where they lie, where they can be had, and whether they are the right ones."""

from __future__ import annotations

import gzip
import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dglcell.download import DECLARED, FIRST_USE, RemoteFile, check_file, read_record
from dglcell.errors import DataError
from dglcell.files import DAMAGE, find_raw

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
    """

    path: str
    url: str | None = None
    sha256: str | None = None
    size: int | None = None
    member: str | None = None
    archive_sha256: str | None = None

    @property
    def name(self) -> str:
        """The last part of its path."""
        return Path(self.path).name

    @property
    def address(self) -> str:
        """Where it can be had, in words."""
        return self.url or "where it was published"

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
        if self.url is None:
            raise missing
        raise DataError(
            f"raw file '{self.path}' not found",
            got="it is neither in the working folder nor in the raw folder (`--raw`, `DGLCELL_RAW`)",
            expected=f"the file from {self.url}" + (f", in it {self.member}" if self.member else ""),
            do="run `dglcell graph fetch` with the experiment's file, where there is internet access",
        )

    def check(self, path: Path) -> Checked:
        """Compare what `find` found with the hash that is declared, or recorded when it was downloaded.

        Raises:
            DataError: it is another file, or cut off.
        """
        if self.sha256 is None:
            sha256 = check_file(RemoteFile(self.address, path.name), path)
            return Checked(sha256, FIRST_USE if read_record(path) else UNCHECKED)
        if path.name == self.name:
            return Checked(check_file(RemoteFile(self.address, self.name, self.sha256, self.size), path), DECLARED)
        return Checked(self._check_content(path), DECLARED)

    def _check_content(self, path: Path) -> str:
        """The sha256 of what is inside a packed copy."""
        try:
            with gzip.open(path) as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        except DAMAGE as error:
            raise DataError(f"'{path}' is not a whole gzip file", got=str(error), do="copy it again") from error
        if sha256 != self.sha256:
            raise DataError(
                f"'{path}' does not hold the file it should",
                got=f"content with sha256 {sha256}",
                expected=f"sha256 {self.sha256}",
                do=f"remove it, and take it from {self.address}",
            )
        return sha256


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
