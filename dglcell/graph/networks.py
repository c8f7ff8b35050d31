"""Read gene–gene networks from edge tables, by what a table's columns mean, and split them into relations."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError, count
from dglcell.files.atomic import find_raw, sha256_file
from dglcell.graph.catalogue import GROUPS, NamedTable, NetworkConfig
from dglcell.graph.cell_graph import Edges, merge_pairs
from dglcell.graph.names import refuse_names
from dglcell.graph.schema import check_relation_name
from dglcell.graph.tables import EdgeTable, read_table
from dglcell.graph.vocabulary import REFUSE, AliasTable, Vocabulary, spelling
from dglcell.published.file import FILES

log = logging.getLogger("dglcell")

PLACEHOLDERS = frozenset(("-", "--", ".", "?", "n/a", "na", "nan", "none", "null"))
"""Tables write these, in any case, where they have no name."""


@dataclass(frozen=True)
class Network:
    """Hold an edge table with its names resolved but not yet mapped to a vocabulary."""

    config: NetworkConfig  #: what its columns mean
    where: str  #: what messages call it
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
    config, (table, provenance) = named.config, named.read(raw)
    where = f"network '{name}' ({table.path.name})"
    of_genes = config.columns[:1] if config.layout == GROUPS else config.columns
    nameless = np.zeros(len(table), dtype=bool)
    for column in of_genes:
        written, rows = table.text(column)
        nameless |= np.array([one.lower() in PLACEHOLDERS and one not in known for one in written], dtype=bool)[rows]
    if nameless.any():
        left_out = count(int(nameless.sum()), "row")
        log.warning("network '%s': %s left out, because a gene has no name in them", name, left_out)
        table = table.select(~nameless)
    columns = [table.text(column) for column in of_genes]
    resolved = [_resolved(written, config.strip_prefix, aliases, known) for written, _ in columns]
    names = Vocabulary.of(one for ends, _ in resolved for one in ends)
    ends = [names.indices(of)[rows] for (of, _), (_, rows) in zip(resolved, columns, strict=True)]
    if config.layout == GROUPS:
        ends = list(pairs_within_groups(ends[0], table.text(config.columns[1])[1]))
    relations = {
        of: Edges(ends[0][rows], ends[1][rows], weight)
        for of, rows, weight in _split(name, config, table, len(ends[0]))
    }
    if config.not_within:
        published = FILES.get(config.not_within)
        # Of genes that a part lacks, pairs with others would be let through.
        screen = published.whole.find(raw).path if published else find_raw(config.not_within, raw)
        provenance["not_within"] = {"path": config.not_within, "sha256": sha256_file(screen)}
        pairs = read_table(screen, ["0", "1"], header=True)
        within = np.isin(names.names, [n for end in "01" for n in aliases.resolve(pairs.text(end)[0], known)[0]])
        relations = {of: edges.select(~(within[edges.src] & within[edges.dst])) for of, edges in relations.items()}
    for relation in relations:
        check_relation_name(relation, where=where)
    ambiguous = tuple(sorted({one for _, of in resolved for one in of}))
    return Network(config, where, names.names, ambiguous, relations, provenance | {"rows": len(table)})


def _resolved(written: list[str], prefix: str, aliases: AliasTable, known: Vocabulary) -> tuple[list[str], list[str]]:
    """Return the names that are meant, and the ambiguous ones; one that is unknown may have another case."""

    def spelled(name: str) -> str:
        same = () if name in known or name in aliases.systematic else known.spelled(spelling(name))
        return same[0] if len(same) == 1 else name

    return aliases.resolve([spelled(name.removeprefix(prefix)) for name in written], known)


def pairs_within_groups(members: NDArray[np.int64], groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Return all pairs of different members of groups, [pairs] each, once per group, the smaller index first."""
    import pandas as pd

    rows = pd.DataFrame({"group": groups, "member": members}).drop_duplicates()
    pairs = rows.merge(rows, on="group")
    pairs = pairs[pairs["member_x"] < pairs["member_y"]]
    return pairs["member_x"].to_numpy(np.int64), pairs["member_y"].to_numpy(np.int64)


def _split(
    name: str, config: NetworkConfig, table: EdgeTable, pairs: int
) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.float32] | None]]:
    """Yield (relation name, which of the pairs, their edge weights or None) for each relation of the table."""
    if not config.channels and config.weight is None:
        yield name, np.arange(pairs, dtype=np.int64), None
        return
    columns = {f"{name}_{table.labels[column]}": column for column in config.channels} or {name: config.weight or ""}
    for relation, column in columns.items():
        weight = table.number(column)
        if config.min_weight is not None:
            kept = np.flatnonzero(weight >= config.min_weight)
        else:
            kept = np.flatnonzero(weight > 0) if config.channels else np.arange(pairs, dtype=np.int64)
        yield relation, kept, weight[kept].astype(np.float32) if config.use_weights else None


def network_edges(network: Network, genes: Vocabulary, key: str) -> tuple[dict[str, Edges], dict[str, Any]]:
    """Map a network's names to the gene vocabulary and merge repeated pairs.

    A pair that the file gives more than once (for undirected networks in either order) is one edge with the
    largest weight. A gene paired with itself is one self-loop. Added self-loops weigh 1.

    Returns:
        Relation name → edges over ``genes``; and the provenance of the network, with counts.

    Raises:
        GraphError: names are unknown and the policy refuses them, naming the network's ``key``, or a relation has no
            edges.
    """
    config, index, ambiguous = network.config, genes.indices(network.names), {*network.ambiguous}
    index[[name in ambiguous for name in network.names]] = -1
    missing = [name for name, i in zip(network.names, index, strict=True) if i < 0 and name not in ambiguous]
    edges: dict[str, Edges] = {}
    counts: dict[str, dict[str, int]] = {}
    for relation, named in network.relations.items():
        mapped = Edges(index[named.src], index[named.dst], named.weight)
        inside = mapped.select((mapped.src >= 0) & (mapped.dst >= 0))
        merged = merge_pairs(inside, ordered=bool(config.directed))
        counts[relation] = {
            "rows": len(named),
            "dropped": len(named) - len(inside),
            "merged": len(inside) - len(merged),
            "self_pairs": int((merged.src == merged.dst).sum()),
        }
        if config.symmetrise and not config.directed:
            merged = merged.symmetrised()
        edges[relation] = merged.with_self_loops(len(genes)) if config.self_loops and len(merged) else merged
    where, total = network.where, len(network.names)
    if config.unknown == REFUSE:
        refuse_names(missing, total, genes, where=where, key=f"{key}.unknown", ambiguous=network.ambiguous)
    if not edges:
        raise GraphError(f"{where} holds no rows", expected="at least one pair of genes", do="check the file")
    for relation in (relation for relation, kept in edges.items() if not len(kept)):
        of = counts[relation]
        got = f"{of['rows']:,} rows reach the threshold, {of['dropped']:,} of them dropped for their names"
        do = "lower `min_weight`, leave the channel out, or check `strip_prefix`, `aliases` and `genes`"
        raise GraphError(f"{where}: the relation '{relation}' has no edges", got=got, do=do)
    names = {"total": total, "unknown": missing, "ambiguous": list(network.ambiguous)}
    return edges, {**network.provenance, "names": names, "relations": counts}
