"""The catalogue, and the files of one cell, in words."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

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
        lines.append(f"    {file.url or 'no address'}")
    return "\n".join(lines)


def source_lines(provenance: Mapping[str, Any]) -> list[str]:
    """The files that a cell graph was made of: source, licence, hash and what that was compared with."""
    parts = [(name, provenance[name]) for name in ("model", "genes", "aliases") if name in provenance]
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
    return textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
