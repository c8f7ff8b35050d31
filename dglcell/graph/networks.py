"""Read gene–gene networks from edge tables, by what a table's columns mean, and split them into relations."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError, count
from dglcell.files.atomic import find_raw, sha256_file
from dglcell.graph.catalogue import GROUPS, NamedTable, NetworkConfig
from dglcell.graph.cell_graph import Edges, merge_pairs
from dglcell.graph.names import PLACEHOLDERS, refuse_names
from dglcell.graph.schema import check_relation_name
from dglcell.graph.tables import EdgeTable, read_table
from dglcell.graph.vocabulary import REFUSE, AliasTable, Vocabulary, spelling
from dglcell.published.file import FILES

if TYPE_CHECKING:
    from dglcell.graph.config import CellConfig

log = logging.getLogger("dglcell")


def pairs_within_groups(members: NDArray[np.int64], groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Return all pairs of different members of groups, [pairs] each, once per group, the smaller index first."""
    import pandas as pd

    rows = pd.DataFrame({"group": groups, "member": members}).drop_duplicates()
    pairs = rows.merge(rows, on="group")
    pairs = pairs[pairs["member_x"] < pairs["member_y"]]
    return pairs["member_x"].to_numpy(np.int64), pairs["member_y"].to_numpy(np.int64)


@dataclass(frozen=True)
class Network:
    """Hold an edge table with its names resolved but not yet mapped to a vocabulary."""

    name: str  #: name of the network
    names: tuple[str, ...]  #: distinct gene names in the file, after prefix and aliases
    ambiguous: tuple[str, ...]  #: names that stand for several genes
    relations: dict[str, Edges]  #: relation name → edges whose ends index ``names``, as the file gives them
    provenance: dict[str, Any]  #: file, hash and row counts


def read_network(
    name: str, named: NamedTable, aliases: AliasTable, known: Vocabulary, raw: str | None = None
) -> Network:
    """Read one edge table; names in ``known`` stand for themselves whatever the aliases say.

    Raises:
        DataError: the file is missing, or has the wrong hash.
        GraphError: the file is damaged or lacks what ``named`` says of it, or a relation gets an impossible name.
    """
    config, found = named.config, named.file.find(raw)
    provenance = {"path": config.path, **found.provenance()}
    columns, quotes = config.requested_columns(), config.quotes is not False
    rows = read_table(found.path, columns, config.separator, config.header, quotes=quotes).where(config.where)
    table = _named_rows(name, rows, config, known)
    names, ambiguous, source, target = _resolve_ends(table, config, aliases, known)
    relations = {
        relation: Edges(source[rows], target[rows], weight)
        for relation, rows, weight in _split_relations(name, config, table, len(source))
    }
    if config.not_within:
        published = FILES.get(config.not_within)
        screen = published.find(raw).path if published else find_raw(config.not_within, raw)
        provenance["not_within"] = {"path": config.not_within, "sha256": sha256_file(screen)}
        pairs = read_table(screen, ["0", "1"], "auto", True)
        within = np.isin(names, [n for end in "01" for n in aliases.resolve(pairs.text(end)[0], known)[0]])
        relations = {of: edges.select(~(within[edges.src] & within[edges.dst])) for of, edges in relations.items()}
    for relation in relations:
        check_relation_name(relation, where=f"network '{name}' ({found.path.name})")
    return Network(name, names, ambiguous, relations, provenance | {"rows": len(table)})


def _named_rows(name: str, table: EdgeTable, config: NetworkConfig, known: Vocabulary) -> EdgeTable:
    """Return the rows whose genes have names, and warn of the others."""
    nameless = np.zeros(len(table), dtype=bool)
    for column in config.columns[:1] if config.layout == GROUPS else config.columns:
        names, rows = table.text(column)
        nameless |= np.array([one.lower() in PLACEHOLDERS and one not in known for one in names], dtype=bool)[rows]
    if nameless.any():
        number = count(int(nameless.sum()), "row")
        log.warning("network '%s': %s left out, because a gene has no name in them", name, number)
    return table.select(~nameless)


