"""The catalogue, and the files of one cell, in words."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

from dglcell.download import DECLARED, FIRST_USE
from dglcell.errors import DataError
from dglcell.graph.catalogue import GENE_SETS, MODELS, NETWORKS, GeneSetSource, ModelSource, NetworkSource
from dglcell.graph.fetch import Fetched
from dglcell.graph.model_files import SHIPPED
from dglcell.graph.raw_file import RawFile

WIDTH = 100

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
        return "not here" if file.url else "not here, and without an address"
    return "here"


def format_fetched(fetched: Iterable[Fetched]) -> str:
    """One paragraph per file: where it is, its hash, and what that was compared with."""
    lines = []
    for each in fetched:
        size = Path(each.path).stat().st_size
        lines.append(f"{each.path}  {size:,} bytes, {'downloaded' if each.downloaded else 'was here'}")
        lines.append(f"    sha256 {each.checked.sha256}, {TRUST.get(each.checked.trust, each.checked.trust)}")
    return "\n".join(lines)


def format_addresses(files: Iterable[RawFile]) -> str:
    """What to download by hand, and where to put it below the raw folder."""
    lines = []
    for file in files:
        lines.append(file.path + (f"  (in it: {file.member})" if file.member else ""))
        lines.append(f"    {file.url or 'no address'}")
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
