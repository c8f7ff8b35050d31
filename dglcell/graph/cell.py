"""Building the cell graph from a configuration: metabolic model, networks and derived relations."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dglcell.errors import ConfigError, DataError, GraphError
from dglcell.files import find_raw, sha256_file
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.derived import CURRENCY_DEGREE, DERIVED, Currency, derived_edges
from dglcell.graph.edges import Edges
from dglcell.graph.metabolism import Metabolism
from dglcell.graph.names import read_aliases, read_gene_list
from dglcell.graph.networks import Network, NetworkConfig, network_edges, read_network
from dglcell.graph.schema import (
    CATALYSED_BY,
    CATALYSES,
    CONVERTED_BY,
    CONVERTS,
    GENE,
    METABOLITE,
    REACTION,
    Relation,
    check_relation_name,
    gene_relation,
)
from dglcell.graph.similarity import SIMILAR, SimilarityConfig, similar_genes
from dglcell.graph.vocabulary import (
    UNKNOWN_POLICIES,
    AliasTable,
    NameReport,
    Vocabulary,
    enforce_name_policy,
)

__all__ = ["CellConfig", "CellGraph", "build_cell"]


@dataclass
class CellConfig:
    """What the cell graph is made of."""

    model: str | None = None  # metabolic model: a file that cobra reads, or a model that cobra ships
    metabolism: bool = True  # include the model's reaction and metabolite nodes and their relations
    absorb: bool = False  # leave out enzyme complexes that contain another complex of the same rule
    networks: dict[str, NetworkConfig] = field(default_factory=dict)  # network name → edge table
    derived: list[str] = field(default_factory=list)  # relations that follow from the model alone
    similarity: SimilarityConfig | None = None  # weighted edges between genes with similar neighbours in all relations
    currency_degree: int = CURRENCY_DEGREE  # metabolites of more reactions make no metabolic neighbours
    currency: list[str] = field(default_factory=list)  # exactly these metabolites do not, if any are listed
    genes: str = "union"  # of model and networks; or model; or the path of a list, one name per line
    unknown: str = "refuse"  # model genes that the list lacks: refuse, or drop (they are never deleted)
    aliases: str | None = None  # table of other names of genes, applied to the networks
    symmetrise: bool = True  # undirected networks give both directions of each pair
    self_loops: bool = False  # networks add a self-loop to every gene that has none

    def validate(self, key: str = "cell") -> None:
        """Check the keys against each other.

        Args:
            key: dotted path of this configuration.

        Raises:
            ConfigError: naming the key.
            GraphError: a network cannot name a relation.
        """
        if not self.model and not self.networks:
            raise ConfigError(f"`{key}` is empty", expected=f"`{key}.model`, `{key}.networks`, or both")
        if self.genes == "model" and not self.model:
            raise ConfigError(f"`{key}.genes: model` needs `{key}.model`", do="name a model or a gene list")
        if self.unknown not in UNKNOWN_POLICIES:
            expected = " or ".join(UNKNOWN_POLICIES)
            raise ConfigError(f"`{key}.unknown` is not a policy", got=self.unknown, expected=expected)
        self._validate_derived(key)
        if self.similarity is not None:
            self.similarity.validate(f"{key}.similarity")
        if not self.networks and not self.derived and not self.metabolism:
            raise ConfigError(
                f"`{key}` gives no relations",
                got="metabolism: false, no networks, nothing derived",
                do=f"set `{key}.metabolism: true`, or list networks or derived relations",
            )
        for name, network in self.networks.items():
            where = f"{key}.networks.{name}"
            network.validate(where)
            if not network.channels and not network.relation_column:
                check_relation_name(name, where=where)

    def _validate_derived(self, key: str) -> None:
        for name in self.derived:
            if name not in DERIVED:
                expected = ", ".join(DERIVED)
                raise ConfigError(f"`{key}.derived` names no relation", got=name, expected=expected)
        if self.derived and not self.model:
            raise ConfigError(f"`{key}.derived` needs `{key}.model`", got=list(self.derived))
        if self.currency_degree < 1:
            raise ConfigError(f"`{key}.currency_degree` is too small", got=self.currency_degree, expected="1 or more")


def build_cell(config: CellConfig, raw: str | None = None) -> CellGraph:
    """Read the model and the networks and put them together.

    Args:
        config: what to put in.
        raw: folder for relative paths; see `find_raw`.

    Raises:
        ConfigError: keys contradict each other.
        DataError: a file is not there.
        GraphError: a file is unusable, names are unknown, or relations are empty or share a name.
    """
    config.validate()
    metabolism = Metabolism.read(config.model, raw, absorb=config.absorb) if config.model else None
    aliases = read_aliases(find_raw(config.aliases, raw)) if config.aliases else AliasTable.empty()
    known = _self_evident(metabolism, aliases)
    networks = {name: read_network(name, network, aliases, known, raw) for name, network in config.networks.items()}
    genes = _choose_genes(config, metabolism, networks, raw)
    vocabularies, relations = {GENE: genes}, _Relations()
    provenance: dict[str, Any] = {"config": dataclasses.asdict(config), "networks": {}}
    if metabolism is not None:
        provenance["model"] = _add_metabolism(config, metabolism, vocabularies, relations)
    for name, network in networks.items():
        edges, provenance["networks"][name] = network_edges(
            network,
            config.networks[name],
            genes,
            symmetrise=config.symmetrise,
            self_loops=config.self_loops,
            key=f"cell.networks.{name}",
        )
        for relation, ends in edges.items():
            relations.add(gene_relation(relation), ends, f"network '{name}'")
    if config.similarity is not None:
        known_edges = [edges for relation, edges in relations.edges.items() if relation[0] == relation[2] == GENE]
        found = similar_genes(known_edges, len(genes), config.similarity)
        relations.add(gene_relation(SIMILAR), found, "`cell.similarity`")
    for key, path in (("aliases", config.aliases), ("genes", config.genes)):
        if path and path not in ("union", "model"):
            provenance[f"{key}_sha256"] = sha256_file(find_raw(path, raw))
    return CellGraph.assemble(vocabularies, relations.edges, provenance)


@dataclass
class _Relations:
    """Relations collected so far, and who gave them."""

    edges: dict[Relation, Edges] = field(default_factory=dict)
    origins: dict[Relation, str] = field(default_factory=dict)

    def add(self, relation: Relation, edges: Edges, origin: str) -> None:
        if relation in self.edges:
            raise GraphError(
                f"two relations are called '{relation[1]}'",
                got=f"{self.origins[relation]} and {origin}",
                do="rename a network",
            )
        self.edges[relation], self.origins[relation] = edges, origin


def _self_evident(metabolism: Metabolism | None, aliases: AliasTable) -> Vocabulary:
    """Names that stand for themselves: the model's genes and all systematic names of the alias table."""
    systematic = {name for names in aliases.systematic.values() for name in names}
    return Vocabulary.of(systematic.union(metabolism.genes.names if metabolism else ()))


