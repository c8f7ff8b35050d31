"""Locate a file that others publish, say where it can be downloaded, and check that it is the right one.

Nothing but a complete file with the right size and hash ever appears under its name, whether a connection breaks or the
process is killed.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.resources
import logging
import shutil
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial as partial_of
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import yaml

from dglcell.errors import DataError, listing
from dglcell.files.atomic import (
    DAMAGE,
    RAW_VARIABLE,
    atomic_file,
    find_raw,
    parse_json,
    raw_folder,
    sha256_file,
    write_json,
)

if TYPE_CHECKING:
    from requests import Response

log = logging.getLogger(__name__)

ARCHIVES = "archives"
"""Archives of which one file is used are kept in this folder inside the raw folder."""

DECLARED, FIRST_USE, UNCHECKED = "declared", "first use", "nothing to compare with"
"""A file is known to be right by its declared hash, by the hash of its first download, or not at all."""

RECORD_SUFFIX = ".fetched.json"


@dataclass(frozen=True)
class Recipe:
    """Describe how a table is made from files of public repositories."""

    convert: str  #: name of the conversion; see `dglcell.published.conversions`
    originals: tuple[PublishedFile, ...]  #: files that it is made from; each of a fixed version, with its hash
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)  #: arguments of the conversion


class Record(NamedTuple):
    """Record a download, in a JSON file beside it."""

    url: str  #: where the file came from
    sha256: str  #: hash of its bytes
    fetched: str  #: date and time, UTC


@dataclass(frozen=True)
class Found:
    """Locate a file that is here, and that is the right one as far as that can be known."""

    file: PublishedFile  #: the file's description
    path: Path  #: where it is
    sha256: str  #: hash of its bytes as published
    trust: str  #: `DECLARED`, `FIRST_USE` or `UNCHECKED`
    downloaded: bool = False  #: whether it was not here before

    def provenance(self) -> dict[str, Any]:
        """Return the file's hash and what that was compared with, as plain containers."""
        return {"sha256": self.sha256, "trust": self.trust}


