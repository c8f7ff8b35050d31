"""Downloading the files of the catalogue that a cell graph needs, and what is missing of them."""

from __future__ import annotations

import shutil
import tarfile
import textwrap
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import IO, Any

from dglcell.errors import DataError
from dglcell.files.atomic import atomic_file, sha256_file, write_json
from dglcell.graph.catalogue import GENE_SETS, MODELS, NETWORKS, GeneSetSource, ModelSource, NetworkSource, named_table
from dglcell.graph.config import CellConfig
from dglcell.graph.model_files import SHIPPED
from dglcell.graph.names import names_of_model
from dglcell.published.download import DECLARED, FIRST_USE, FetchRecord, RemoteFile, fetch, read_record, record_path
from dglcell.published.raw_file import Checked, RawFile
from dglcell.published.recipes import make

# Downloading the files of the catalogue that a cell graph needs.


@dataclass(frozen=True)
class Fetched:
    """A file that is here now.

    Attributes:
        file: what was asked for.
        path: where it is.
        checked: its hash, and what that was compared with.
        downloaded: whether it was not here before.
    """

    file: RawFile
    path: Path
    checked: Checked
    downloaded: bool


def cell_files(config: CellConfig) -> list[RawFile]:
    """The files of the catalogue that a cell graph needs, each once; not those that the experiment gives by path.

    Raises:
        ConfigError: the catalogue lacks a network.
    """
    files = [MODELS[config.model].file] if config.model in MODELS else []
    names = names_of_model(config.model) if config.model in MODELS else None
    files += [GENE_SETS[name].file for name in (config.genes, config.aliases, names) if name in GENE_SETS]
    sources = {} if config.similarity is None else config.similarity.sources
    tables = [(f"cell.networks.{name}", network) for name, network in config.networks.items()]
    tables += [(f"cell.similarity.sources.{name}.sets", source.sets) for name, source in sources.items() if source.sets]
    files += [named_table(table, key).file for key, table in tables if table.source and not table.path]
    return list(dict.fromkeys(files))


def fetch_file(file: RawFile, folder: str | Path, *, insecure: bool = False) -> Fetched:
    """A file inside ``folder``, downloaded unless it or a packed copy is there; checked in either case.

    A file that its publisher packs with gzip stays packed. Of an archive only the one file is unpacked; the archive
    stays in `ARCHIVES`.

    Raises:
        DataError: it cannot be downloaded, has no address, or is not the file it should be.
    """
    try:
        path = file.find(str(folder))
    except DataError:
        path = _download(file, Path(folder), insecure)
        try:
            return Fetched(file, path, file.check(path), downloaded=True)
        except DataError:
            path.unlink()
            record_path(path).unlink(missing_ok=True)
            raise
    return Fetched(file, path, file.check(path), downloaded=False)


def _download(file: RawFile, folder: Path, insecure: bool) -> Path:
    if file.recipe is not None:
        return make(file.recipe, folder)
    if file.url is None:
        raise DataError(
            f"'{file.path}' cannot be downloaded",
            got="no address: its publisher makes it to order",
            expected=f"the file at '{folder / file.path}'",
            do="copy it there; `dglcell graph list` says where it came from",
        )
    # What is declared of a file inside an archive, or packed, is compared once it is here.
    insecure = insecure or file.sha256 is not None
    if file.member is not None:
        return _extract(file, file.url, file.member, folder, insecure)
    packed = file.url.endswith(".gz") and not file.path.endswith(".gz")
    if packed:
        # What is declared is declared of the content, which `check` compares.
        return fetch(RemoteFile(file.url, f"{file.path}.gz"), folder, insecure=insecure)
    return fetch(file.remote, folder, insecure=insecure)


