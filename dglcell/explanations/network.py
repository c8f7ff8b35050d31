"""Choose the small part of a cell graph that carries most of a predicted change, for drawings and for Cytoscape."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

import numpy as np

from dglcell.explanations.reactions import of_whole_reactions
from dglcell.explanations.tables import COLUMNS, OTHERS, Explanations
from dglcell.explanations.text import called
from dglcell.graph.metabolism import model_reaction
from dglcell.graph.schema import CATALYSES, GENE, REACTION
from dglcell.report.network import Network, Node

if TYPE_CHECKING:
    import pandas as pd

MOST_NODES = 30
"""A network has at most so many nodes."""

ENOUGH = 0.8
"""It stops where its nodes carry so much of the absolute shares of each layer, if fewer nodes are enough."""


def network_of(found: Explanations, strain: int, phenotype: str) -> Network:
    """Return what a strain lacks, the nodes with the largest shares in any layer, and edges among them.

    First come the genes that the strain changes, also where the model reads no gene, and the reactions that it lacks
    with them. A reaction is one node, whatever its directions and enzyme complexes. Its share of the flux balance
    counts as one of another layer.
    """
    table, balance = of_whole_reactions(found.of("nodes", strain, phenotype)), found.of("balance", strain, phenotype)
    if len(balance):
        table = _with_balance(table, balance)
    weight = table["share"].abs()
    table = table.assign(part=weight / weight.groupby(table["layer"]).transform("sum").replace(0, np.nan))
    totals = table.groupby("layer")["part"].sum()
    named = table[table["node_type"] != OTHERS].sort_values("part", ascending=False, kind="stable")
    if not len(named):
        return Network([], [], 1.0)
    keys = named["node_type"] + " " + named["node"]

    def carried_by(some: list[str]) -> float:
        mine = named[keys.isin(some)].groupby("layer")["part"].sum()
        return float((mine.reindex(totals.index, fill_value=0) / totals).min())

    genes = _changed_genes(found, strain)
    chosen = [*genes, *_lost_with(found, genes, set(keys))][: MOST_NODES // 2]
    for key in dict.fromkeys(keys):
        if len(chosen) == MOST_NODES or carried_by(chosen) >= ENOUGH:
            break
        if key not in chosen:
            chosen.append(key)
    missing = set(keys[named["layer"] == 0]) - _kept_in_part(found, strain, phenotype) | set(genes)
    labels = {key: called(name, node) for key, name, node in zip(keys, named["name"], named["node"], strict=True)}
    largest = named.assign(key=keys, size=named["share"].abs()).sort_values("size", ascending=False, kind="stable")
    shares = largest.drop_duplicates("key").set_index("key")["share"]
    nodes = [
        Node(
            key,
            key.partition(" ")[0],
            labels.get(key) or genes[key],
            float(shares.get(key, 0.0)),
            key in missing,
        )
        for key in chosen
    ]
    return Network(nodes, _edges_among(found, nodes), carried_by(chosen))


def _changed_genes(found: Explanations, strain: int) -> dict[str, str]:
    """Return the genes that a strain changes, key → what to call it."""
    genes, vocabulary = found.strains.set_index("strain")["genes"], found.cell.vocabularies[GENE]
    text = str(genes[genes.index == strain].iloc[0])
    names = [part.partition(":")[0] for part in text.split(";")] if text else []
    return {_key(GENE, name): called(vocabulary.standard(name), name) for name in names}


def _lost_with(found: Explanations, genes: Mapping[str, str], known: Set[str]) -> list[str]:
    """Return the keys of reactions with a share that have an edge from any of some genes."""
    edges = found.cell.content.get(CATALYSES)
    if edges is None:
        return []
    vocabulary, reactions = found.cell.vocabularies[GENE], found.cell.vocabularies[REACTION].names
    numbers = [vocabulary.index(key.partition(" ")[2]) for key in genes]
    own = edges.dst[np.isin(edges.src, numbers)].tolist()
    keys = dict.fromkeys(_key(REACTION, model_reaction(reactions[node])) for node in own)
    return [key for key in keys if key in known]


def _with_balance(nodes: pd.DataFrame, balance: pd.DataFrame) -> pd.DataFrame:
    """Return a table of nodes with shares of the flux balance below, as layer −1."""
    import pandas as pd

    node_type = np.where(balance["reaction"] == OTHERS, OTHERS, REACTION)
    more = balance.rename(columns={"reaction": "node"}).assign(layer=-1, node_type=node_type)
    more = more[[*COLUMNS["nodes"]]]
    return pd.concat([nodes, more], ignore_index=True) if len(nodes) else more.reset_index(drop=True)


def _kept_in_part(found: Explanations, strain: int, phenotype: str) -> set[str]:
    """Return keys of reactions of which a strain lacks only some directions or enzyme complexes."""
    removed = found.of("removed", strain, phenotype)
    lost = set(removed["node"][removed["node_type"] == REACTION])
    touched = {model_reaction(node) for node in lost}
    nodes = found.cell.vocabularies[REACTION].names if touched else ()
    return {_key(REACTION, model_reaction(node)) for node in nodes if node not in lost} & {
        _key(REACTION, reaction) for reaction in touched
    }


def _key(node_type: str, node: str) -> str:
    return f"{node_type} {node}"


def _edges_among(found: Explanations, nodes: list[Node]) -> list[tuple[str, str, str]]:
    """Return the edges of the cell graph among some nodes; of two nodes and a pair of relations only the first."""
    chosen = {node.key for node in nodes}
    by_type: dict[str, dict[int, str]] = {}
    for node_type in {node.node_type for node in nodes}:
        names = enumerate(found.cell.vocabularies[node_type].names)
        keys = {i: _key(node_type, model_reaction(n) if node_type == REACTION else n) for i, n in names}
        by_type[node_type] = {i: key for i, key in keys.items() if key in chosen}
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