@dataclass(frozen=True)
class PublishedFile:
    """Describe a file as its publisher offers it.

    In the raw folder a copy packed with gzip, ``path`` with ``.gz`` at its end, is as good as the file: what is
    declared of the file is then compared with its content.
    """

    path: str  #: absolute, or relative to the working or the raw folder; with ``/`` between folders
    #: where it can be downloaded, tried in this order; none where only a copy by hand will do
    urls: tuple[str, ...] = ()
    #: hash of its bytes. None where the publisher states none: the hash of the first download is then recorded beside
    #: the file, and every later one has to agree with it (trust on first use).
    sha256: str | None = None
    size: int | None = None  #: in bytes, where it is known
    #: sha256 of what a gzip file holds that is packed here: a file with this content is right, whatever its bytes,
    #: which depend on the zlib that packed it
    content: str | None = None
    member: str = ""  #: if the addresses lead to an archive (.zip, .tgz), the file in it
    archive_sha256: str | None = None  #: hash of that archive, where it is known
    made: Recipe | None = None  #: recipe by which it is made from other files, if it is
    part: PublishedFile | None = None  #: a part of it, put there by hand, which is used where it is there
    copies: tuple[PublishedFile, ...] = ()  #: files that are used where it is not there
    description: str = ""  #: what it holds, in a sentence or two
    citation: str = ""  #: the publication
    licence: str = ""  #: as its publisher states it

    @property
    def name(self) -> str:
        """Return the last part of the file's path."""
        return Path(self.path).name

    @property
    def downloads(self) -> tuple[PublishedFile, ...]:
        """Return what is downloaded to have the file: the file, its archive, those that it is made from, or nothing."""
        if self.made is not None:
            return self.made.originals
        if self.member:
            return (PublishedFile(f"{ARCHIVES}/{self.urls[0].rpartition('/')[2]}", self.urls, self.archive_sha256),)
        return (self,) if self.urls else ()

    @property
    def addresses(self) -> list[str]:
        """Return all addresses to download the file from; none where only a copy by hand will do."""
        return [url for file in (*self.downloads, *self.copies) for url in file.urls]

    def origin(self) -> dict[str, Any]:
        """Return who made the file and where it is, as plain containers."""
        return {"citation": self.citation, "licence": self.licence, "url": self.urls[0] if self.urls else None}

    def is_here(self, raw: str | Path | None = None) -> bool:
        """Return whether the file, a packed copy, or one of its other copies is there; its hash is not looked at.

        Args:
            raw: the raw folder; see `find_raw`.
        """
        return self._locate(raw) is not None

    def find(self, raw: str | Path | None = None) -> Found:
        """Return where the file is, once its hash agrees with the one that is declared, or recorded of its download.

        Args:
            raw: the raw folder; see `find_raw`.

        Raises:
            DataError: it is not there, and the message says where it can be had; or it is another file, or cut off.
        """
        here = self._locate(raw)
        if here is not None:
            file, path = here
            return file.check(path)
        if not self.addresses:
            find_raw(self.path, raw)  # says where it looked
        names = "".join(f", or '{copy.path}'" for copy in self.copies)
        raise DataError(
            f"raw file '{self.path}' not found",
            got=f"it is neither in the working folder nor in the raw folder '{raw_folder(raw)}'",
            expected=("the table made" if self.made else "the file")
            + f" from {' and '.join(url for file in self.downloads for url in file.urls[:1])}"
            + (f", in it {self.member}" if self.member else "")
            + names,
            do=f"where there is internet access, `dglcell data fetch {self.path}` downloads it, and `dglcell data "
            "fetch --all` with the experiment's file all that it reads; or set "
            f"`{RAW_VARIABLE}` (or pass `--raw`) to the folder that holds it",
        )

    def check(self, path: Path) -> Found:
        """Compare a file that is here with what is declared, or recorded of its download.

        Raises:
            DataError: it is another file, or cut off.
        """
        source = f", and fetch it again from {self.urls[0]}" if self.urls else ", and fetch it again"
        return self._compare(path, path, f"remove it{source}")

    def fetch(self, folder: str | Path, *, hashed: bool = False) -> Found:
        """Put the file into ``folder``: download or make it unless it or a copy is there, and check it in either case.

        A file that its publisher packs with gzip stays packed. Of an archive only the one file is unpacked; the archive
        stays in `ARCHIVES`.

        Args:
            folder: the raw folder; made where it is missing.
            hashed: whether what is made of it has a hash, so that it may come over plain http.

        Raises:
            DataError: it cannot be downloaded, has no secure address, or is not the file it should be.
        """
        folder = Path(folder)
        if self.is_here(folder):
            return self.find(folder)
        if self.made is not None:
            return self._make(self.made, folder)
        if self.member:
            return self._unpack(folder)
        sources = [(file, url) for file in (self, *self.copies) for url in file.urls]
        if not sources:
            raise DataError(
                f"'{self.path}' cannot be downloaded",
                got="no address: it was made to order, or by hand",
                expected=f"the file at '{folder / self.path}'",
                do="put it there; `dglcell data list` says where it came from",
            )
        for file, url in sources[:-1]:
            try:
                return file._download(url, folder, hashed)
            except DataError as error:
                log.warning("%s\nthe next address is tried", error)
        file, url = sources[-1]
        return file._download(url, folder, hashed)

    def _locate(self, raw: str | Path | None) -> tuple[PublishedFile, Path] | None:
        for file in filter(None, (self.part, self, *self.copies)):
            for path in (file.path, f"{file.path}.gz"):
                with suppress(DataError):
                    return file, find_raw(path, raw)
        return None

    def _download(self, url: str, folder: Path, hashed: bool) -> Found:
        packed = url.endswith(".gz") and not self.path.endswith(".gz")
        target = folder / (f"{self.path}.gz" if packed else self.path)
        hashed = hashed or self.sha256 is not None or read_record(target) is not None
        return self._keep(target, lambda partial: download(url, partial, target, self.path, hashed=hashed), url)

    def _unpack(self, folder: Path) -> Found:
        # What is declared of a file inside an archive is compared once it is unpacked.
        archive = self.downloads[0].fetch(folder, hashed=self.sha256 is not None).path
        packed = self.member.endswith(".gz") and not self.path.endswith(".gz")

        def extract(partial: Path) -> None:
            with open_member(archive, self.member) as source, open(partial, "wb") as copy:
                shutil.copyfileobj(source, copy)

        return self._keep(folder / (f"{self.path}.gz" if packed else self.path), extract, self.urls[0])

    def _make(self, recipe: Recipe, folder: Path) -> Found:
        from dglcell.published.conversions import convert

        originals = [file.fetch(folder).path for file in recipe.originals]
        content = convert(recipe.convert, originals, recipe.arguments)
        sha256 = hashlib.sha256(content).hexdigest()
        if self.content not in (None, sha256):
            raise DataError(
                f"'{self.path}' was made from the right files, but is not the table it should be",
                got=f"{len(content):,} bytes, sha256 {sha256}",
                expected=f"sha256 {self.content}",
                do="install the newest pandas and rdata, and try again; or report it with their versions",
            )
        # Without a time in it, the same table has the same bytes.
        packed = gzip.compress(content, mtime=0)
        return self._keep(folder / self.path, lambda partial: partial.write_bytes(packed), None)

    def _keep(self, target: Path, write: Callable[[Path], object], url: str | None) -> Found:
        """Put the file that ``write`` writes in place, once it is the right one; a download is recorded."""
        with atomic_file(target) as partial:
            write(partial)
            do = f"download it again from {url}" if url else "correct the declared hash"
            found = self._compare(partial, target, do)
            if url and read_record(target) is None:
                now = datetime.now(UTC).isoformat(timespec="seconds")
                write_json(record_path(target), Record(url, sha256_file(partial), now)._asdict())
                found = replace(found, trust=FIRST_USE if found.trust == UNCHECKED else DECLARED)
        return replace(found, downloaded=True)

    def _compare(self, at: Path, target: Path, do: str) -> Found:
        """Compare the bytes at ``at``, which are ``target`` or will become it."""
        sha256, record, trust, fetched = sha256_file(at), read_record(target), DECLARED, ""
        found, expected, size = sha256, self.sha256, self.size
        packed = self.sha256 is not None and target.name == f"{self.name}.gz"
        if packed or (self.content not in (None, sha256) and sha256 != self.sha256):
            found, expected, size = _content_sha256(at, target), self.sha256 if packed else self.content, None
        elif self.sha256 is None and record is not None:
            expected, trust, fetched = record.sha256, FIRST_USE, record.fetched
            do += f"; if the publisher has replaced the file and you accept it, remove '{record_path(target)}'"
        elif self.sha256 is None:
            expected, trust = sha256, UNCHECKED
        if found != expected:
            raise DataError(
                f"'{target}' is not the file that was fetched on {fetched}"
                if fetched
                else f"'{target}' is not the file it should be",
                got=f"sha256 {found}, {at.stat().st_size:,} bytes",
                expected=f"sha256 {expected}" + (f", {size:,} bytes" if size else ""),
                do=do,
            )
        return Found(self, target, found if packed else sha256, trust)


