"""Find, fetch and list the published files that an experiment reads or can name."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from dglcell.config.experiment import Config
from dglcell.data.sources import list_sources
from dglcell.data.sources.laboratory import LABORATORIES
from dglcell.errors import ConfigError, DataError, DglcellError, count, listing
from dglcell.graph.catalogue import GENE_SETS, MODELS, NETWORKS, named_table, names_of_model
from dglcell.graph.model_files import SHIPPED
from dglcell.published.file import FILES, PublishedFile, download_size, format_hash


def needs(config: Config) -> list[PublishedFile]:
    """Return the published files that an experiment reads, each once, without the user's own."""
    cell, source, fba = config.cell, config.data.source, config.data.fba
    models = [cell.model, source.insilico.model if source.name == "insilico" else None, fba.model if fba else None]
    found = [MODELS[model] for model in models if model in MODELS]
    names = names_of_model(cell.model) if cell.model in MODELS else None
    found += [GENE_SETS[name].file for name in (cell.genes, cell.aliases, names) if name in GENE_SETS]
    sources = {} if cell.similarity is None else cell.similarity.sources
    tables = [(f"cell.networks.{name}", network) for name, network in cell.networks.items()]
    tables += [(f"cell.similarity.sources.{name}.sets", source.sets) for name, source in sources.items() if source.sets]
    found += [named_table(table, key).file for key, table in tables if table.source and not table.path]
    screens = [LABORATORIES[part.name] for part in config.data.source.parts if part.name in LABORATORIES]
    found += [file for screen in screens for file in screen.files]
    known, written = published(), json.dumps(asdict(config), default=str)
    found += [file for path, file in known.items() if f'"{path}"' in written]
    return _once([*found, *(known[of.not_within].whole for of in cell.networks.values() if of.not_within in known)])


def named(name: str) -> list[PublishedFile]:
    """Return the files of a laboratory screen, or the published file of a path in the raw folder."""
    if name in LABORATORIES:
        return _once(LABORATORIES[name].files)
    known = published()
    if name not in known:
        what, screens = f"no data source is called '{name}' that has raw files", ", ".join(LABORATORIES)
        expected = f"one of {screens}; or the path of a published file such as {next(iter(known))}"
        raise ConfigError(what, expected=expected, do="see `dglcell data list`")
    return [known[name].whole]


def published() -> dict[str, PublishedFile]:
    """Return path in the raw folder → published file; tables of screens come with their copies."""
    return FILES | {file.path: file for screen in LABORATORIES.values() for file in screen.files}


def fetch_all(wanted: Sequence[PublishedFile], folder: Path) -> Iterator[str]:
    """Fetch all files into a folder; one that fails does not keep the others from being fetched.

    Yields:
        A line of text about each file that is there.
    """
    failed = []
    for file in wanted:
        try:
            found = file.fetch(folder)
        except DglcellError as error:
            print(f"error: {error}", file=sys.stderr)
            failed.append(file.path)
            continue
        how = "downloaded" if found.downloaded else "was here"
        yield f"{found.path}  {found.path.stat().st_size:,} bytes, {how}\n    {format_hash(found.sha256, found.trust)}"
    if failed:
        raise DataError(
            f"{len(failed)} of {len(wanted)} files could not be fetched",
            got=listing(failed),
            do="see above why; the same command tries them again, and keeps what is there",
        )


def _once(files: Iterable[PublishedFile]) -> list[PublishedFile]:
    """Return each file once; several tables may be in one archive."""
    return list({file.path: file for file in files}.values())


def format_offer(wanted: Sequence[PublishedFile]) -> str:
    """Describe how many files these are, how large they are, and how long a download takes."""
    size, several = download_size(file for need in wanted for file in need.downloads), count(len(wanted), "file")
    if not size:
        return f"{several} of unknown size"
    return f"{several}, {size / 1e6:,.1f} MB, about {max(1, round(size * 8 / 10e6))} s with 10 Mbit/s"


def format_addresses(wanted: Iterable[PublishedFile]) -> str:
    """List what to download by hand, and where to put it below the raw folder."""
    lines = []
    for file in wanted:
        lines.append(file.path + (f"  (in it: {file.member})" if file.member else ""))
        lines += [f"    {address}" for address in file.addresses or ["no address: put it there by hand"]]
    return "\n".join(lines)


def format_catalogue() -> str:
    """List the sources of strains, networks, gene sets and models that an experiment can name, and where files are."""

    def listed(heading: str, entries: Iterable[tuple[str, Sequence[str], str]]) -> str:
        lines = [heading]
        for name, (*about, licence), where in entries:
            text = " ".join(f"{sentence.rstrip('.')}." for sentence in (*about, f"Licence: {licence}") if sentence)
            text = textwrap.fill(text, 76, break_on_hyphens=False)
            lines += [f"  {name}", textwrap.indent(text, "    "), f"    {where}"]
        return "\n".join(lines)

    here = {True: "here", False: "not here"}
    sources = [
        (name, about, f"{size}: {'here' if available else how}")
        for name, *about, size, available, how in list_sources()
    ]
    kinds = {
        "networks (cell.networks.NAME.source)": {name: entry.file for name, entry in NETWORKS.items()},
        "gene sets (cell.genes, cell.aliases)": {name: entry.file for name, entry in GENE_SETS.items()},
        "metabolic models (cell.model)": MODELS,
    }
    found = [listed("strains (data.source.name)", sources)]
    for heading, files in kinds.items():
        about = ((name, of, (of.description, of.citation, of.licence)) for name, of in files.items())
        found.append(listed(heading, ((name, text, f"{of.path}: {here[of.is_here()]}") for name, of, text in about)))
    return "\n\n".join(found) + f"\n  shipped with cobra: {', '.join(SHIPPED)}\n"
