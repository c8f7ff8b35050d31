"""Locate a file that others publish, say where it can be downloaded, and check that it is the right one.

Nothing but a complete file with the right size and hash ever appears under its name, whether a connection breaks or the
process is killed.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.resources
import logging
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import yaml

from dglcell.errors import DataError, listing
from dglcell.files.atomic import DAMAGE, RAW_VARIABLE, atomic_file, find_raw, raw_folder, sha256_file

if TYPE_CHECKING:
    from requests import Response

log = logging.getLogger("dglcell")

ARCHIVES, ORIGINALS = "archives", "originals"
"""These folders of the raw folder keep archives of which one file is used, and files from which tables are made."""

DECLARED, UNCHECKED = "declared", "nothing to compare with"
"""A file is known to be right by its declared hash, or not at all."""


@dataclass(frozen=True)
class Recipe:
    """Describe how a table is made from files of public repositories."""

    convert: str  #: name of the conversion; see `dglcell.published.conversions`
    originals: tuple[PublishedFile, ...]  #: files that it is made from; each of a fixed version, with its hash
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)  #: arguments of the conversion


@dataclass(frozen=True)
class Found:
    """Locate a file that is here, and that is the right one as far as that can be known."""

    file: PublishedFile  #: the file's description
    path: Path  #: where it is
    sha256: str  #: hash of its bytes as published
    trust: str  #: `DECLARED` or `UNCHECKED`
    downloaded: bool = False  #: whether it was not here before

    def provenance(self) -> dict[str, Any]:
        """Return the file's hash and what that was compared with, as plain containers."""
        return {"sha256": self.sha256, "trust": self.trust}


