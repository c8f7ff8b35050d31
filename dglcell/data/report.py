"""Describe stores as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from dglcell.data.columns import P_VALUE, REPLICATES, SD
from dglcell.data.partition import gene_set_keys
from dglcell.data.store import Store
from dglcell.errors import aligned, count

LABEL_WIDTH = 13
TEXT_WIDTH = 80


def describe_store(store: Store) -> str:
    """Describe what a store holds and where it came from, from its metadata alone."""
    meta, source = store.meta, store.meta.provenance
    unit = {name: f" [{meta.units[name]}]" if meta.units.get(name) else "" for name in meta.phenotypes}
    entries = [
        ("store", str(store.path)),
        ("strains", f"{meta.strains:,} with {meta.deletions:,} deletions over {len(meta.names):,} gene names"),
        ("phenotypes", ", ".join(name + unit[name] for name in meta.phenotypes)),
        ("p-values", ", ".join(meta.of_kind(P_VALUE))),
        ("replicate SD", ", ".join(meta.of_kind(SD))),
        ("replicates", ", ".join(meta.of_kind(REPLICATES))),
        ("size", f"{store.file_size:,} bytes, {store.file_size / len(store):.1f} a strain"),
        ("source", source.source + (f": {source.description}" if source.description else "")),
        ("citation", source.citation),
        ("licence", source.licence),
        *(("url", url) for url in source.urls),
        *(("raw file", f"{name}  sha256 {digest[:12]}…") for name, digest in source.files.items()),
        ("rows", ", ".join(f"{what.replace('_', ' ')} {count:,}" for what, count in source.counts.items())),
        ("parameters", ", ".join(f"{key}={value}" for key, value in source.parameters.items())),
        ("built", f"{meta.created} by dglcell {meta.version}"),
        ("command", meta.command),
        ("sha256", meta.sha256),
    ]
    return _entries(entries)


def format_stats(store: Store) -> str:
    """Format `describe_store`, and labels, numbers of deletions and genes over all strains of the store."""
    table = store.read()
    labels = pd.DataFrame(table.phenotypes).astype(np.float64)  # sums over millions of strains need more than float32
    spread = labels.describe().T
    spread["std"] = labels.std(ddof=0)
    titles = [name + (f" [{unit}]" if (unit := table.units.get(name)) else "") for name in table.phenotypes]
    measured = [
        (title, f"{number:,.0f}", *("n/a" if np.isnan(value) else f"{value:.4g}" for value in others))
        for title, (number, *others) in zip(titles, spread.to_numpy(), strict=True)
    ]
    header = "phenotype", "measured", "mean", "SD", "min", "25 %", "median", "75 %", "max"
    replicates = ", ".join(
        f"{name}: {count(int((numbers > 1).sum()), 'strain')} with 2 to {numbers.max():.0f} measurements"
        for name, numbers in table.of_kind(REPLICATES).items()
        if (numbers > 1).any()
    )
    numbers = zip(*np.unique(table.num_deletions, return_counts=True), strict=True)
    deletions = ", ".join(f"{strains:,} with {number}" for number, strains in numbers)
    # With counts numpy sorts the keys. Without, it hashes them, which takes 30 times as long for 20 million strains.
    gene_sets = len(np.unique(gene_set_keys(table), return_counts=True)[0])
    frequency = np.bincount(table.targets, minlength=len(table.names))
    # Stable, so that genes of equal frequency are listed by name.
    top = np.argsort(-frequency, kind="stable")[:5]
    extra = [
        ("replicates", replicates),
        ("deletions", deletions),
        ("gene sets", f"{gene_sets:,} distinct among {len(table):,} strains"),
        ("genes", f"{(frequency > 0).sum():,} of {len(table.names):,} names are deleted in some strain"),
        ("most often", ", ".join(f"{table.names[gene]} ({frequency[gene]:,})" for gene in top if frequency[gene])),
    ]
    lines = "\n".join(line.rstrip() for line in aligned([header, *measured], (0,)))
    return "\n\n".join([describe_store(store), lines, _entries(extra)])


def _entries(entries: Iterable[tuple[str, str]]) -> str:
    form: dict[str, Any] = {"subsequent_indent": " " * (LABEL_WIDTH + 1)}
    form |= {"break_long_words": False, "break_on_hyphens": False}
    filled = [
        textwrap.fill(text, TEXT_WIDTH, initial_indent=f"{label:<{LABEL_WIDTH}} ", **form)
        for label, text in entries
        if text
    ]
    return "\n".join(filled)