def _extract(file: RawFile, url: str, member: str, folder: Path, insecure: bool) -> Path:
    archive = fetch(file.downloads[0], folder, insecure=insecure)
    packed = member.endswith(".gz") and not file.path.endswith(".gz")
    target = folder / (f"{file.path}.gz" if packed else file.path)
    with atomic_file(target) as partial, _member(archive, member) as source, open(partial, "wb") as copy:
        shutil.copyfileobj(source, copy)
    record = read_record(archive)
    if file.sha256 is None and record is not None:
        size, sha256 = target.stat().st_size, sha256_file(target)
        write_json(record_path(target), asdict(FetchRecord(url, sha256, size, record.fetched, record.trust)))
    return target


@contextmanager
def _member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    """A file inside a zip or tar archive, whatever folder of the archive it is in."""
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
            expected="one",
            do="unpack the right file by hand, and give its path",
        )
    return found[0]


# The catalogue, and the files of one cell, in words.


WIDTH, LIST_WIDTH = 100, 80

TRUST = {DECLARED: "as declared", FIRST_USE: "as recorded when it was downloaded"}
"""What a hash was compared with, in words."""


def format_catalogue(raw: str | None = None) -> str:
    """Networks, gene sets and models that an experiment can name, and whether their files are here.

    Args:
        raw: the raw folder; the environment variable ``DGLCELL_RAW`` where None.
    """
    kinds: list[tuple[str, Mapping[str, NetworkSource | GeneSetSource | ModelSource]]] = [
        ("networks (cell.networks.NAME.source)", NETWORKS),
        ("gene sets (cell.genes, cell.aliases)", GENE_SETS),
        ("metabolic models (cell.model)", MODELS),
    ]
    parts = ["\n".join([heading, *_entries(entries, raw)]) for heading, entries in kinds]
    return "\n\n".join(parts) + f"\n  shipped with cobra: {', '.join(SHIPPED)}\n"


def _entries(entries: Mapping[str, NetworkSource | GeneSetSource | ModelSource], raw: str | None) -> Iterable[str]:
    for name, entry in entries.items():
        yield f"  {name}"
        yield from _wrapped(f"{entry.origin.description}. {entry.origin.citation}. {entry.origin.licence}.")
        yield f"    {entry.file.path}: {_where(entry.file, raw)}"


def _where(file: RawFile, raw: str | None) -> str:
    try:
        file.find(raw)
    except DataError:
        return "not here" if file.addresses else "not here, and without an address"
    return "here"


def format_fetched(fetched: Fetched) -> str:
    """Where a file is, its hash, and what that was compared with."""
    how = "downloaded" if fetched.downloaded else "was here"
    return (
        f"{fetched.path}  {fetched.path.stat().st_size:,} bytes, {how}\n"
        f"    {format_hash(fetched.checked.sha256, fetched.checked.trust)}"
    )


def format_hash(sha256: str, trust: str, digits: int = 64) -> str:
    """A hash and what it was compared with."""
    return f"sha256 {sha256[:digits]} ({TRUST.get(trust, trust)})"


def format_addresses(files: Iterable[RawFile]) -> str:
    """What to download by hand, and where to put it below the raw folder."""
    lines = []
    for file in files:
        lines.append(file.path + (f"  (in it: {file.member})" if file.member else ""))
        lines += [f"    {address}" for address in file.addresses or ["no address"]]
    return "\n".join(lines)


def source_lines(provenance: Mapping[str, Any]) -> list[str]:
    """The files that a cell graph was made of: source, licence, hash and what that was compared with."""
    parts = [(name, provenance[name]) for name in ("model", "genes", "aliases", "names") if name in provenance]
    parts += sorted(provenance.get("networks", {}).items())
    width = max((len(name) for name, _ in parts), default=0)
    lines = []
    for name, part in parts:
        words = [part.get("source") or part.get("name", ""), PurePath(part.get("path", "")).name]
        about = [
            ", ".join(filter(None, words)),
            part.get("licence", ""),
            format_hash(part["sha256"], part["trust"], 16),
        ]
        text = "; ".join(filter(None, about))
        lines += textwrap.wrap(
            text,
            WIDTH,
            initial_indent=f"  {name:{width}}  ",
            subsequent_indent=" " * (width + 4),
            break_on_hyphens=False,
        )
    return ["made of", *lines] if lines else []


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, LIST_WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
