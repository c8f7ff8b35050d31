"""Choose the small part of a cell graph that carries most of a predicted change, for drawings and for Cytoscape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dglcell.explanations.tables import OTHERS, Explanations
from dglcell.explanations.text import called

MOST_NODES = 30
"""A network has at most so many nodes."""

ENOUGH = 0.8
"""It stops where its nodes carry so much of the absolute shares of each layer, if fewer nodes are enough."""


@dataclass(frozen=True)
class Node:
    """Describe a node of a network.

    Attributes:
        key: identifies it: node type and node.
        node_type, node: its type and its name in the cell graph.
        label: what to call it.
        share: its largest share in any layer, in the unit of the phenotype.
        missing: whether the strain lacks it, or has less of it.
    """

    key: str
    node_type: str
    node: str
    label: str
    share: float
    missing: bool


@dataclass(frozen=True)
class Network:
    """Hold the nodes that carry most of a change, with the edges among them.

    Attributes:
        nodes: largest shares first.
        edges: (key of the source, key of the target, relation); relations in both directions are given once.
        carried: which part of the absolute shares these nodes carry, in the layer where it is least.
    """

    nodes: list[Node]
    edges: list[tuple[str, str, str]]
    carried: float


def network_of(found: Explanations, strain: int, phenotype: str, most: int = MOST_NODES) -> Network:
    """Return the nodes with the largest shares in any layer, of one strain and phenotype, and edges among them.

    Args:
        found: explanations.
        strain: number of the strain.
        phenotype: its phenotype.
        most: largest number of nodes.
    """
    table = found.of("nodes", strain, phenotype)
    weight = table["share"].abs()
    table = table.assign(part=weight / weight.groupby(table["layer"]).transform("sum").replace(0, np.nan))
    totals = table.groupby("layer")["part"].sum()
    named = table[table["node_type"] != OTHERS].sort_values("part", ascending=False, kind="stable")
    keys = named["node_type"] + " " + named["node"]
    chosen: list[str] = []
    carried = 1.0 if not len(totals) else 0.0
    for key in dict.fromkeys(keys):
        if len(chosen) == most or carried >= ENOUGH:
            break
        chosen.append(key)
        mine = named[keys.isin(chosen)].groupby("layer")["part"].sum()
        carried = float((mine.reindex(totals.index, fill_value=0) / totals).min())
    missing = set(keys[named["layer"] == 0])
    first = named.assign(key=keys).drop_duplicates("key").set_index("key")
    largest = named.assign(key=keys, size=named["share"].abs()).sort_values("size", ascending=False, kind="stable")
    shares = largest.drop_duplicates("key").set_index("key")["share"]
    nodes = [
        Node(
            key,
            str(first.loc[key, "node_type"]),
            str(first.loc[key, "node"]),
            called(str(first.loc[key, "name"]), str(first.loc[key, "node"])),
            float(shares[key]),
            key in missing,
        )
        for key in chosen
    ]
    return Network(nodes, _edges_among(found, nodes), carried)


def _edges_among(found: Explanations, nodes: list[Node]) -> list[tuple[str, str, str]]:
    """Return the edges of the cell graph among some nodes; of two nodes and a pair of relations only the first."""
    by_type: dict[str, dict[int, str]] = {}
    for node in nodes:
        by_type.setdefault(node.node_type, {})[found.cell.vocabularies[node.node_type].index(node.node)] = node.key
    edges: list[tuple[str, str, str]] = []
    joined: set[frozenset[str]] = set()
    for (source, relation, target), known in found.cell.content.items():
        sources, targets = by_type.get(source, {}), by_type.get(target, {})
        both = np.isin(known.src, list(sources)) & np.isin(known.dst, list(targets))
        for u, v in zip(known.src[both].tolist(), known.dst[both].tolist(), strict=True):
            pair = frozenset((sources[u], targets[v]))
            if len(pair) == 2 and pair not in joined:
                joined.add(pair)
                edges.append((sources[u], targets[v], relation))
    return edges
