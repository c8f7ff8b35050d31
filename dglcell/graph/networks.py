"""Read gene–gene networks from edge tables, by what a table's columns mean, and relate similar genes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.checks import Count, Positive
from dglcell.errors import ConfigError, GraphError, count
from dglcell.files.atomic import find_raw, sha256_file
from dglcell.graph.catalogue import GROUPS, NetworkConfig, NetworkSource, named_table
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import GENE, Edges, Relation, check_relation_name, gene_relation, merge_pairs
from dglcell.graph.tables import EdgeTable, read_table, refuse_strangers
from dglcell.graph.vocabulary import REFUSE, Vocabulary, refuse_names, spelling
from dglcell.published.file import FILES

if TYPE_CHECKING:
    from scipy.sparse import csr_array

log = logging.getLogger("dglcell")

PLACEHOLDERS = frozenset(("-", "--", ".", "?", "n/a", "na", "nan", "none", "null"))  # in any case, for no name


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
    name: str, named: NetworkSource, aliases: Vocabulary, known: Vocabulary, raw: str | None = None
) -> Network:
    """Read one edge table; names in ``known`` stand for themselves whatever the aliases say."""
    config, (table, provenance) = named.table, named.read(raw)
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
    relations = {of: Edges(ends[0][rows], ends[1][rows]) for of, rows in _split(name, config, table, len(ends[0]))}
    if config.not_within:
        published = FILES.get(config.not_within)
        # Of genes that a part lacks, pairs with others would be let through.
        screen = published.whole.find(raw).path if published else find_raw(config.not_within, raw)
        provenance["not_within"] = {"path": config.not_within, "sha256": sha256_file(screen)}
        pairs = read_table(screen, ["0", "1"], header=True)
        listed = [one.removeprefix(config.strip_prefix) for end in "01" for one in pairs.text(end, filled=False)[0]]
        meant = {*map(spelling, aliases.resolve(listed, known, spelled=True)[0])}
        within = np.array([spelling(one) in meant for one in names], dtype=bool)
        if not within.any():
            log.warning("network '%s': no gene of it is in '%s', so that no pair is left out", name, screen.name)
        relations = {of: edges.select(~(within[edges.src] & within[edges.dst])) for of, edges in relations.items()}
    for relation in relations:
        check_relation_name(relation, where=where)
    ambiguous = tuple(sorted({one for _, of in resolved for one in of}))
    return Network(config, where, names.names, ambiguous, relations, provenance | {"rows": len(table)})


def _resolved(written: list[str], prefix: str, aliases: Vocabulary, known: Vocabulary) -> tuple[list[str], list[str]]:
    def spelled(name: str) -> str:
        same = () if name in known or name in aliases.aliases else known.spelled(spelling(name))
        return same[0] if len(same) == 1 else name

    return aliases.resolve([spelled(name.removeprefix(prefix)) for name in written], known)


def pairs_within_groups(members: NDArray[np.int64], groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Return all pairs of different members of groups, [pairs] each, once per group, the smaller index first."""
    import pandas as pd

    rows = pd.DataFrame({"group": groups, "member": members}).drop_duplicates()
    pairs = rows.merge(rows, on="group")
    pairs = pairs[pairs["member_x"] < pairs["member_y"]]
    return pairs["member_x"].to_numpy(np.int64), pairs["member_y"].to_numpy(np.int64)


def _split(name: str, config: NetworkConfig, table: EdgeTable, pairs: int) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    columns: dict[str, str | None] = {f"{name}_{table.labels[column]}": column for column in config.channels}
    for relation, column in (columns or {name: config.weight}).items():
        if column is None or (config.min_weight is None and not config.channels):
            yield relation, np.ones(pairs, dtype=bool)
        else:
            weight = table.number(column)
            yield relation, weight > 0 if config.min_weight is None else weight >= config.min_weight