def _resolve_ends(
    table: EdgeTable, config: NetworkConfig, aliases: AliasTable, known: Vocabulary
) -> tuple[tuple[str, ...], tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct gene names, the ambiguous ones among them, and the ends of pairs as indices into them."""
    columns = [table.text(column) for column in config.columns]
    of_genes = columns[:1] if config.layout == GROUPS else columns
    named = [[name.removeprefix(config.strip_prefix) for name in names] for names, _ in of_genes]

    def spelled(name: str) -> str:
        """Return the known name that differs from an unknown one in nothing but case, or the name itself."""
        same = () if name in known or name in aliases.systematic else known.spelled(spelling(name))
        return same[0] if len(same) == 1 else name

    resolved = [aliases.resolve(list(map(spelled, names)), known) for names in named]
    vocabulary = Vocabulary.of(name for names, _ in resolved for name in names)
    ends = [vocabulary.indices(names)[rows] for (names, _), (_, rows) in zip(resolved, of_genes, strict=True)]
    if config.layout == GROUPS:
        ends = list(pairs_within_groups(ends[0], columns[1][1]))
    ambiguous = {name for _, names in resolved for name in names}
    return vocabulary.names, tuple(sorted(ambiguous)), ends[0], ends[1]


def _split_relations(
    name: str, config: NetworkConfig, table: EdgeTable, pairs: int
) -> list[tuple[str, NDArray[np.int64], NDArray[np.float32] | None]]:
    """Return (relation name, which of the pairs, their edge weights or None) for each relation of the table."""
    every = np.arange(pairs, dtype=np.int64)
    groups: list[tuple[str, NDArray[np.int64], str | None]]
    if config.channels:
        groups = [(f"{name}_{table.labels[column]}", every, column) for column in config.channels]
    elif config.relation_column:
        kinds, rows = table.text(config.relation_column)
        groups = [(f"{name}_{of}", np.flatnonzero(rows == kind), config.weight) for kind, of in enumerate(kinds)]
    else:
        groups = [(name, every, config.weight)]
    split = []
    for relation, rows, column in groups:
        weight = table.number(column)[rows] if column else None
        kept = np.ones(len(rows), dtype=bool)
        if weight is not None and config.min_weight is not None:
            kept = weight >= config.min_weight
        elif weight is not None and config.channels:
            kept = weight > 0
        edge_weight = weight[kept].astype(np.float32) if weight is not None and config.use_weights else None
        split.append((relation, rows[kept], edge_weight))
    return split


def network_edges(
    network: Network, config: NetworkConfig, genes: Vocabulary, cell: CellConfig, key: str
) -> tuple[dict[str, Edges], dict[str, Any]]:
    """Map a network's names to the gene vocabulary and merge repeated pairs.

    A pair that the file gives more than once (for undirected networks in either order) is one edge with the
    largest weight. A gene paired with itself is one self-loop. Added self-loops weigh 1.

    What ``cell`` says holds where the network, which the configuration has at ``key``, says nothing itself.

    Returns:
        Relation name → edges over ``genes``; and the provenance of the network, with counts.

    Raises:
        GraphError: names are unknown and the policy refuses them, or a relation has no edges.
    """
    index = genes.indices(network.names)
    ambiguous = set(network.ambiguous)
    index[[name in ambiguous for name in network.names]] = -1
    missing = tuple(n for n, i in zip(network.names, index, strict=True) if i < 0 and n not in ambiguous)
    symmetrise = cell.symmetrise if config.symmetrise is None else config.symmetrise
    self_loops = cell.self_loops if config.self_loops is None else config.self_loops
    edges: dict[str, Edges] = {}
    counts: dict[str, dict[str, int]] = {}
    for relation, named in network.relations.items():
        merged, counts[relation] = _mapped_pairs(named, index, ordered=bool(config.directed))
        if symmetrise and not config.directed:
            merged = merged.symmetrised()
        edges[relation] = merged.with_self_loops(len(genes)) if self_loops and len(merged) else merged
    where, total = f"network '{network.name}' ({Path(config.path).name})", len(network.names)
    if (config.unknown or cell.unknown) == REFUSE:
        refuse_names(missing, total, genes, where=where, key=f"{key}.unknown", ambiguous=network.ambiguous)
    if not edges:
        raise GraphError(f"{where} holds no rows", expected="at least one pair of genes", do="check the file")
    for relation in (relation for relation, kept in edges.items() if not len(kept)):
        got = "{rows:,} rows reach the threshold, {dropped:,} of them dropped for their names".format(
            **counts[relation]
        )
        do = "lower `min_weight`, leave the channel out, or check `strip_prefix`, `aliases` and `genes`"
        raise GraphError(f"{where}: the relation '{relation}' has no edges", got=got, do=do)
    names = {"total": total, "unknown": list(missing), "ambiguous": list(network.ambiguous)}
    return edges, {**network.provenance, "names": names, "relations": counts}


def _mapped_pairs(named: Edges, index: NDArray[np.int64], *, ordered: bool) -> tuple[Edges, dict[str, int]]:
    """Return pairs whose ends ``index`` maps to genes, each once, with counts of rows and pairs."""
    mapped = Edges(index[named.src], index[named.dst], named.weight)
    inside = mapped.select((mapped.src >= 0) & (mapped.dst >= 0))
    merged = merge_pairs(inside, ordered=ordered)
    return merged, {
        "rows": len(named),
        "dropped": len(named) - len(inside),
        "merged": len(inside) - len(merged),
        "self_pairs": int((merged.src == merged.dst).sum()),
    }
