"""Show explanations on a terminal: one strain in full, and several as a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dglcell.explanations.reactions import of_whole_reactions
from dglcell.explanations.tables import OTHERS, Explanations
from dglcell.graph.schema import GENE

if TYPE_CHECKING:
    import pandas as pd

IN_FULL = 3
"""So many strains are shown in full; more of them become a list."""

LINES = 10
"""So many nodes are shown of each strain."""

NEGLIGIBLE = 1e-9
"""A smaller sum of the shares of all other nodes is not shown."""

SMALL = 5e-5
"""Of the flux balance, smaller shares are not shown: they would be zeros."""

REST, ROUNDING = "rest, which no part explains", 1e-4
"""What parts leave of a change is shown if it is more than so much of the largest part."""

SAME = "The model predicts the same as for the wild type."
ADDS = "The model predicts what fewer of these changes add up to."


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


def with_rest(parts: pd.DataFrame, rest: float) -> dict[str, float]:
    """Return part → its share, and what the parts leave of the change, where it is more than rounding.

    Functions without a rule that are not smooth leave such a rest.
    """
    shares = dict(zip(parts["part"], parts["share"], strict=True))
    return shares if abs(rest) <= ROUNDING * parts["share"].abs().max() else {**shares, REST: rest}


def _in_full(found: Explanations, row: Mapping[Any, Any]) -> str:
    parts, layers, nodes = (found.of(name, row["strain"], row["phenotype"]) for name in ("parts", "layers", "nodes"))
    nodes = of_whole_reactions(nodes)
    name, predicted = strain_name(row["genes"], found), f"{row['phenotype']} {row['predicted']:.4g}"
    if found.subsets is None:
        lines = [f"{name}: {predicted}, of the wild type {row['wild_type']:.4g}, change {row['change']:+.4g}"]
    else:
        lines = [f"{name}: {predicted}, expected {row['expected']:.4g}, interaction {row['change']:+.4g}"]
        lines += ["  what is predicted for fewer of these changes", *_subsets(found, row)]
    if not parts["share"].abs().max() > 0:
        return "\n".join([*lines, f"  {SAME if found.subsets is None else ADDS}"])
    direct = with_rest(parts, row["rest"])
    lines += ["  what the output depends on directly", *_lines(direct, direct.values())]
    lines += _of_balance(found.of("balance", row["strain"], row["phenotype"]), found.subsets is not None)
    for layer, of_layer in layers.groupby("layer", sort=True):
        lines += [f"  part `graph`, by what layer {layer} computes with"]
        lines += _lines(of_layer["relation"], of_layer["share"])
        lines += _of_edges(found, row, layer)
    for layer in nodes["layer"].agg(["min", "max"]).unique() if len(nodes) else ():
        what = "what is missing" if layer == 0 else f"the nodes that are read after layer {layer}"
        of_layer = nodes[nodes["layer"] == layer]
        largest = of_layer[of_layer["node_type"] != OTHERS].head(LINES).to_dict("records")
        if largest:
            names = [f"{one['node_type']} {called(one['name'], one['node'])}" for one in largest]
            shares = [one["share"] for one in largest]
            lines += _largest(f"  part `graph`, by {what}", names, shares, of_layer["share"].sum())
    return "\n".join(lines)


def _of_edges(found: Explanations, row: Mapping[Any, Any], layer: Any) -> list[str]:
    """Return the edges with the largest shares of what a layer brings in, where edges are explained."""
    if found.edges is None:
        return []
    edges = of_whole_reactions(found.of("edges", row["strain"], row["phenotype"]))
    edges = edges[edges["layer"] == layer]
    largest = edges[edges["relation"] != OTHERS].head(LINES).to_dict("records")
    if not largest:
        return []
    names = [
        f"{one['relation']}: {called(one['source_name'], one['source'])} → {called(one['target_name'], one['target'])}"
        for one in largest
    ]
    title = f"  part `graph`, by the edges of layer {layer}"
    return _largest(title, names, [one["share"] for one in largest], edges["share"].sum())


def _of_balance(balance: pd.DataFrame, interaction: bool) -> list[str]:
    """Return the reactions with the largest shares of the flux balance, with their fluxes."""
    named = balance[(balance["reaction"] != OTHERS) & (balance["share"].abs() > SMALL)]
    if not len(named):
        return []
    largest = named.head(LINES)
    names = [
        f"reaction {called(one['name'], one['reaction'])}, flux "
        + (f"{one['flux']:+.4g}" if interaction else f"{one['wild_type']:.4g} → {one['flux']:.4g}")
        for one in largest.to_dict("records")
    ]
    shares = largest["share"].tolist()
    return _largest("  part `flux balance`, by reactions", names, shares, balance["share"].sum())


def _subsets(found: Explanations, row: Mapping[Any, Any]) -> list[str]:
    """Return a line for each prediction that the interaction is made of, but for that of the strain itself."""
    assert found.subsets is not None
    mine = (found.subsets["strain"] == row["strain"]) & (found.subsets["phenotype"] == row["phenotype"])
    fewer = found.subsets[mine].iloc[:-1]
    pairs = zip(fewer["genes"], fewer["predicted"], strict=True)
    return [f"    {predicted:10.4f}  {strain_name(genes, found)}" for genes, predicted in pairs]


def _largest(title: str, names: Sequence[str], shares: Sequence[float], total: float) -> list[str]:
    """Return lines of the largest shares below a title, and what all others have of the total."""
    rest = total - sum(shares)
    others = _lines(["all others"], [rest]) if abs(rest) > NEGLIGIBLE else []
    return [title, *_lines(names, shares), *others]


def _lines(names: Iterable[str], shares: Iterable[float]) -> list[str]:
    return [f"    {share:+10.4f}  {name}" for name, share in zip(names, shares, strict=True)]


def _listed(found: Explanations, rows: Sequence[Mapping[Any, Any]]) -> str:
    """Return a line for each strain: its change, the largest part, and the missing node with the largest share."""
    import pandas as pd

    keys = ["strain", "phenotype"]
    missing = of_whole_reactions(found.nodes[(found.nodes["layer"] == 0) & (found.nodes["node_type"] != OTHERS)])
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
                "change" if found.subsets is None else "interaction": f"{row['change']:+.4g}",
                "largest part": f"{part['part']} {part['share']:+.3g}" if part else "",
                "largest of what is missing": f"{called(node['name'], node['node'])} {node['share']:+.3g}"
                if node
                else "",
            }
        )
    return pd.DataFrame(lines).to_string(index=False)
