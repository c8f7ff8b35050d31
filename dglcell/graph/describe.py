"""Describe a cell graph in words: node and edge counts, degrees, densities, and which genes nothing touches."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import aligned, listing
from dglcell.graph.cell_graph import CellGraph, Edges
from dglcell.graph.schema import CATALYSES, Relation
from dglcell.graph.vocabulary import Vocabulary
from dglcell.published.file import format_hash

WIDTH = 100

LISTED = 40
"""Untouched genes that are listed before '… and n more'."""

_HEADINGS = ("edges", "sources", "targets", "mean", "max", "busiest", "density", "loops")
_NAME_WIDTH = 16


def describe(cell: CellGraph, *, names: bool = False) -> str:
    """Return plain text for the terminal, at most `WIDTH` columns wide if relation names are reasonably short.

    For each relation it lists: edges; nodes that are a source or a target; mean edges per target; the largest in- or
    out-degree and the node that has it (self-loops count as edges); density (edges per possible pair of source and
    target); self-loops. The files follow with their sources, licences and hashes, and all ``names`` if asked for.
    """
    untouched = [cell.genes.names[i] for i in cell.untouched_genes()]
    head = f"{len(untouched):,} of {len(cell.genes):,} genes are touched by no relation (self-loops aside)"
    more = [f"  … and {len(untouched) - LISTED:,} more"] if len(untouched) > LISTED else []
    parts = [
        [f"Cell graph {cell.sha256[:16]}"],
        _node_lines(cell),
        _relation_lines(cell),
        _source_lines(cell.provenance),
        _dropped_lines(cell),
        [head, *_wrapped(", ".join(untouched[:LISTED])), *more]
        if untouched
        else ["every gene is touched by a relation"],
        ["all genes", *_wrapped(", ".join(cell.genes.names))] if names else [],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _node_lines(cell: CellGraph) -> list[str]:
    notes = {}
    if CATALYSES in cell.relations:
        edges = cell.edges(CATALYSES)
        notes["gene"] = f"{len(np.unique(edges.src)):,} in a reaction's rule"
        notes["reaction"] = f"{len(np.unique(edges.dst)):,} with genes"
    rows = [(t, f"{len(names):,}", notes.get(t, "")) for t, names in sorted(cell.vocabularies.items())]
    return [line.rstrip() for line in aligned([("nodes", "count", ""), *rows], left=(0, 2))]


def _relation_lines(cell: CellGraph) -> list[str]:
    rows: list[tuple[str, ...]] = []
    weighted = False
    for source, target in sorted({(source, target) for source, _, target in cell.relations}):
        rows.append((f"{source} → {target}",) + ("",) * len(_HEADINGS))
        for relation in cell.relations:
            if (relation[0], relation[2]) == (source, target):
                edges = cell.edges(relation)
                weighted |= edges.weight is not None
                rows.append(_relation_row(cell, relation, edges))
    lines = [line.rstrip() for line in aligned([("relations", *_HEADINGS), *rows], left=(0, 6))]
    return lines + (["* edges carry fixed weights"] if weighted else [])


def _relation_row(cell: CellGraph, relation: Relation, edges: Edges) -> tuple[str, ...]:
    source, name, target = relation
    sources, targets = cell.vocabularies[source], cell.vocabularies[target]
    out_degree, in_degree = cell.degrees(relation)
    touched = int((in_degree > 0).sum())
    busiest, degree = max(_busiest(in_degree, targets), _busiest(out_degree, sources), key=lambda best: best[1])
    loops = int((edges.src == edges.dst).sum()) if source == target else 0
    return (
        f"  {name}" + ("*" if edges.weight is not None else ""),
        f"{len(edges):,}",
        f"{int((out_degree > 0).sum()):,}",
        f"{touched:,}",
        f"{len(edges) / max(touched, 1):.1f}",
        f"{degree:,}",
        busiest if len(busiest) <= _NAME_WIDTH else busiest[: _NAME_WIDTH - 1] + "…",
        f"{len(edges) / max(len(sources) * len(targets), 1):.3%}",
        f"{loops:,}",
    )


def _busiest(degree: NDArray[np.int64], names: Vocabulary) -> tuple[str, int]:
    node = int(degree.argmax()) if degree.any() else None
    return ("-", 0) if node is None else (names.names[node], int(degree[node]))


def _source_lines(provenance: Mapping[str, Any]) -> list[str]:
    """Return lines on the files that a cell graph was made of: source, licence, hash and what it was compared with."""
    parts = [(name, provenance[name]) for name in ("model", "genes", "aliases", "names") if name in provenance]
    parts += sorted(provenance.get("networks", {}).items())
    width = max((len(name) for name, _ in parts), default=0)
    lines = []
    for name, part in parts:
        words = [part.get("source") or part.get("name", ""), PurePath(part.get("path", "")).name]
        hashed = format_hash(part["sha256"], part["trust"], 16)
        text = "; ".join(filter(None, [", ".join(filter(None, words)), part.get("licence", ""), hashed]))
        lines += _wrapped(text, f"  {name:{width}}  ", " " * (width + 4))
    return ["made of", *lines] if lines else []


def _dropped_lines(cell: CellGraph) -> list[str]:
    lines = []
    model = cell.provenance.get("model", {})
    if model.get("unknown"):
        names = f"names {len(model['unknown']):,} ({listing(model['unknown'], 5)})"
        lines.append(f"  metabolic model: {names}, rows {model['edges_dropped']:,}")
    for name, network in sorted(cell.provenance.get("networks", {}).items()):
        left_out = [*network["names"]["unknown"], *network["names"]["ambiguous"]]
        if left_out:
            rows = sum(counts["dropped"] for counts in network["relations"].values())
            lines.append(f"  {name}: names {len(left_out):,} ({listing(left_out, 5)}), rows {rows:,}")
    return ["left out by `unknown: drop`", *lines] if lines else []


def _wrapped(text: str, first: str = "  ", others: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
