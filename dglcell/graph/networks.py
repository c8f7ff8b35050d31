"""Gene–gene networks from edge tables: what a table's columns mean, and the relations that come out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import ConfigError, GraphError
from dglcell.files import find_raw, sha256_file
from dglcell.graph.edges import Edges, merge_pairs
from dglcell.graph.network_table import SEPARATORS, EdgeTable, read_table
from dglcell.graph.schema import check_relation_name
from dglcell.graph.vocabulary import (
    UNKNOWN_POLICIES,
    AliasTable,
    NameReport,
    Vocabulary,
    enforce_name_policy,
)


@dataclass
class NetworkConfig:
    """One edge table; the key it stands under is its name, and the relation's if there is only one."""

    path: str = ""  # text table, plain or .gz: absolute, or relative to the working or the raw folder
    columns: list[str] = field(default_factory=list)  # source and target column: names, or positions from 0
    separator: str = "auto"  # auto , ; tab, or space (any run of blanks)
    header: bool | None = None  # first line names the columns; null: it does if a column is given by name
    weight: str | None = None  # column of edge weights
    channels: list[str] = field(default_factory=list)  # score columns: one relation each, `name_column`
    relation_column: str | None = None  # its values split the table into relations, `name_value`
    min_weight: float | None = None  # keep rows of at least this weight; null: all, of channels those above 0
    use_weights: bool = False  # weights become edge weights; otherwise they only decide which rows are kept
    directed: bool = False  # first column acts on the second
    symmetrise: bool | None = None  # undirected pairs give both directions; null: as the cell says
    self_loops: bool | None = None  # add a self-loop to every gene that has none; null: as the cell says
    strip_prefix: str = ""  # removed from the start of every name, e.g. "4932." for STRING
    unknown: str = "refuse"  # rows with names that the cell's genes lack: refuse or drop
    sha256: str | None = None  # expected hash of the file

    def validate(self, key: str) -> None:
        """Check the keys against each other.

        Args:
            key: dotted path of this table in the configuration.

        Raises:
            ConfigError: naming the key.
        """
        if not self.path:
            raise ConfigError(f"`{key}.path` is not set", expected="the path of an edge table")
        if len(self.columns) != 2:
            raise ConfigError(
                f"`{key}.columns` must name two columns",
                got=list(self.columns),
                expected="names from the header, or positions such as ['0', '1']",
            )
        if self.separator not in SEPARATORS:
            choices = ", ".join(repr(mark) for mark in SEPARATORS)
            raise ConfigError(f"`{key}.separator` is unknown", got=repr(self.separator), expected=choices)
        if self.unknown not in UNKNOWN_POLICIES:
            expected = " or ".join(UNKNOWN_POLICIES)
            raise ConfigError(f"`{key}.unknown` is not a policy", got=self.unknown, expected=expected)
        self._validate_relations(key)
        if self.header is None and all(column.isdigit() for column in self.requested_columns()):
            raise ConfigError(
                f"`{key}.header` must be set when all columns are given by position",
                expected="true if the first line names the columns, false if it holds data",
            )

    def _validate_relations(self, key: str) -> None:
        if self.channels and (self.relation_column or self.weight):
            raise ConfigError(
                f"`{key}.channels` excludes `weight` and `relation_column`",
                do="give either score columns, or one weight column",
            )
        weighted = bool(self.weight or self.channels)
        for name, value in (("min_weight", self.min_weight is not None), ("use_weights", self.use_weights)):
            if value and not weighted:
                raise ConfigError(
                    f"`{key}.{name}` needs weights", expected="`weight` or `channels` naming their columns"
                )

    def requested_columns(self) -> list[str]:
        """Every column that will be read."""
        single = [column for column in (self.weight, self.relation_column) if column]
        return [*self.columns, *self.channels, *single]


@dataclass(frozen=True)
class Network:
    """An edge table with its names resolved but not yet mapped to a vocabulary.

    Attributes:
        name: of the network.
        names: distinct gene names in the file, after prefix and aliases.
        ambiguous: names that stand for several genes.
        relations: relation name → edges whose ends index ``names``, as the file gives them.
        provenance: file, hash and row counts.
    """

    name: str
    names: tuple[str, ...]
    ambiguous: tuple[str, ...]
    relations: dict[str, Edges]
    provenance: dict[str, Any]


def read_network(
    name: str, config: NetworkConfig, aliases: AliasTable, known: Vocabulary, raw: str | None = None
) -> Network:
    """Read one edge table.

    Args:
        name: of the network.
        config: what the columns mean.
        aliases: other names of genes.
        known: names that stand for themselves whatever the aliases say.
        raw: folder for relative paths; see `find_raw`.

    Raises:
        DataError: the file is not there.
        GraphError: the file is damaged, has the wrong hash, lacks a column or holds a weight that is no number;
            a relation gets an impossible name.
    """
    path = find_raw(config.path, raw)
    digest = _checked_hash(path, config.sha256)
    table = read_table(path, config.requested_columns(), config.separator, config.header)
    names, ambiguous, source, target = _resolve_ends(table, config, aliases, known)
    relations = {
        relation: Edges(source[rows], target[rows], weight)
        for relation, rows, weight in _split_relations(name, config, table)
    }
    for relation in relations:
        check_relation_name(relation, where=f"network '{name}' ({path.name})")
    provenance = {"path": config.path, "sha256": digest, "rows": len(table)}
    return Network(name, names, ambiguous, relations, provenance)


