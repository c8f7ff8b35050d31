"""Describe a cell graph in words: node and edge counts, degrees, densities, and which genes nothing touches."""

from __future__ import annotations

import textwrap
from pathlib import PurePath

import numpy as np

from dglcell.errors import aligned, listing
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import CATALYSES, GENE, Relation
from dglcell.published.file import format_hash

WIDTH = 100

LISTED = 40  # untouched genes before '… and n more'


def describe(cell: CellGraph, *, names: bool = False) -> str:
    """Return plain text for the terminal, at most `WIDTH` columns wide if relation names are reasonably short.

    For each relation it lists: edges; nodes that are a source or a target; mean edges per target; the largest in- or
    out-degree and the node that has it (self-loops count as edges); density (edges per possible pair of source and
    target); self-loops. The files follow with their sources, licences and hashes, and all ``names`` if asked for.
    """
    parts = [
        [f"Cell graph {cell.sha256[:16]}"],
        _node_lines(cell),
        _relation_lines(cell),
        _source_lines(cell),
        _dropped_lines(cell),
        _untouched_lines(cell),
        ["all genes", *_wrapped(", ".join(cell.genes.names))] if names else [],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _node_lines(cell: CellGraph) -> list[str]:
    notes = {}
    if CATALYSES in cell.relations:
        genes, reactions = (np.count_nonzero(degrees) for degrees in cell.degrees(CATALYSES))
        notes = {"gene": f"{genes:,} in a reaction's rule", "reaction": f"{reactions:,} with genes"}
    rows = [(kind, f"{number:,}", notes.get(kind, "")) for kind, number in cell.num_nodes.items()]
    return [line.rstrip() for line in aligned([("nodes", "count", ""), *rows], left=(0, 2))]


def _relation_lines(cell: CellGraph) -> list[str]:
    headings = ("relations", "edges", "sources", "targets", "mean", "max", "busiest", "density", "loops")
    rows: list[tuple[str, ...]] = [headings]
    for source, target in sorted({relation[::2] for relation in cell.relations}):
        rows.append((f"{source} → {target}",) + ("",) * (len(headings) - 1))
        rows += [_row(cell, relation) for relation in cell.relations if relation[::2] == (source, target)]
    weighted = any(edges.weight is not None for edges in cell.content.values())
    lines = [line.rstrip() for line in aligned(rows, left=(0, 6))]
    return lines + (["* edges carry fixed weights"] if weighted else [])


def _row(cell: CellGraph, relation: Relation) -> tuple[str, ...]:
    source, name, target = relation
    edges, (out, into) = cell.edges(relation), cell.degrees(relation)
    kind, degrees = (target, into) if into.max(initial=0) >= out.max(initial=0) else (source, out)
    degree, touched = int(degrees.max(initial=0)), int(np.count_nonzero(into))
    busiest = cell.vocabularies[kind].names[int(degrees.argmax())] if degree else "-"
    return (
        f"  {name}" + ("*" if edges.weight is not None else ""),
        f"{len(edges):,}",
        f"{np.count_nonzero(out):,}",
        f"{touched:,}",
        f"{len(edges) / max(touched, 1):.1f}",
        f"{degree:,}",
        busiest if len(busiest) <= 16 else f"{busiest[:15]}…",
        f"{len(edges) / max(len(out) * len(into), 1):.3%}",
        f"{int((edges.src == edges.dst).sum()) if source == target else 0:,}",
    )


def _source_lines(cell: CellGraph) -> list[str]:
    origin = cell.provenance
    parts = {name: origin[name] for name in ("model", "genes", "aliases", "names") if name in origin}
    parts |= dict(sorted(origin.get("networks", {}).items()))
    width, lines = max(map(len, parts), default=0), list[str]()
    for name, part in parts.items():
        words = [part.get("source") or part.get("name", ""), PurePath(part.get("path", "")).name]
        hashed = format_hash(part["sha256"], part["trust"], 16)
        text = "; ".join(filter(None, [", ".join(filter(None, words)), part.get("licence", ""), hashed]))
        lines += _wrapped(text, f"  {name:{width}}  ", " " * (width + 4))
    return ["made of", *lines] if lines else []


def _dropped_lines(cell: CellGraph) -> list[str]:
    model = cell.provenance.get("model", {})
    dropped = [("metabolic model", model.get("unknown"), model.get("edges_dropped"))]
    for name, network in sorted(cell.provenance.get("networks", {}).items()):
        names = [*network["names"]["unknown"], *network["names"]["ambiguous"]]
        dropped.append((name, names, sum(counts["dropped"] for counts in network["relations"].values())))
    lines = [f"  {of}: names {len(names):,} ({listing(names, 5)}), rows {n:,}" for of, names, n in dropped if names]
    return ["left out by `unknown: drop`", *lines] if lines else []


def _untouched_lines(cell: CellGraph) -> list[str]:
    touched = np.zeros(len(cell.genes), dtype=bool)
    for (source, _, target), edges in cell.content.items():
        others = edges.select(edges.src != edges.dst) if source == target else edges
        for kind, ends in ((source, others.src), (target, others.dst)):
            if kind == GENE:
                touched[ends] = True
    names = [cell.genes.names[i] for i in np.flatnonzero(~touched)]
    if not names:
        return ["every gene is touched by a relation"]
    head = f"{len(names):,} of {len(cell.genes):,} genes are touched by no relation (self-loops aside)"
    more = [f"  … and {len(names) - LISTED:,} more"] if len(names) > LISTED else []
    return [head, *_wrapped(", ".join(names[:LISTED])), *more]


def _wrapped(text: str, first: str = "  ", others: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