@dataclass(frozen=True)
class PublishedFile:
    """Describe a file as its publisher offers it.

    In the raw folder a copy packed with gzip, ``path`` with ``.gz`` at its end, is as good as the file. Its content is
    then compared with what is declared.
    """

    path: str  #: absolute, or relative to the working or the raw folder; with ``/`` between folders
    #: where it can be downloaded, tried in this order; none where only a copy by hand will do
    urls: tuple[str, ...] = ()
    sha256: str | None = None  #: hash of its bytes; None where the publisher states none
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
    def whole(self) -> PublishedFile:
        """Return the file without its part, for those that ask which genes a table has."""
        return replace(self, part=None)

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
        """Return whether the file, a packed copy, or one of its other copies is there; its hash is not looked at."""
        return self._locate(raw) is not None

    def find(self, raw: str | Path | None = None) -> Found:
        """Return where the file is, once its hash agrees with the one that is declared.

        Raises:
            DataError: it is not there, and the message says where it can be had; or it is another file, or cut off.
        """
        if (here := self._locate(raw)) is not None:
            return here[0].check(here[1])
        if not self.addresses:
            find_raw(self.path, raw)  # says where it looked
        sources = " and ".join(url for file in self.downloads for url in file.urls[:1])
        sources += f", in it {self.member}" if self.member else ""
        sources += "".join(f", or '{copy.path}'" for copy in self.copies)
        raise DataError(
            f"raw file '{self.path}' not found",
            got=f"it is neither in the working folder nor in the raw folder '{raw_folder(raw)}'",
            expected=f"{'the table made' if self.made else 'the file'} from {sources}",
            do=f"`dglcell data fetch {self.path}` downloads it, and `dglcell data fetch --all EXPERIMENT` all that one "
            f"reads; or set `{RAW_VARIABLE}` to the folder that holds it",
        )

    def check(self, path: Path) -> Found:
        """Compare a file that is here with what is declared."""
        source = f" from {self.urls[0]}" if self.urls else ""
        return self._compare(path, path, f"remove it, and fetch it again{source}")

    def fetch(self, folder: str | Path) -> Found:
        """Put the file into ``folder``: download or make it unless it or a copy is there, and check it in either case.

        A file that its publisher packs with gzip stays packed. Of an archive only the one file is unpacked; the archive
        stays in `ARCHIVES`.

        Raises:
            DataError: it cannot be downloaded, has no secure address, or is not the file it should be.
        """
        folder = Path(folder)
        if self.is_here(folder):
            return self.find(folder)
        if self.made is not None:
            return self._make(self.made, folder)
        if self.member:
            with open_member(self.downloads[0].fetch(folder).path, self.member) as content:
                return self._keep(folder, self.member, self.urls[0], lambda to: to.write_bytes(content.read()))
        error: DataError | None = None
        for source, url in ((file, url) for file in (self, *self.copies) for url in file.urls):
            if error is not None:
                log.warning("%s\nthe next address is tried", error)
            try:
                return source._keep(folder, url, url, partial(download, url, folder / source.path))
            except DataError as failed:
                error = failed
        do = "put it there; `dglcell data list` says where it came from"
        what, got = f"'{self.path}' cannot be downloaded", "no address: it was made to order, or by hand"
        raise error or DataError(what, got=got, expected=f"the file at '{folder / self.path}'", do=do)

    def _locate(self, raw: str | Path | None) -> tuple[PublishedFile, Path] | None:
        for file in filter(None, (self.part, self, *self.copies)):
            for path in (file.path, f"{file.path}.gz"):
                with suppress(DataError):
                    return file, find_raw(path, raw)
        return None

    def _make(self, recipe: Recipe, folder: Path) -> Found:
        from dglcell.published.conversions import convert

        originals = [file.fetch(folder).path for file in recipe.originals]
        content = convert(recipe.convert, originals, recipe.arguments)
        sha256 = hashlib.sha256(content).hexdigest()
        if self.content not in (None, sha256):
            what = f"'{self.path}' was made from the right files, but is not the table it should be"
            do = "install the newest pandas and rdata, and try again; or report it with their versions"
            raise DataError(what, got=f"sha256 {sha256}", expected=f"sha256 {self.content}", do=do)
        # Without a time in it, the same table has the same bytes.
        return self._keep(folder, self.path, None, lambda to: to.write_bytes(gzip.compress(content, mtime=0)))

    def _keep(self, folder: Path, source: str, url: str | None, write: Callable[[Path], object]) -> Found:
        """Put the file that ``write`` writes in place, once it is the right one; it stays packed as its source is."""
        packed = source.endswith(".gz") and not self.path.endswith(".gz")
        target = folder / (f"{self.path}.gz" if packed else self.path)
        with atomic_file(target) as to:
            write(to)
            do = f"download it again from {url}" if url else "correct the declared hash"
            found = replace(self._compare(to, target, do), downloaded=True)
            if url and found.trust == UNCHECKED:
                log.warning("%s: nobody states its hash; it is sha256 %s", self.path, found.sha256)
        return found

    def _compare(self, at: Path, target: Path, do: str) -> Found:
        """Compare the bytes at ``at``, which are ``target`` or will become it."""
        sha256, expected = sha256_file(at), self.content or self.sha256
        if expected is None or sha256 == self.sha256:
            return Found(self, target, sha256, UNCHECKED if expected is None else DECLARED)
        packed_here = self.content or target.name == f"{self.name}.gz"
        found = _content_sha256(at, target) if packed_here else sha256
        if found != expected:
            expected += f", {self.size:,} bytes" if self.size and not packed_here else ""
            got = f"sha256 {found}, {at.stat().st_size:,} bytes"
            raise DataError(f"'{target}' is not the file it should be", got=got, expected=f"sha256 {expected}", do=do)
        return Found(self, target, sha256 if self.content else found, DECLARED)


# Downloads over the network, from secure addresses, with errors that say what to do instead.


TIMEOUTS = (20.0, 60.0)  # seconds for a connection, and for its next bytes
WAITS = (1.0, 5.0)  # seconds after which a download that broke off is tried again


def check_address(url: str) -> None:
    """Refuse an address from which anyone on the way could send another file, and text that is not an address."""
    address = urlsplit(url)
    if address.scheme not in ("https", "http") or not address.hostname:
        raise DataError("this is no address to download from", got=url, expected="https://…")
    if address.scheme == "http" and address.hostname not in ("127.0.0.1", "::1", "localhost"):
        got, do = "plain http: anyone on the way could send another file", "download the file yourself, look at it, and"
        raise DataError(f"{url} is not secure", got=got, expected="https", do=f"{do} put it into the raw folder")


