"""Building the cell graph from a configuration: metabolic model, networks and derived relations."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dglcell.errors import GraphError
from dglcell.graph.cell_config import CellConfig
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.derived import Currency, derived_edges
from dglcell.graph.edges import Edges
from dglcell.graph.gene_choice import GeneChoice
from dglcell.graph.metabolism import Metabolism
from dglcell.graph.networks import network_edges, read_network
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
from dglcell.graph.similarity import SIMILAR, similar_genes
from dglcell.graph.vocabulary import NameReport, Vocabulary, enforce_name_policy

__all__ = ["CellConfig", "CellGraph", "build_cell"]


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
    choice = GeneChoice(config, raw)
    aliases = choice.aliases()
    known = choice.self_evident(metabolism, aliases)
    tables = config.tables()
    networks = {name: read_network(name, table, aliases, known, raw) for name, table in tables.items()}
    genes = choice.genes(metabolism, networks)
    vocabularies, relations = {GENE: genes}, _Relations()
    provenance: dict[str, Any] = {"config": dataclasses.asdict(config), "networks": {}, **choice.provenance}
    if metabolism is not None:
        provenance["model"] = _add_metabolism(config, metabolism, vocabularies, relations)
    for name, network in networks.items():
        edges, counts = network_edges(
            network,
            tables[name].config,
            genes,
            symmetrise=config.symmetrise,
            self_loops=config.self_loops,
            unknown=config.unknown,
            key=f"cell.networks.{name}",
        )
        provenance["networks"][name] = tables[name].provenance() | counts
        for relation, ends in edges.items():
            relations.add(gene_relation(relation), ends, f"network '{name}'")
    if config.similarity is not None:
        between_genes = [ends for relation, ends in relations.edges.items() if relation[0] == relation[2] == GENE]
        similar = similar_genes(between_genes, len(genes), config.similarity)
        relations.add(gene_relation(SIMILAR), similar, "`cell.similarity`")
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
