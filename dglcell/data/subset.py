"""A smaller split: fewer strains, the same proportions of the parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.partition import PARTS, UNUSED, Parts, gene_set_keys, shuffled
from dglcell.data.split_config import METABOLIC, SubsetConfig
from dglcell.data.table import StrainTable
from dglcell.errors import DataError
from dglcell.files import canonical_hash, find_raw, sha256_file
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.names import read_gene_list
from dglcell.graph.schema import CATALYSES


def subset_genes(
    subset: SubsetConfig, table: StrainTable, raw: str | None = None, cell: CellGraph | None = None
) -> tuple[NDArray[np.bool_] | None, dict[str, Any]]:
    """[N] which genes are listed (None without a list), and the record of it.

    The metabolic genes are those of the cell graph's GPR rules.

    Raises:
        DataError: the list is not found or has no gene of the store, or the cell graph has no metabolic genes.
        GraphError: the list is damaged or empty.
    """
    if subset.genes is None:
        return None, asdict(subset)
    if subset.genes == METABOLIC:
        listed, where, digest = metabolic_genes(cell), "the metabolic genes of the cell graph", None
    else:
        path = find_raw(subset.genes, raw)
        listed, where, digest = frozenset(read_gene_list(path).names), f"gene list '{path}'", sha256_file(path)
    genes = np.array([name in listed for name in table.names])
    if not genes.any():
        raise DataError(
            f"{where}: no gene of the store is among them",
            got=f"{len(listed):,} names",
            expected=f"names such as {', '.join(table.names[:3])}",
            do="list systematic names, one a line",
        )
    record = {
        **asdict(subset),
        "genes": subset.genes if digest is None else path.name,
        "genes_sha256": digest or canonical_hash(sorted(listed)),
        "genes_listed": len(listed),
        "genes_known": int(genes.sum()),
    }
    return genes, record


def metabolic_genes(cell: CellGraph | None) -> frozenset[str]:
    """Names of the genes that catalyse a reaction of the cell graph.

    Raises:
        DataError: there are none.
    """
    if cell is None or CATALYSES not in cell.relations:
        raise DataError(
            f"`split.subset.genes: {METABOLIC}`: the cell graph has no metabolic genes",
            do="set `cell.model` and `cell.metabolism: true`, or name a file of genes",
        )
    return frozenset(cell.genes.names[gene] for gene in np.unique(cell.edges(CATALYSES).src))


def subset_parts(
    parts: Parts,
    table: StrainTable,
    size: int,
    seed: int,
    genes: NDArray[np.bool_] | None = None,
    take: str = "singles_first",
) -> Parts:
    """Keep ``size`` strains of a split; the others become unused.

    Each part keeps its share of the strains there are to choose from; which ones is random in ``seed``.

    Args:
        parts: [S] the whole split.
        table: the strains.
        size: strains to keep in all parts together.
        seed: of the choice.
        genes: [N] keep only strains that delete one of these, where given.
        take: ``singles_first``: within a part, strains with at most one deletion are taken first, then the others
            evenly over their numbers of deletions, as by torchcell's ``PerturbationSubsetDataModule``.
            ``proportional``: whatever their number of deletions.

    Raises:
        DataError: there are fewer than ``size`` strains to choose from.
    """
    eligible = parts != UNUSED
    if genes is not None:
        eligible &= _deletes_any(table, genes)
    if eligible.sum() < size:
        raise DataError(
            "the subset is larger than what it is taken from",
            got=f"size {size:,}",
            expected=f"at most {int(eligible.sum()):,} strains" + ("" if genes is None else " with a listed gene"),
            do="lower the size of the subset, or list more genes",
        )
    order = shuffled(gene_set_keys(table), seed)
    members = [np.flatnonzero(eligible & (parts == part)) for part in range(len(PARTS))]
    kept = np.full_like(parts, UNUSED)
    for strains, quota in zip(members, _proportional([len(m) for m in members], size), strict=True):
        level = table.num_deletions[strains] * (take == "singles_first")
        for number, count in _takes(level, quota):
            same = strains[level == number]
            chosen = same[np.argsort(order[same], kind="stable")[:count]]
            kept[chosen] = parts[chosen]
    return kept


def _deletes_any(table: StrainTable, genes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[S] whether a strain deletes one of ``genes``."""
    hits = np.concatenate([[0], np.cumsum(genes[table.genes])])
    return hits[table.offsets[1:]] > hits[table.offsets[:-1]]


def _proportional(sizes: Sequence[int], total: int) -> list[int]:
    """Divide ``total`` in proportion to ``sizes`` (largest remainders)."""
    exact = np.asarray(sizes) * total / sum(sizes)
    shares = np.floor(exact).astype(np.int64)
    shares[np.argsort(shares - exact, kind="stable")[: total - shares.sum()]] += 1
    return shares.tolist()


def _takes(deletions: NDArray[np.int64], quota: int) -> list[tuple[int, int]]:
    """(number of deletions, strains to take with it): at most one deletion first, then evenly over the rest."""
    numbers, available = np.unique(deletions, return_counts=True)
    takes = []
    few = numbers <= 1
    for number, count in zip(numbers[few].tolist(), available[few].tolist(), strict=True):
        takes.append((number, min(count, quota)))
        quota -= takes[-1][1]
    # From the scarcest on, each takes an even share of what is left, so that its shortfall goes to the others.
    many = sorted(zip(available[~few].tolist(), numbers[~few].tolist(), strict=True))
    for turn, (count, number) in enumerate(many):
        takes.append((number, min(count, quota // (len(many) - turn))))
        quota -= takes[-1][1]
    return takes
