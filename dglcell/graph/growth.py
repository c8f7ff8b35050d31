"""How much a network has grown between two versions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import ConfigError
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import gene_relation

GENE_SETS = ("common", "all")


def share_of_zeros_gone(old: tuple[CellGraph, str], new: tuple[CellGraph, str], genes: str = "common") -> float:
    """Of the pairs of genes that were no edge in the old version of a network, the share that are one in the new.

    Pairs are unordered and of different genes.

    Args:
        old, new: cell graph and name of the gene–gene relation, each; genes are matched by name.
        genes: ``common``: those with an edge in both versions; ``all``: those that both cell graphs have.

    Raises:
        ConfigError: ``genes`` is unknown.
        GraphError: a cell has no such relation.
    """
    if genes not in GENE_SETS:
        raise ConfigError("which genes count is unknown", got=genes, expected=" or ".join(GENE_SETS))
    names = sorted(set(old[0].genes.names) & set(new[0].genes.names))
    before, after = _adjacency(*old, names), _adjacency(*new, names)
    if genes == "common":
        counted = before.any(0) & after.any(0)
        before, after = before[np.ix_(counted, counted)], after[np.ix_(counted, counted)]
    is_zero = np.triu(~before, k=1)
    return float((after & is_zero).sum() / max(1, is_zero.sum()))


def _adjacency(cell: CellGraph, name: str, names: list[str]) -> NDArray[np.bool_]:
    """[n, n] which genes of ``names`` are joined in either direction; none to itself."""
    edges = cell.edges(gene_relation(name))
    position = np.full(len(cell.genes), -1)
    position[cell.genes.indices(names)] = np.arange(len(names))
    src, dst = position[edges.src], position[edges.dst]
    known = (src >= 0) & (dst >= 0) & (src != dst)
    matrix = np.zeros((len(names), len(names)), dtype=bool)
    matrix[src[known], dst[known]] = True
    return matrix | matrix.T