# Downloads over the network, from secure addresses, with errors that say what to do instead.


CONNECT_TIMEOUT, READ_TIMEOUT = 20.0, 60.0
CHUNK_BYTES = 2**16
THIS_MACHINE = ("127.0.0.1", "::1", "localhost")

WAITS = (1.0, 5.0)
"""Seconds after which a download that broke off is tried again."""


def check_address(url: str, hashed: bool) -> None:
    """Refuse an address from which anyone on the way could send another file, and text that is not an address.

    Args:
        url: https, or http.
        hashed: take plain http from other machines, too, because a hash shows whether the file was changed on the way.

    Raises:
        DataError: it is something else.
    """
    address = urlsplit(url)
    if address.scheme not in ("https", "http") or not address.hostname:
        raise DataError("this is no address to download from", got=url, expected="https://… or http://…")
    if address.scheme == "http" and not hashed and address.hostname not in THIS_MACHINE:
        raise DataError(
            f"{url} is not secure",
            got="plain http and no hash to compare with: anyone on the way could send another file",
            expected="https, or a declared hash",
            do="download the file yourself, look at it, and put it into the raw folder",
        )


def download(url: str, partial: Path, target: Path, name: str, *, hashed: bool) -> None:
    """Download the content of an address to ``partial``. A transfer that breaks off is begun again, a few times.

    Args:
        url: the address.
        partial: where the bytes go. (A temporary file of pooch's own would stay there after a kill.)
        target: where the file is going to be, for messages.
        name: the file's name, for messages.
        hashed: take plain http, too, as in `check_address`.

    Raises:
        DataError: the address is not secure, or does not give a file.
    """
    import pooch
    import requests

    check_address(url, hashed)
    log.info("downloading %s from %s", name, url)
    fetch = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=CHUNK_BYTES,
        timeout=(CONNECT_TIMEOUT, READ_TIMEOUT),
        # As the file lies on the server: compressing it on the way would change size and hash of what arrives.
        headers={"Accept-Encoding": "identity", "User-Agent": f"dglcell (pooch {pooch.__version__})"},
        hooks={"response": partial_of(_check_redirect, hashed)},
    )
    for wait in (*WAITS, None):
        try:
            return fetch(url, str(partial), None)
        except requests.RequestException as error:
            if wait is not None and isinstance(error, requests.exceptions.ChunkedEncodingError):
                log.warning("%s broke off; it is tried again", url)
                time.sleep(wait)
                continue
            raise DataError(
                f"'{name}' cannot be downloaded",
                got=str(error) or type(error).__name__,
                expected=f"a file at {url}",
                do=f"on a machine with internet access, download that address and put the file at '{target}'",
            ) from error


