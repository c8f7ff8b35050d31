"""Downloads of raw files: whole and checked, or not there at all."""

from __future__ import annotations

import gzip
import hashlib
import logging
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial as partial_of
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from dglcell.errors import DataError
from dglcell.files.atomic import DAMAGE, atomic_file, parse_json, sha256_file, write_json

if TYPE_CHECKING:
    from requests import Response

log = logging.getLogger(__name__)

DECLARED, FIRST_USE = "declared", "first use"
RECORD_SUFFIX = ".fetched.json"
CONNECT_TIMEOUT, READ_TIMEOUT = 20.0, 60.0
CHUNK_BYTES = 2**16
THIS_MACHINE = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class RemoteFile:
    """A file that can be downloaded.

    Attributes:
        url: where it is; http or https.
        name: where it goes, relative to the raw folder; with ``/`` between folders.
        sha256: of its bytes. None where the publisher states none: the hash of the first download is then
            recorded beside the file, and every later one has to agree with it (trust on first use).
        size: in bytes, where it is known.
        content: sha256 of what a gzip file holds, of a table that is packed here. A file with this content is right,
            whatever its bytes: they depend on the zlib that packed it.
    """

    url: str
    name: str
    sha256: str | None = None
    size: int | None = None
    content: str | None = None


@dataclass(frozen=True)
class FetchRecord:
    """What is remembered of a download, in a JSON file beside it.

    Attributes:
        url: where the file came from.
        sha256: of its bytes.
        size: in bytes.
        fetched: date and time, UTC.
        trust: ``declared``: the hash was known beforehand; ``first use``: it is that of the first download.
    """

    url: str
    sha256: str
    size: int
    fetched: str
    trust: str


def fetch(file: RemoteFile, folder: str | Path, *, insecure: bool = False) -> Path:
    """The file inside ``folder``, downloaded unless it is there.

    A file that is there is checked like a download. Nothing but a complete file with the right size and hash ever
    appears under its name, whether the connection breaks or the process is killed.

    Args:
        file: what to fetch.
        folder: the raw folder; made where it is missing.
        insecure: also take it over plain http where no hash would show that it was changed on the way.

    Raises:
        DataError: the file cannot be downloaded, or has another size or hash than declared or recorded; or its address
            is not secure.
    """
    target = Path(folder) / file.name
    if target.is_file():
        check_file(file, target)
        return target
    insecure = insecure or file.sha256 is not None or read_record(target) is not None
    check_address(file.url, insecure)
    with atomic_file(target) as partial:
        _download(file, partial, target, insecure)
        size, sha256 = partial.stat().st_size, sha256_file(partial)
        _compare(file, target, size, sha256, f"download it again from {file.url}")
        if read_record(target) is None:
            trust = FIRST_USE if file.sha256 is None else DECLARED
            fetched = datetime.now(UTC).isoformat(timespec="seconds")
            write_json(record_path(target), asdict(FetchRecord(file.url, sha256, size, fetched, trust)))
    return target


def check_address(url: str, insecure: bool) -> None:
    """Refuse an address from which anyone on the way could send another file, and those that are no address.

    Args:
        url: https, or http.
        insecure: take plain http from other machines as well.

    Raises:
        DataError: it is something else.
    """
    address = urlsplit(url)
    if address.scheme not in ("https", "http") or not address.hostname:
        raise DataError("this is no address to download from", got=url, expected="https://… or http://…")
    if address.scheme == "http" and not insecure and address.hostname not in THIS_MACHINE:
        raise DataError(
            f"{url} is not secure",
            got="plain http and no hash to compare with: anyone on the way could send another file",
            expected="https, or a declared hash",
            do="pass `--insecure` if you trust the network; or download the file yourself and look at it",
        )


def check_file(file: RemoteFile, path: Path) -> str:
    """The sha256 of a file that is here, once it agrees with what is declared or recorded of it.

    Raises:
        DataError: its size or hash differs.
    """
    sha256 = sha256_file(path)
    if file.content is None:
        _compare(file, path, path.stat().st_size, sha256, f"remove it, and fetch it again from {file.url}")
    elif sha256 != file.sha256:
        check_content(path, file.content, "remove it, and fetch it again")
    return sha256


