"""Build the cell graph from a configuration: its genes, metabolic model, networks and derived relations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dglcell.errors import ConfigError, GraphError
from dglcell.files.atomic import find_raw, sha256_file
from dglcell.graph.catalogue import GENE_SETS, provenance
from dglcell.graph.cell_files import losses_of_cell
from dglcell.graph.cell_graph import CellGraph, Edges
from dglcell.graph.config import MODEL, UNION, CellConfig
from dglcell.graph.gene_space import similar_relations
from dglcell.graph.metabolism import Currency, Metabolism, derived_edges
from dglcell.graph.names import add_names, refuse_names, warn_of_strangers
from dglcell.graph.networks import Network, network_edges, read_network
from dglcell.graph.schema import (
    CATALYSED_BY,
    CATALYSES,
    CONVERTED_BY,
    CONVERTS,
    GENE,
    METABOLITE,
    REACTION,
    Relation,
    gene_relation,
)
from dglcell.graph.vocabulary import (
    REFUSE,
    AliasTable,
    Vocabulary,
    read_aliases,
    read_column,
    read_gene_list,
    read_gff,
    read_sgd_features,
)
from dglcell.published.file import PublishedFile


def _genome_reader(path: Path) -> Callable[[Path], Vocabulary] | None:
    """Return what reads a file of genes with their aliases, by its extension; None where it is of no such format."""
    readers = {".gff": read_gff, ".gff3": read_gff, ".tab": read_sgd_features}
    return readers.get(Path(path.name.removesuffix(".gz")).suffix)


@dataclass
class GeneChoice:
    """Read genes and aliases as a configuration names them, when they are asked for."""

    config: CellConfig  #: configuration of the cell
    raw: str | None = None  #: folder for relative paths; see `find_raw`
    #: ``genes`` and ``aliases`` → the files that were read, with hashes
    provenance: dict[str, Any] = field(default_factory=dict)
    _sets: dict[str, Vocabulary] = field(default_factory=dict)

    def aliases(self) -> AliasTable:
        """Return the other names of genes."""
        name = self.config.aliases
        if not name:
            return AliasTable()
        if name in GENE_SETS:
            return self._gene_set(name, "aliases").others
        path = self._found(name, "aliases")
        read = _genome_reader(path)
        return read(path).others if read else read_aliases(path)

    def self_evident(self, metabolism: Metabolism | None, aliases: AliasTable) -> Vocabulary:
        """Return names that stand for themselves: of the model, of a chosen gene set, and all that have aliases."""
        names = {name for names in aliases.systematic.values() for name in names}
        if metabolism is not None:
            names |= set(metabolism.genes.names)
        if self.config.genes in GENE_SETS:
            names |= set(self._gene_set(self.config.genes, "genes").names)
        return Vocabulary.of(names)

    def genes(self, metabolism: Metabolism | None, networks: dict[str, Network]) -> Vocabulary:
        """Return the gene vocabulary."""
        genes, asked = self._chosen(metabolism, networks), self.config.more_genes
        if asked is None:
            return genes
        name, _, column = asked.rpartition(":")
        path = find_raw(name or asked, self.raw)
        self.provenance["more_genes"] = {"path": asked, "sha256": sha256_file(path)}
        if not name:
            return Vocabulary.of({*genes.names, *read_gene_list(path).names})
        return Vocabulary.of({*genes.names, *read_column(path, column)})

    def _chosen(self, metabolism: Metabolism | None, networks: dict[str, Network]) -> Vocabulary:
        choice = self.config.genes
        model_genes = metabolism.genes.names if metabolism else ()
        if choice == MODEL:
            return Vocabulary(model_genes)
        if choice == UNION:
            ambiguous = {name for network in networks.values() for name in network.ambiguous}
            names = {name for network in networks.values() for name in network.names}
            return Vocabulary.of((names - ambiguous).union(model_genes))
        if choice in GENE_SETS:
            return self._gene_set(choice, "genes")
        if not PublishedFile(choice).is_here(self.raw):
            expected = f"union, model, {', '.join(GENE_SETS)}, or the path of a list with one name per line"
            raise ConfigError("`cell.genes` is neither a choice nor a file", got=choice, expected=expected)
        path = self._found(choice, "genes")
        return (_genome_reader(path) or read_gene_list)(path)

    def _found(self, name: str, use: str) -> Path:
        found = PublishedFile(name).find(self.raw)
        self.provenance[use] = {"path": name, **found.provenance()}
        return found.path

    def _gene_set(self, name: str, use: str) -> Vocabulary:
        source = GENE_SETS[name]
        if name not in self._sets:
            self._sets[name] = source.read(source.file.find(self.raw).path)
        if use not in self.provenance:
            self.provenance[use] = provenance(name, source.file.find(self.raw))
        return self._sets[name]


__all__ = ["CellConfig", "CellGraph", "build_cell"]


def build_cell(config: CellConfig, raw: str | None = None) -> CellGraph:
    """Read the model and the networks, whose relative paths are in the folder ``raw``, and put them together.

    Raises:
        ConfigError: keys contradict each other.
        DataError: a file is missing.
        GraphError: a file is unusable, names are unknown, or relations are empty or share a name.
    """
    config.validate()
    metabolism = Metabolism.read(config.model, raw, media=config.media) if config.model else None
    choice = GeneChoice(config, raw)
    aliases = choice.aliases()
    known = choice.self_evident(metabolism, aliases)
    tables = config.tables()
    networks = {name: read_network(name, table, aliases, known, raw) for name, table in tables.items()}
    genes = choice.genes(metabolism, networks)
    if config.genes == UNION:
        parts = {"": metabolism.genes.names if metabolism else (), **{name: of.names for name, of in networks.items()}}
        for name in networks:
            others = Vocabulary.of(gene for other, names in parts.items() if other != name for gene in names)
            warn_of_strangers(f"network '{name}'", parts[name], others, f"cell.networks.{name}.strip_prefix")
    vocabularies, relations = {GENE: genes}, _Relations()
    provenance: dict[str, Any] = {"config": dataclasses.asdict(config), "networks": {}, **choice.provenance}
    if metabolism is not None:
        provenance["model"] = _add_metabolism(config, metabolism, vocabularies, relations)
    for name, network in networks.items():
        edges, counts = network_edges(network, tables[name].config, genes, config, f"cell.networks.{name}")
        provenance["networks"][name] = tables[name].provenance() | counts
        for relation, ends in edges.items():
            relations.add(gene_relation(relation), ends, f"network '{name}'")
    if config.similarity is not None:
        given = dict(relations.edges)
        for name, ends, origin in similar_relations(config.similarity, given, genes, aliases, raw):
            relations.add(gene_relation(name), ends, "`cell.similarity`")
            if origin:
                provenance.setdefault("similarity", {})[name] = origin
    known_names = [aliases, *([metabolism.aliases] if metabolism is not None else [])]
    vocabularies[GENE], names = add_names(genes, known_names, raw)
    if names:
        provenance["names"] = names
    blocked, (media, titles) = config.lose_blocked, (metabolism.media, metabolism.titles) if metabolism else ({}, {})
    derive = losses_of_cell(relations.edges, lose_blocked=blocked)
    more: dict[str, Any] = {"lose_blocked": blocked, "derive": derive, "media": media, "titles": titles}
    return CellGraph.assemble(vocabularies, relations.edges, provenance, **more)


@dataclass
class _Relations:
    edges: dict[Relation, Edges] = field(default_factory=dict)
    origins: dict[Relation, str] = field(default_factory=dict)

    def add(self, relation: Relation, edges: Edges, origin: str) -> None:
        if relation in self.edges:
            got = f"{self.origins[relation]} and {origin}"
            raise GraphError(f"two relations are called '{relation[1]}'", got=got, do="rename a network")
        self.edges[relation], self.origins[relation] = edges, origin


def _add_metabolism(
    config: CellConfig, metabolism: Metabolism, vocabularies: dict[str, Vocabulary], relations: _Relations
) -> dict[str, Any]:
    """Add the model's relations over the cell's genes; return the model's provenance."""
    genes = vocabularies[GENE]
    index = genes.indices(metabolism.genes.names)
    unknown = tuple(name for name, i in zip(metabolism.genes.names, index, strict=True) if i < 0)
    gene, reaction = metabolism.catalyses
    catalyses = Edges(index[gene], reaction)
    inside = catalyses.select(catalyses.src >= 0)
    if config.unknown == REFUSE:
        where = f"metabolic model '{metabolism.name}'"
        refuse_names(unknown, len(metabolism.genes), genes, where=where, key="cell.unknown")
    if config.metabolism:
        vocabularies |= {REACTION: metabolism.reactions, METABOLITE: metabolism.metabolites}
        converts = Edges(metabolism.converts[0], metabolism.converts[1], metabolism.stoichiometry)
        made = {CATALYSES: inside, CATALYSED_BY: inside.reversed()}
        for relation, edges in {**made, CONVERTS: converts, CONVERTED_BY: converts.reversed()}.items():
            relations.add(relation, edges, "the metabolic model")
    currency = Currency(config.currency_degree, tuple(config.currency))
    for name in config.derived:
        src, dst = index[derived_edges(name, metabolism, currency)]
        kept = np.flatnonzero((src >= 0) & (dst >= 0))
        relations.add(gene_relation(name), Edges(src, dst).select(kept), "`cell.derived`")
    dropped = {"unknown": list(unknown), "edges_dropped": len(catalyses) - len(inside)}
    return {**metabolism.provenance, **dropped}
