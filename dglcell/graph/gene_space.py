"""Relate similar genes: by their neighbours in networks, by their sets, or by vectors from a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.checks import Count, Positive, check_values, must
from dglcell.errors import ConfigError, GraphError
from dglcell.files.atomic import find_raw, sha256_file
from dglcell.graph.catalogue import GROUPS, NetworkConfig, named_table
from dglcell.graph.cell_graph import CellGraph, Edges
from dglcell.graph.schema import GENE, Relation, check_relation_name, gene_relation
from dglcell.graph.tables import read_vectors, refuse_strangers
from dglcell.graph.vocabulary import AliasTable, Vocabulary

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SIMILAR = "similar"
"""The relation between genes with similar neighbours has this name; those of sources are ``similar_`` and a name."""

BLOCK = 512
"""Genes whose similarities to all others are held at a time."""


MissingShare = Annotated[float, must(lambda share: 0 <= share <= 1, "is no share", "0 to 1")]


@dataclass
class SimilaritySource:
    """Configure what one relation compares genes by: exactly one of `relations`, `sets` and `vectors`."""

    relations: list[str] = field(default_factory=list)  # gene–gene relations of the cell graph: common neighbours there
    sets: NetworkConfig | None = None  # table with the columns gene and set: common sets, rare ones counting more
    vectors: str | None = None  # CSV, Parquet or npz file with a vector for every gene: similar vectors
    max_missing: MissingShare = 0.5  # vectors: share of the cell's genes that the file may lack

    def validate(self, key: str) -> None:
        """Check the values at ``key``."""
        given = [name for name in ("relations", "sets", "vectors") if getattr(self, name)]
        if len(given) != 1:
            what, expected = f"`{key}` must say what genes are compared by", "one of `relations`, `sets` and `vectors`"
            raise ConfigError(what, got=", ".join(given) or "nothing", expected=expected)
        if self.sets is not None:
            table = named_table(self.sets, f"{key}.sets").config
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
        check_values(self, key)
        for name, source in self.sources.items():
            check_relation_name(f"{SIMILAR}_{name}", where=f"{key}.sources.{name}")
            source.validate(f"{key}.sources.{name}")


def relations_of_sources(cell: CellGraph, from_relations: bool = False) -> frozenset[Relation]:
    """Return the relations of a cell graph that sources of similarity gave it, or those of relations alone."""
    sources = ((cell.provenance.get("config") or {}).get("similarity") or {}).get("sources", {})
    chosen = [name for name, source in sources.items() if source.get("relations") or not from_relations]
    return frozenset(gene_relation(f"{SIMILAR}_{name}") for name in chosen)


def similar_relations(
    config: SimilarityConfig,
    relations: Mapping[Relation, Edges],
    genes: Vocabulary,
    aliases: AliasTable,
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
        elif source.vectors:
            path = find_raw(source.vectors, raw)
            profiles = read_gene_vectors(path, genes, source.max_missing, key)
            provenance = {"path": source.vectors, "sha256": sha256_file(path)}
        else:
            missing = [relation for relation in source.relations if relation not in between]
            if missing:
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
    config: NetworkConfig, key: str, genes: Vocabulary, aliases: AliasTable, raw: str | None
) -> tuple[csr_array, dict[str, Any]]:
    """Return the sets of genes, each as −log of its share of the genes (Spärck Jones 1972), [N, S], of length one.

    Rows of the table with names that the cell lacks or without a set are left out.
    """
    from scipy import sparse

    named = named_table(config, f"{key}.sets")
    config, (table, provenance) = named.config, named.read(raw)
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


def similar_genes(profiles: csr_array | NDArray[np.float64], config: SimilarityConfig, key: str) -> Edges:
    r"""Return edges into every gene from the most similar ones, by [N, D] profiles of length one or zero.

    With cosines :math:`c_{uv}` of two rows, and the genes :math:`u \ne v` with the largest ones as neighbours,

    .. math:: w_{uv} = \frac{c_{uv}^p}{\delta + \sum_{u'} c_{u'v}^p}

    so that a sum over in-edges is a mean shrunk towards zero. Genes of one complex or pathway, which have similar
    interaction profiles in a screen (Tong et al. 2004), are joined also where no edge joins them directly. Negative
    cosines count as 0.
    """
    blocks = [_block(profiles, start, config) for start in range(0, profiles.shape[0], BLOCK)]
    src, dst, weight = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    if not len(src):
        raise GraphError(f"`{key}`: no two genes are similar", got=f"{profiles.shape[0]:,} genes", do="leave it out")
    return Edges(src, dst, weight.astype(np.float32))


def _block(
    profiles: csr_array | NDArray[np.float64], start: int, config: SimilarityConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    product = profiles[start : start + BLOCK] @ profiles.T
    cosine = np.maximum(product if isinstance(product, np.ndarray) else product.toarray(), 0.0)
    rows = np.arange(len(cosine))
    cosine[rows, start + rows] = 0.0
    # The sort is stable, so that of equally similar genes the first ones are taken, on any machine.
    src = np.argsort(-cosine.round(9), axis=1, kind="stable")[:, : config.neighbours]
    weight = np.take_along_axis(cosine, src, axis=1) ** config.power
    weight = weight / (config.damping + weight.sum(axis=1, keepdims=True))
    dst = np.broadcast_to((start + rows)[:, None], src.shape)
    return src[weight > 0].astype(np.int64), dst[weight > 0].astype(np.int64), weight[weight > 0]


def read_gene_vectors(path: Path, genes: Vocabulary, max_missing: float, key: str) -> NDArray[np.float64]:
    """Read vectors of length one, [N, D], of columns that are standardised over the genes that the file has.

    Genes that the file lacks, at most a share of ``max_missing``, get zeros.
    """
    vectors, known = read_vectors(path, genes, f"{key}.vectors")
    missing = 1 - known.mean()
    if missing > max_missing:
        what = f"`{key}.vectors`: '{path.name}' lacks too many genes of the cell graph"
        expected, do = f"at most {max_missing:.0%}", f"give a vector for more genes, or raise `{key}.max_missing`"
        raise GraphError(what, got=f"{missing:.0%} are missing", expected=expected, do=do)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    profiles: NDArray[np.float64] = vectors / np.where(length > 0, length, 1)
    return profiles