def _check_redirect(hashed: bool, response: Response, **_: object) -> None:
    """Check an address to which another one redirects."""
    if response.is_redirect:
        check_address(urljoin(response.url, response.headers["Location"]), hashed)


def _content_sha256(at: Path, target: Path) -> str:
    """Return the sha256 of a gzip file's content."""
    try:
        with gzip.open(at) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except DAMAGE as error:
        raise DataError(f"'{target}' is not a whole gzip file", got=str(error), do="copy it again") from error


def record_path(path: Path) -> Path:
    """Return the path of the record of the download at ``path``."""
    return path.with_name(path.name + RECORD_SUFFIX)


def read_record(path: Path) -> Record | None:
    """Read the record of the download at ``path``; None where there is none, as for a file that was put there by hand.

    Raises:
        DataError: it cannot be read.
    """
    record = record_path(path)
    if not record.is_file():
        return None
    try:
        content = parse_json(record.read_text(encoding="utf-8"))
        return Record(*(content[name] for name in Record._fields))
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"'{record}' is no record of a download",
            got=error,
            do="remove it; the hash of the next download will be recorded anew",
        ) from None


@contextmanager
def open_member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    """Open a file inside a zip or tar archive, whatever folder of the archive it is in.

    Raises:
        DataError: the archive is damaged, or does not hold one such file.
    """
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as zipped, zipped.open(_only(zipped.namelist(), name, archive)) as file:
                yield file
        else:
            with tarfile.open(archive) as tarred:
                extracted = tarred.extractfile(_only(tarred.getnames(), name, archive))
                assert extracted is not None
                yield extracted
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise DataError(
            f"'{archive}' is not a whole archive", got=str(error), do="remove it, and fetch it again"
        ) from error


def _only(names: list[str], name: str, archive: Path) -> str:
    found = [path for path in names if path.rpartition("/")[2] == name]
    if len(found) != 1:
        raise DataError(
            f"archive '{archive.name}' holds {len(found)} files called '{name}'",
            got=listing(names) or "an empty archive",
            expected="one",
            do="download it again, or unpack the right file by hand",
        )
    return found[0]


def download_size(files: Iterable[PublishedFile]) -> int:
    """Return the bytes of files, each counted once; 0 where the size of one is not known."""
    sizes = {file.path: file.size for file in files}
    return 0 if None in sizes.values() else sum(size or 0 for size in sizes.values())


# Descriptions of files in words.


def format_found(found: Found) -> str:
    """Say where a file is, its hash, and what that was compared with."""
    how = "downloaded" if found.downloaded else "was here"
    return f"{found.path}  {found.path.stat().st_size:,} bytes, {how}\n    {format_hash(found.sha256, found.trust)}"


def format_hash(sha256: str, trust: str, digits: int = 64) -> str:
    """Format a hash and what it was compared with."""
    words = {DECLARED: "as declared", FIRST_USE: "as recorded when it was downloaded"}
    return f"sha256 {sha256[:digits]} ({words.get(trust, trust)})"


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