def _choose_genes(
    config: CellConfig, metabolism: Metabolism | None, networks: dict[str, Network], raw: str | None
) -> Vocabulary:
    model_genes = metabolism.genes.names if metabolism else ()
    if config.genes == "model":
        return Vocabulary(model_genes)
    if config.genes == "union":
        ambiguous = {name for network in networks.values() for name in network.ambiguous}
        names = {name for network in networks.values() for name in network.names}
        return Vocabulary.of((names - ambiguous).union(model_genes))
    try:
        return read_gene_list(find_raw(config.genes, raw))
    except DataError as error:
        raise ConfigError(
            "`cell.genes` is neither a choice nor a file",
            got=config.genes,
            expected="union, model, or the path of a list with one name per line",
        ) from error


def _add_metabolism(
    config: CellConfig, metabolism: Metabolism, vocabularies: dict[str, Vocabulary], relations: _Relations
) -> dict[str, Any]:
    """Add the model's relations over the cell's genes; returns the model's provenance."""
    genes = vocabularies[GENE]
    index = genes.indices(metabolism.genes.names)
    unknown = tuple(name for name, i in zip(metabolism.genes.names, index, strict=True) if i < 0)
    gene, reaction = metabolism.catalyses
    catalyses = Edges(index[gene], reaction)
    inside = catalyses.select(catalyses.src >= 0)
    report = NameReport(len(metabolism.genes), unknown, rows_dropped=len(catalyses) - len(inside))
    enforce_name_policy(report, config.unknown, where=f"metabolic model '{metabolism.name}'", key="cell.unknown")
    if config.metabolism:
        vocabularies |= {REACTION: metabolism.reactions, METABOLITE: metabolism.metabolites}
        converts = Edges(metabolism.converts[0], metabolism.converts[1], metabolism.stoichiometry)
        for relation, edges in (
            (CATALYSES, inside),
            (CATALYSED_BY, inside.reversed()),
            (CONVERTS, converts),
            (CONVERTED_BY, converts.reversed()),
        ):
            relations.add(relation, edges, "the metabolic model")
    currency = Currency(config.currency_degree, tuple(config.currency))
    for name in config.derived:
        src, dst = index[derived_edges(name, metabolism, currency)]
        kept = np.flatnonzero((src >= 0) & (dst >= 0))
        relations.add(gene_relation(name), Edges(src, dst).select(kept), "`cell.derived`")
    dropped = {"unknown": list(unknown), "edges_dropped": report.rows_dropped}
    return {**metabolism.provenance, **dropped}