def network_edges(
    network: Network, genes: Vocabulary, key: str, *, symmetrise: bool = True, self_loops: bool = False
) -> tuple[dict[str, Edges], dict[str, Any]]:
    """Map a network's names to the gene vocabulary and merge repeated pairs.

    A pair that the file gives more than once (for undirected networks in either order) is one edge. A gene paired with
    itself is one self-loop.

    Returns:
        Relation name → edges over ``genes``; and the provenance of the network, with counts.
    """
    config, index, ambiguous = network.config, genes.indices(network.names), {*network.ambiguous}
    index[[name in ambiguous for name in network.names]] = -1
    missing = [name for name, i in zip(network.names, index, strict=True) if i < 0 and name not in ambiguous]
    edges: dict[str, Edges] = {}
    counts: dict[str, dict[str, int]] = {}
    for relation, named in network.relations.items():
        mapped = Edges(index[named.src], index[named.dst])
        inside = mapped.select((mapped.src >= 0) & (mapped.dst >= 0))
        merged = merge_pairs(inside, ordered=bool(config.directed))
        counts[relation] = {
            "rows": len(named),
            "dropped": len(named) - len(inside),
            "merged": len(inside) - len(merged),
            "self_pairs": int((merged.src == merged.dst).sum()),
        }
        if symmetrise and not config.directed:
            merged = merged.symmetrised()
        edges[relation] = merged.with_self_loops(len(genes)) if self_loops and len(merged) else merged
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


# Relations between similar genes: by their neighbours in networks, or by their sets.


SIMILAR = "similar"  # relations of sources are called ``similar_`` and a name
BLOCK = 512  # genes whose similarities to all others are held at a time


@dataclass
class SimilaritySource:
    """Configure what one relation compares genes by: either `relations` or `sets`."""

    relations: list[str] = field(default_factory=list)  # gene–gene relations of the cell graph: common neighbours there
    sets: NetworkConfig | None = None  # table with the columns gene and set: common sets, rare ones counting more

    def validate(self, key: str) -> None:
        """Check the values at ``key``."""
        if bool(self.relations) == bool(self.sets):
            what, got = f"`{key}` must say what genes are compared by", "both" if self.sets else "nothing"
            raise ConfigError(what, got=got, expected="either `relations` or `sets`")
        if self.sets is not None:
            table = named_table(self.sets, f"{key}.sets").table
            if table.layout != GROUPS:
                what, got = f"`{key}.sets` is no table of genes and sets", f"layout: {table.layout or 'pairs'}"
                raise ConfigError(what, got=got, expected="layout: groups")
            table.validate(f"{key}.sets")


@dataclass
class SimilarityConfig:
    """Configure weighted edges from the most similar genes."""

    neighbours: Count = 50  # most in-edges of a gene
    power: Positive = 2.0  # weights are cosines to this power, as shares of their sum …
    damping: Positive = 0.3  # … plus this: a gene that resembles none receives little
    sources: dict[str, SimilaritySource] = field(default_factory=dict)  # name → a relation `similar_NAME` of its own

    def validate(self, key: str = "cell.similarity") -> None:
        """Check the values at ``key``."""
        for name, source in self.sources.items():
            check_relation_name(f"{SIMILAR}_{name}", where=f"{key}.sources.{name}")
            source.validate(f"{key}.sources.{name}")


def relations_of_sources(cell: CellGraph, from_relations: bool = False) -> frozenset[Relation]:
    """Return the relations that sources of similarity gave a cell, all or only those from common neighbours."""
    sources = ((cell.provenance.get("config") or {}).get("similarity") or {}).get("sources", {})
    chosen = [name for name, source in sources.items() if source.get("relations") or not from_relations]
    return frozenset(gene_relation(f"{SIMILAR}_{name}") for name in chosen)


def similar_relations(
    config: SimilarityConfig,
    relations: Mapping[Relation, Edges],
    genes: Vocabulary,
    aliases: Vocabulary,
    raw: str | None = None,
) -> Iterator[tuple[str, Edges, dict[str, Any]]]:
    """Yield the relations between similar genes: name, edges, and the provenance of the file they come from, if any.

    The relation `similar` compares neighbours in all relations between genes; every source adds a relation of its own.
    """
    between = {relation[1]: ends for relation, ends in relations.items() if relation[0] == relation[2] == GENE}
    yield SIMILAR, similar_genes(neighbourhoods(between.values(), len(genes)), config, "cell.similarity"), {}
    for name, source in config.sources.items():
        key = f"cell.similarity.sources.{name}"
        provenance: dict[str, Any] = {}
        if source.sets is not None:
            profiles, provenance = _set_profiles(source.sets, key, genes, aliases, raw)
        else:
            if missing := [relation for relation in source.relations if relation not in between]:
                what = f"`{key}.relations` names relations between genes that the cell graph lacks"
                raise GraphError(what, got=", ".join(missing), expected=", ".join(between) or "none are there")
            profiles = neighbourhoods([between[relation] for relation in source.relations], len(genes))
        yield f"{SIMILAR}_{name}", similar_genes(profiles, config, key), provenance


