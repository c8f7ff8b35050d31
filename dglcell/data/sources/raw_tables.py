"""Raw tables of publications: where they are, how they are fetched, and their bytes."""

from __future__ import annotations

import gzip
import logging
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from dglcell.download import RemoteFile, check_file, fetch, read_record
from dglcell.errors import DataError
from dglcell.files import RAW_VARIABLE, find_raw, raw_folder

log = logging.getLogger(__name__)

GZIP_MAGIC, ZIP_SUFFIX = b"\x1f\x8b", ".zip"


@dataclass(frozen=True)
class RawTable:
    """A table of a publication.

    Attributes:
        copies: the files it can be read from, each the table itself or an archive that holds it; the first that is
            there is used. Several copies of one name are several addresses of one file.
        member: name of the table inside an archive, without folders.
        rows: number of its rows, without the header; None where unknown.
    """

    copies: tuple[RemoteFile, ...]
    member: str = ""
    rows: int | None = None


@dataclass(frozen=True)
class FoundTable:
    """A table that is here.

    Attributes:
        table: what it is.
        path: the file, or the archive that holds it.
        sha256: of that file.
        trust: how it is known that this is the right file.
    """

    table: RawTable
    path: Path
    sha256: str
    trust: str

    @property
    def name(self) -> str:
        """What the table is called, with the archive it is in."""
        return f"{self.path.name}/{self.table.member}" if self.path.suffix == ZIP_SUFFIX else self.path.name

    @property
    def is_sheet(self) -> bool:
        """Whether it is a spreadsheet."""
        return PurePosixPath(self.name).suffix == ".xlsx"

    def open(self) -> IO[bytes]:
        """Its bytes, unpacked.

        Raises:
            DataError: the archive is damaged or lacks the table.
        """
        if self.path.suffix == ZIP_SUFFIX:
            return self._open_member()
        with open(self.path, "rb") as file:
            packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        return cast(IO[bytes], gzip.open(self.path, "rb")) if packed else open(self.path, "rb")

    def _open_member(self) -> IO[bytes]:
        try:
            archive = zipfile.ZipFile(self.path)
        except zipfile.BadZipFile as error:
            raise DataError(f"'{self.path}' is no zip archive", got=error, do="copy or download it again") from None
        inside = [name for name in archive.namelist() if PurePosixPath(name).name == self.table.member]
        if not inside:
            raise DataError(
                f"'{self.path}' lacks '{self.table.member}'",
                got=", ".join(archive.namelist()) or "an empty archive",
                do="download it again, or unpack the table beside it",
            )
        return archive.open(inside[0])


def find_tables(tables: Iterable[RawTable], raw: str | None) -> list[FoundTable]:
    """The files of tables, checked against their hashes.

    Args:
        tables: what is wanted.
        raw: the raw folder; the environment variable ``DGLCELL_RAW`` where None.

    Raises:
        DataError: a table is not there, or its file is not the one it should be.
    """
    known: dict[Path, str] = {}
    found = []
    for table in tables:
        path, copy = locate(table, raw)
        if path not in known:
            known[path] = check_file(copy, path)
        found.append(FoundTable(table, path, known[path], _trust(copy, path)))
    return found


def _trust(copy: RemoteFile, path: Path) -> str:
    record = read_record(path)
    if copy.sha256 is not None:
        return "the hash is the declared one"
    if record is not None:
        return f"no hash is declared; this is the file first downloaded from {record.url} on {record.fetched}"
    return "no hash is declared, and the file was put there by hand"


def locate(table: RawTable, raw: str | None) -> tuple[Path, RemoteFile]:
    """The file of the first copy of a table that is here.

    Raises:
        DataError: none is.
    """
    for copy in table.copies:
        try:
            return find_raw(copy.name, raw), copy
        except DataError:
            continue
    names = dict.fromkeys(copy.name for copy in table.copies)
    folder = raw_folder(raw)
    urls = [copy.url for copy in table.copies if copy.url]
    raise DataError(
        f"raw file '{next(iter(names))}' not found",
        got=f"a raw folder '{folder}' without it" if folder else "no raw folder",
        expected=" or ".join(f"'{name}'" for name in names),
        do=f"set `{RAW_VARIABLE}` (or pass `--raw`) to the folder that holds it"
        + (f"; `dglcell data fetch` downloads it from {urls[0]}" if urls else ""),
    )


def is_here(tables: Iterable[RawTable], raw: str | None) -> bool:
    """Whether a file of each table is there; its hash is not looked at."""
    try:
        for table in tables:
            locate(table, raw)
    except DataError:
        return False
    return True


def fetch_tables(tables: Iterable[RawTable], raw: str | None) -> list[Path]:
    """Download what is not there yet, and check what is.

    Raises:
        DataError: no raw folder is given, a table has no address, or no address gives the right file.
        MissingDependencyError: pooch is not installed.
    """
    folder = raw_folder(raw)
    if folder is None:
        raise DataError("no folder for raw files", do=f"pass `--raw DIR`, or set `{RAW_VARIABLE}`")
    paths = []
    for table in tables:
        if is_here([table], raw):
            path, copy = locate(table, raw)
            check_file(copy, path)
        else:
            path = _fetch_any(table, folder)
        paths.append(path)
    return list(dict.fromkeys(paths))


def _fetch_any(table: RawTable, folder: Path) -> Path:
    copies = [copy for copy in table.copies if copy.url]
    if not copies:
        raise DataError(
            f"'{table.copies[0].name}' cannot be downloaded: it was brought into this form by hand",
            do=f"put it at '{folder / table.copies[0].name}'",
        )
    for copy in copies[:-1]:
        try:
            return fetch(copy, folder)
        except DataError as error:
            log.warning("%s\nthe next address is tried", error)
    return fetch(copies[-1], folder)