def download(url: str, target: Path, to: Path) -> None:
    """Download an address to ``to``, from where it will go to ``target``; a transfer that breaks off is begun again.

    (A temporary file of pooch's own would stay there after a kill.)
    """
    import pooch
    import requests

    def check_redirect(response: Response, **_: object) -> None:
        if response.is_redirect:
            check_address(urljoin(response.url, response.headers["Location"]))

    check_address(url)
    log.info("downloading %s from %s", target, url)
    fetch = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=2**16,
        timeout=TIMEOUTS,
        # As the file lies on the server: compressing it on the way would change size and hash of what arrives.
        headers={"Accept-Encoding": "identity", "User-Agent": f"dglcell (pooch {pooch.__version__})"},
        hooks={"response": check_redirect},
    )
    for wait in (*WAITS, None):
        try:
            return fetch(url, str(to), None)
        except requests.RequestException as error:
            if wait is not None and isinstance(error, requests.exceptions.ChunkedEncodingError):
                log.warning("%s broke off; it is tried again", url)
                time.sleep(wait)
                continue
            do = f"on a machine with internet access, download that address and put the file at '{target}'"
            what, got = f"'{target.name}' cannot be downloaded", str(error) or type(error).__name__
            raise DataError(what, got=got, expected=f"a file at {url}", do=do) from error


def _content_sha256(at: Path, target: Path) -> str:
    try:
        with gzip.open(at) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except DAMAGE as error:
        raise DataError(f"'{target}' is not a whole gzip file", got=str(error), do="copy it again") from error


@contextmanager
def open_member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    """Open a file inside a zip or tar archive, whatever folder of the archive it is in."""

    def only(names: list[str]) -> str:
        found = [path for path in names if path.rpartition("/")[2] == name]
        if len(found) == 1:
            return found[0]
        what, do = f"archive '{archive.name}' holds {len(found)} files called '{name}'", "download it again"
        raise DataError(what, got=listing(names) or "an empty archive", expected="one", do=do)

    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as zipped, zipped.open(only(zipped.namelist())) as file:
                yield file
        else:
            with tarfile.open(archive) as tarred:
                extracted = tarred.extractfile(only(tarred.getnames()))
                assert extracted is not None
                yield extracted
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        remedy = "remove it, and fetch it again"
        raise DataError(f"'{archive}' is not a whole archive", got=str(error), do=remedy) from error


def download_size(files: Iterable[PublishedFile]) -> int:
    """Return the bytes of files, each counted once; 0 where the size of one is not known."""
    sizes = {file.path: file.size for file in files}
    return 0 if None in sizes.values() else sum(size or 0 for size in sizes.values())


def format_hash(sha256: str, trust: str, digits: int = 64) -> str:
    """Format a hash and what it was compared with."""
    return f"sha256 {sha256[:digits]} ({'as declared' if trust == DECLARED else trust})"


def read_declarations(package: str, name: str) -> dict[str, Any]:
    """Read a YAML file inside a package."""
    text = importlib.resources.files(package).joinpath(name).read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return content


def _original(url: str, sha256: str, size: int) -> PublishedFile:
    """Make a file of a repository; the repository's owner and name keep it apart from others."""
    _, _, _, owner, repository, *_, name = url.split("/")
    return PublishedFile(f"{ORIGINALS}/{owner}+{repository}/{name}", (url,), sha256, size)


def _declared() -> dict[str, PublishedFile]:
    declared = read_declarations("dglcell.published", "files.yaml")
    files: dict[str, PublishedFile] = {}
    for path, fields in sorted(declared.items(), key=lambda entry: "part" in entry[1]):  # a part comes before its whole
        if (made := fields.get("made")) is not None:
            originals = tuple(_original(**one) for one in made["originals"])
            fields["made"] = Recipe(**{**made, "originals": originals})
        if "part" in fields:
            fields["part"] = files[fields["part"]]
        files[path] = PublishedFile(path, tuple(fields.pop("urls", ())), **fields)
    return {path: files[path] for path in declared}


FILES = _declared()
"""This maps paths in the raw folder to published files."""