def check_content(path: Path, expected: str, do: str) -> str:
    """The sha256 of what a gzip file holds, once it agrees with what is expected.

    Raises:
        DataError: the file is damaged, or holds something else.
    """
    try:
        with gzip.open(path) as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except DAMAGE as error:
        raise DataError(f"'{path}' is not a whole gzip file", got=str(error), do="copy it again") from error
    if sha256 != expected:
        raise DataError(
            f"'{path}' does not hold the file it should",
            got=f"content with sha256 {sha256}",
            expected=f"sha256 {expected}",
            do=do,
        )
    return sha256


def record_path(path: Path) -> Path:
    """Where the record of the download at ``path`` is."""
    return path.with_name(path.name + RECORD_SUFFIX)


def read_record(path: Path) -> FetchRecord | None:
    """The record of the download at ``path``; None where there is none, as for a file that was put there by hand.

    Raises:
        DataError: it cannot be read.
    """
    record = record_path(path)
    if not record.is_file():
        return None
    try:
        return FetchRecord(**parse_json(record.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise DataError(
            f"'{record}' is no record of a download",
            got=error,
            do="remove it; the hash of the next download will be recorded anew",
        ) from None


def _check_redirect(insecure: bool, response: Response, **_: object) -> None:
    """An address may lead to another one."""
    if response.is_redirect:
        check_address(urljoin(response.url, response.headers["Location"]), insecure)


def _compare(file: RemoteFile, path: Path, size: int, sha256: str, do: str) -> None:
    if file.size is not None and size != file.size:
        raise DataError(
            f"'{path}' has the wrong size: cut off, or another file",
            got=f"{size:,} bytes",
            expected=f"{file.size:,} bytes",
            do=do,
        )
    if file.sha256 is not None and sha256 != file.sha256:
        raise DataError(
            f"'{path}' is not the file it should be", got=f"sha256 {sha256}", expected=f"sha256 {file.sha256}", do=do
        )
    record = read_record(path)
    if file.sha256 is None and record is not None and sha256 != record.sha256:
        raise DataError(
            f"'{path}' is not the file that was fetched on {record.fetched}",
            got=f"sha256 {sha256}",
            expected=f"sha256 {record.sha256}",
            do=f"{do}; if the publisher has replaced the file and you accept it, remove '{record_path(path)}'",
        )


def _download(file: RemoteFile, partial: Path, target: Path, insecure: bool) -> None:
    import pooch
    import requests

    if not sys.stderr.isatty():
        log.info("downloading %s", file.url)
    download = pooch.HTTPDownloader(
        progressbar=_Bar(Path(file.name).name) if sys.stderr.isatty() else False,
        chunk_size=CHUNK_BYTES,
        timeout=(CONNECT_TIMEOUT, READ_TIMEOUT),
        # As the file lies on the server: compressing it on the way would change size and hash of what arrives.
        headers={"Accept-Encoding": "identity", "User-Agent": f"dglcell (pooch {pooch.__version__})"},
        hooks={"response": partial_of(_check_redirect, insecure)},
    )
    try:
        download(file.url, str(partial), None)
    except requests.RequestException as error:
        raise DataError(
            f"'{file.name}' cannot be downloaded",
            got=str(error) or type(error).__name__,
            expected=f"a file at {file.url}",
            do=f"on a machine with internet access, download that address and put the file at '{target}'",
        ) from error


class _Bar:
    """A progress bar on the terminal, with the methods that pooch calls."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn(name, markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self.total = 0
        self._bar = Progress(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task(name, total=None)

    def update(self, count: int) -> None:
        """So many bytes more have arrived."""
        self._bar.start()
        self._bar.update(self._task, advance=count, total=self.total or None)

    def reset(self) -> None:
        """Begin anew; pooch then updates once, by the whole."""
        self._bar.reset(self._task)

    def close(self) -> None:
        """All has arrived."""
        self._bar.stop()
