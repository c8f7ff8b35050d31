"""Show explanations on a terminal: one strain in full, and several as a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dglcell.explanations.tables import OTHERS, Explanations
from dglcell.graph.schema import GENE

IN_FULL = 3
"""So many strains are shown in full; more of them become a list."""

LINES = 10
"""So many nodes are shown of each strain."""

NEGLIGIBLE = 1e-9
"""A smaller sum of the shares of all other nodes is not shown."""

SAME = "The model predicts the same as for the wild type."


def show(found: Explanations) -> str:
    """Return explanations as text, for a terminal."""
    rows = found.strains.to_dict("records")
    if len(rows) > IN_FULL * max(1, found.strains["phenotype"].nunique()):
        return _listed(found, rows)
    return "\n\n".join(_in_full(found, row) for row in rows)


def called(name: str, node: str) -> str:
    """Return what to call a node: by its standard name too, if it has one."""
    return f"{name} ({node})" if name else node


def strain_name(genes: str, found: Explanations) -> str:
    """Return the name of a strain, e.g. ``icd (b1136), b0008:0.3``; the wild type is one without genes."""
    vocabulary = found.cell.vocabularies[GENE]
    parts = [part.rpartition(":") if ":" in part else (part, "", "") for part in genes.split(";")] if genes else []
    named = [called(vocabulary.standard(gene), gene) + colon + left for gene, colon, left in parts]
    return ", ".join(named) or "the wild type"


def _in_full(found: Explanations, row: Mapping[Any, Any]) -> str:
    parts, layers, nodes = (found.of(name, row["strain"], row["phenotype"]) for name in ("parts", "layers", "nodes"))
    lines = [
        f"{strain_name(row['genes'], found)}: {row['phenotype']} {row['predicted']:.4g}, of the wild type "
        f"{row['wild_type']:.4g}, change {row['change']:+.4g}"
    ]
    if not parts["share"].abs().max() > 0:
        return "\n".join([*lines, f"  {SAME}"])
    lines += ["  what the output depends on directly", *_lines(parts["part"], parts["share"])]
    for layer, of_layer in layers.groupby("layer", sort=True):
        lines += [f"  part `graph`, by what layer {layer} computes with"]
        lines += _lines(of_layer["relation"], of_layer["share"])
    for layer in nodes["layer"].agg(["min", "max"]).unique() if len(nodes) else ():
        what = "what is missing" if layer == 0 else f"the nodes that are read after layer {layer}"
        of_layer = nodes[nodes["layer"] == layer]
        largest = of_layer[of_layer["node_type"] != OTHERS].head(LINES).to_dict("records")
        rest = of_layer["share"].sum() - sum(one["share"] for one in largest)
        if largest:
            names = [f"{one['node_type']} {called(one['name'], one['node'])}" for one in largest]
            lines += [f"  part `graph`, by {what}", *_lines(names, [one["share"] for one in largest])]
            lines += _lines(["all others"], [rest]) if abs(rest) > NEGLIGIBLE else []
    return "\n".join(lines)


def _lines(names: Iterable[str], shares: Iterable[float]) -> list[str]:
    return [f"    {share:+10.4f}  {name}" for name, share in zip(names, shares, strict=True)]


def _listed(found: Explanations, rows: Sequence[Mapping[Any, Any]]) -> str:
    """Return a line for each strain: its change, the largest part, and the missing node with the largest share."""
    import pandas as pd

    keys = ["strain", "phenotype"]
    missing = found.nodes[(found.nodes["layer"] == 0) & (found.nodes["node_type"] != OTHERS)]
    first = {
        name: {(one["strain"], one["phenotype"]): one for one in table.drop_duplicates(keys).to_dict("records")}
        for name, table in (("part", found.parts), ("node", missing))
    }
    lines = []
    for row in rows:
        part, node = (first[name].get((row["strain"], row["phenotype"])) for name in ("part", "node"))
        lines.append(
            {
                "strain": strain_name(row["genes"], found),
                "phenotype": row["phenotype"],
                "predicted": f"{row['predicted']:.4g}",
                "change": f"{row['change']:+.4g}",
                "largest part": f"{part['part']} {part['share']:+.3g}" if part else "",
                "largest of what is missing": f"{called(node['name'], node['node'])} {node['share']:+.3g}"
                if node
                else "",
            }
        )
    return pd.DataFrame(lines).to_string(index=False)
