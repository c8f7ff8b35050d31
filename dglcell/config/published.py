"""All published files that an experiment reads: which they are, and how they are fetched."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dglcell.config.experiment import Config
from dglcell.data.sources.laboratory import LABORATORIES, chosen_tables
from dglcell.data.sources.screen_tables import RawTable, fetch_tables, find_tables, is_here
from dglcell.errors import ConfigError, DataError, DglcellError, count, listing
from dglcell.graph.catalogue import GENE_SETS, MODELS, NETWORKS, GeneSetSource, ModelSource, NetworkSource
from dglcell.graph.fetch import cell_files, fetch_file, format_fetched
from dglcell.published.download import RemoteFile
from dglcell.published.raw_file import RawFile
from dglcell.published.recipes import RECIPES, download_size


@dataclass(frozen=True)
class Need:
    """A published file.

    Attributes:
        name: where it lies in the raw folder.
        downloads: what is downloaded to have it; nothing where only a copy by hand will do.
        addresses: where they can be had, with all alternatives.
        fetch: has it in a folder, over plain http too if told so, and returns what there is to say of it.
        is_here: whether it, or a packed copy, is in a folder; its hash is not looked at.
    """

    name: str
    downloads: tuple[RemoteFile, ...]
    addresses: list[str]
    fetch: Callable[[Path, bool], str]
    is_here: Callable[[Path], bool] = lambda _: False


def needs(config: Config) -> list[Need]:
    """The published files that an experiment reads, each once; not the user's own.

    Raises:
        ConfigError: the experiment names a network or a table that there is not.
    """
    found = [_file(file) for file in cell_files(config.cell)]
    source = config.data.source
    parts = source.union.parts if source.name == "union" else [source]
    for part in parts:
        if part.name in LABORATORIES:
            found += [_table(table) for table in chosen_tables(part.name, part.laboratory.tables)]
    if source.name == "insilico" and source.insilico.model in MODELS:
        found.append(_file(MODELS[source.insilico.model].file))
    known = published()
    found += [_file(known[value]) for value in _strings(asdict(config)) if value in known]
    return _once(found)


def named(name: str) -> list[Need]:
    """The files of a laboratory screen, or the published file of a path in the raw folder.

    Raises:
        ConfigError: neither a screen nor a file is called so.
    """
    tables = [table for screen in LABORATORIES.values() for table in screen.tables.values() if table.name == name]
    tables = tables[:1] or (list(LABORATORIES[name].tables.values()) if name in LABORATORIES else [])
    if tables:
        return _once(map(_table, tables))
    known = published()
    if name not in known:
        raise ConfigError(
            f"no data source is called '{name}' that has raw files",
            expected=f"one of {', '.join(LABORATORIES)}; or the path of a published file such as {next(iter(known))}",
            do="see `dglcell data list` and `dglcell graph list`",
        )
    return [_file(known[name])]


def published() -> dict[str, RawFile]:
    """Path in the raw folder → file, for everything that has a recipe or is in the catalogue."""
    entries: list[NetworkSource | GeneSetSource | ModelSource] = [
        *NETWORKS.values(),
        *GENE_SETS.values(),
        *MODELS.values(),
    ]
    made = {path: RawFile(path, content=recipe.sha256) for path, recipe in RECIPES.items()}
    return {**made, **{entry.file.path: entry.file for entry in entries}}


def fetch_all(wanted: Sequence[Need], folder: Path, *, insecure: bool = False) -> Iterator[str]:
    """Have all of them in a folder; one that fails does not keep the others from being fetched.

    Args:
        wanted: the files.
        folder: the raw folder.
        insecure: also over plain http where no hash is declared.

    Yields:
        what there is to say of each that is there.

    Raises:
        DataError: some failed. Why is printed to the standard error output when it happens.
    """
    failed = []
    for need in wanted:
        try:
            yield need.fetch(folder, insecure)
        except DglcellError as error:
            print(f"error: {error}", file=sys.stderr)
            failed.append(need.name)
    if failed:
        raise DataError(
            f"{len(failed)} of {len(wanted)} files could not be fetched",
            got=listing(failed),
            do="see above why; the same command tries them again, and keeps what is there",
        )


SECONDS_PER_BYTE = 8 / 10e6
"""With 10 Mbit/s."""


def format_offer(wanted: Sequence[Need]) -> str:
    """How many files these are, how large, and how long a download takes."""
    files = [file for need in wanted for file in need.downloads]
    size, several = download_size(files), count(len(wanted), "file")
    if not size:
        return f"{several} of unknown size"
    return f"{several}, {size / 1e6:,.1f} MB, about {max(1, round(size * SECONDS_PER_BYTE))} s with 10 Mbit/s"


def format_addresses(wanted: Iterable[Need]) -> str:
    """What to download by hand, and what it is for."""
    lines = []
    for need in wanted:
        lines += [need.name, *(f"    {address}" for address in need.addresses or ["no address: put it there by hand"])]
    return "\n".join(lines)


def _once(found: Iterable[Need]) -> list[Need]:
    """Several tables may be in one archive."""
    return list({need.name: need for need in found}.values())


def _file(file: RawFile) -> Need:
    def have(folder: Path, insecure: bool) -> str:
        return format_fetched(fetch_file(file, folder, insecure=insecure))

    def here(folder: Path) -> bool:
        try:
            file.find(str(folder))
        except DataError:
            return False
        return True

    return Need(file.path, file.downloads, file.addresses, have, here)


def _table(table: RawTable) -> Need:
    def have(folder: Path, insecure: bool) -> str:
        fetch_tables([table], str(folder), insecure=insecure)
        (found,) = find_tables([table], str(folder))
        return f"{found.path}\n    {found.path.stat().st_size:,} bytes, sha256 {found.sha256}\n    {found.trust}"

    return Need(table.name, table.downloads, table.addresses, have, lambda folder: is_here([table], str(folder)))


def _strings(value: Any) -> Iterator[str]:
    """All texts in nested containers."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _strings(part)