def _checked_hash(path: Path, expected: str | None) -> str:
    digest = sha256_file(path)
    if expected is not None and digest != expected.lower():
        raise GraphError(
            f"network file '{path.name}' is not the file that the configuration describes",
            got=f"sha256 {digest}",
            expected=f"sha256 {expected}",
            do="fetch the described version, or correct `sha256` if the new one is meant",
        )
    return digest


def _resolve_ends(
    table: EdgeTable, config: NetworkConfig, aliases: AliasTable, known: Vocabulary
) -> tuple[tuple[str, ...], tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]:
    import pandas as pd

    ends = pd.concat([table.text(column) for column in config.columns], ignore_index=True)
    codes, written = pd.factorize(ends)
    stripped = [name.removeprefix(config.strip_prefix) for name in written]
    resolved, ambiguous = aliases.resolve(stripped, known)
    vocabulary = Vocabulary.of(resolved)
    source, target = vocabulary.indices(resolved)[codes].reshape(2, -1)
    return vocabulary.names, tuple(ambiguous), source, target


def _split_relations(
    name: str, config: NetworkConfig, table: EdgeTable
) -> list[tuple[str, NDArray[np.int64], NDArray[np.float32] | None]]:
    """(relation name, rows of the table, their edge weights or None) for each relation of the table."""
    import pandas as pd

    every = np.arange(len(table), dtype=np.int64)
    groups: list[tuple[str, NDArray[np.int64], str | None]]
    if config.channels:
        groups = [(f"{name}_{table.labels[column]}", every, column) for column in config.channels]
    elif config.relation_column:
        codes, values = pd.factorize(table.text(config.relation_column), sort=True)
        groups = [
            (f"{name}_{value}", np.flatnonzero(codes == code), config.weight) for code, value in enumerate(values)
        ]
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
    network: Network, config: NetworkConfig, genes: Vocabulary, *, symmetrise: bool, self_loops: bool, key: str
) -> tuple[dict[str, Edges], dict[str, Any]]:
    """Map a network's names to the gene vocabulary and merge repeated pairs.

    A pair that the file gives more than once (for undirected networks in either order) is one edge with the
    largest weight. A gene paired with itself is one self-loop. Added self-loops weigh 1.

    Args:
        network: as read.
        config: its configuration.
        genes: vocabulary of the cell.
        symmetrise: the cell's choice for undirected networks that say nothing.
        self_loops: the cell's choice for networks that say nothing.
        key: dotted path of the network in the configuration.

    Returns:
        Relation name → edges over ``genes``; and the provenance of the network, with counts.

    Raises:
        GraphError: names are unknown and the policy refuses them, or a relation has no edges.
    """
    index = genes.indices(network.names)
    ambiguous = set(network.ambiguous)
    index[[name in ambiguous for name in network.names]] = -1
    unknown = tuple(n for n, i in zip(network.names, index, strict=True) if i < 0 and n not in ambiguous)
    if config.symmetrise is not None:
        symmetrise = config.symmetrise
    if config.self_loops is not None:
        self_loops = config.self_loops
    edges: dict[str, Edges] = {}
    counts: dict[str, dict[str, int]] = {}
    dropped_rows = 0
    for relation, named in network.relations.items():
        mapped = Edges(index[named.src], index[named.dst], named.weight)
        inside = mapped.select((mapped.src >= 0) & (mapped.dst >= 0))
        merged = merge_pairs(inside, ordered=config.directed)
        counts[relation] = {
            "rows": len(named),
            "dropped": len(named) - len(inside),
            "merged": len(inside) - len(merged),
            "self_pairs": int((merged.src == merged.dst).sum()),
        }
        dropped_rows += len(named) - len(inside)
        if symmetrise and not config.directed:
            merged = merged.symmetrised()
        edges[relation] = merged.with_self_loops(len(genes)) if self_loops and len(merged) else merged
    report = NameReport(len(network.names), unknown, network.ambiguous, dropped_rows)
    where = f"network '{network.name}' ({Path(config.path).name})"
    enforce_name_policy(report, config.unknown, where=where, key=f"{key}.unknown")
    _refuse_empty(edges, counts, where)
    names = {"total": report.total, "unknown": list(unknown), "ambiguous": list(network.ambiguous)}
    return edges, {**network.provenance, "names": names, "relations": counts}


def _refuse_empty(edges: dict[str, Edges], counts: dict[str, dict[str, int]], where: str) -> None:
    if not edges:
        raise GraphError(f"{where} holds no rows", expected="at least one pair of genes", do="check the file")
    for relation, kept in edges.items():
        if not len(kept):
            rows, dropped = counts[relation]["rows"], counts[relation]["dropped"]
            raise GraphError(
                f"{where}: the relation '{relation}' has no edges",
                got=f"{rows:,} rows reach the threshold, {dropped:,} of them dropped for their names",
                do="lower `min_weight`, leave the channel out, or check `strip_prefix`, `aliases` and `genes`",
            )