def neighbourhoods(relations: Iterable[Edges], num_genes: int) -> csr_array:
    r"""Return the rows of :math:`I + \sum_r A_r`, of length one, [N, N]: a gene, and how many edges of each enter it.

    Fixed weights are not used.
    """
    from scipy import sparse  # here, so that a configuration is read without it

    counts = sparse.csr_array(sparse.eye_array(num_genes))
    for edges in relations:
        other = edges.select(edges.src != edges.dst)
        ones = np.ones(len(other))
        counts = counts + sparse.csr_array((ones, (other.dst, other.src)), shape=(num_genes, num_genes))
    return _of_length_one(counts)


def _set_profiles(
    config: NetworkConfig, key: str, genes: Vocabulary, aliases: Vocabulary, raw: str | None
) -> tuple[csr_array, dict[str, Any]]:
    """Return the sets of genes, each as −log of its share of the genes (Spärck Jones 1972), [N, S], of length one.

    Rows of the table with names that the cell lacks or without a set are left out.
    """
    from scipy import sparse

    named = named_table(config, f"{key}.sets")
    config, (table, provenance) = named.table, named.read(raw)
    (members, rows), (sets, set_of) = table.text(config.columns[0]), table.text(config.columns[1], filled=False)
    names, ambiguous = aliases.resolve([name.removeprefix(config.strip_prefix) for name in members], genes)
    gene = np.where(np.isin(names, list(ambiguous)), -1, genes.indices(names))[rows]
    known = (gene >= 0) & (np.array([bool(name) for name in sets])[set_of])
    if not known.any():
        refuse_strangers(f"`{key}.sets`: '{table.path.name}' names no gene", names, genes)
    shape = len(genes), len(sets)
    profiles = sparse.csr_array((np.ones(known.sum()), (gene[known], set_of[known])), shape=shape)
    profiles.data[:] = 1  # a gene that a set names twice is in it once
    weight = np.log(len(genes) / np.maximum(profiles.sum(axis=0), 1))
    return _of_length_one(sparse.csr_array(profiles.multiply(weight[None]))), provenance | {"rows": len(table)}


def _of_length_one(profiles: csr_array) -> csr_array:
    from scipy import sparse

    length = np.sqrt(profiles.multiply(profiles).sum(axis=1))
    return sparse.csr_array(profiles.multiply((1 / np.where(length > 0, length, 1))[:, None]))


def similar_genes(profiles: csr_array, config: SimilarityConfig, key: str) -> Edges:
    r"""Return edges into every gene from the most similar ones, by [N, D] profiles of length one or zero.

    With cosines :math:`c_{uv}` of two rows, and the genes :math:`u \ne v` with the largest ones as neighbours,

    .. math:: w_{uv} = \frac{c_{uv}^p}{\delta + \sum_{u'} c_{u'v}^p}

    so that a sum over in-edges is a mean shrunk towards zero. Genes of one complex or pathway, which have similar
    interaction profiles in a screen (Tong et al. 2004), are joined also where no edge joins them directly.
    """
    blocks = [_block(profiles, start, config) for start in range(0, profiles.shape[0], BLOCK)]
    src, dst, weight = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    if not len(src):
        raise GraphError(f"`{key}`: no two genes are similar", got=f"{profiles.shape[0]:,} genes", do="leave it out")
    return Edges(src, dst, weight.astype(np.float32))


def _block(
    profiles: csr_array, start: int, config: SimilarityConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    cosine = (profiles[start : start + BLOCK] @ profiles.T).toarray()
    rows = np.arange(len(cosine))
    cosine[rows, start + rows] = 0.0
    # The sort is stable, so that of equally similar genes the first ones are taken, on any machine.
    src = np.argsort(-cosine.round(9), axis=1, kind="stable")[:, : config.neighbours]
    weight = np.take_along_axis(cosine, src, axis=1) ** config.power
    weight = weight / (config.damping + weight.sum(axis=1, keepdims=True))
    dst = np.broadcast_to((start + rows)[:, None], src.shape)
    return src[weight > 0].astype(np.int64), dst[weight > 0].astype(np.int64), weight[weight > 0]
