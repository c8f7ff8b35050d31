"""Collect sets of genes that a cell graph and its files name: subsystems, complexes, groups, metabolites."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from dglcell.errors import DataError, GraphError
from dglcell.graph.catalogue import GROUPS, NETWORKS, NamedTable, NetworkConfig, named_table
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.config import CellConfig
from dglcell.graph.derived import CURRENCY_SPECIES
from dglcell.graph.gene_space import read_sets
from dglcell.graph.names import names_of_genes
from dglcell.graph.schema import CATALYSES, CONVERTS, METABOLITE, REACTION, Relation

log = logging.getLogger("dglcell")

SUBSYSTEMS = "subsystems"
"""The provenance of a cell graph's metabolic model has the genes of each subsystem under this key."""

SETS_OF_GENOMES = {"sgd_names": ("cyc2008_complexes", "go_slim_sgd")}
"""This maps a gene set of the catalogue to tables of sets of its genes, which are read where their files are."""

SET_NAMES = {"go_slim_sgd": "4"}
"""This maps a table of the catalogue to its column of sets that people read, where the table names another one."""


@dataclass(frozen=True)
class GeneSets:
    """Hold the sets of one kind.

    Attributes:
        kind: what a set is, e.g. ``subsystem``.
        members: name of a set → its genes, sorted.
    """

    kind: str
    members: Mapping[str, tuple[str, ...]]


def gene_sets(cell: CellGraph, config: CellConfig, raw: str | None = None) -> list[GeneSets]:
    """Return all kinds of sets that a cell graph, its configuration and the files in the raw folder name.

    A file that is missing or unusable is left out, and the log says so.

    Args:
        cell: the cell graph.
        config: configuration of the cell graph.
        raw: folder for relative paths; see `find_raw`.
    """
    found = [*_of_metabolism(cell), *_of_tables(cell, config, raw)]
    return [sets for sets in found if sets.members]


def _of_metabolism(cell: CellGraph) -> Iterator[GeneSets]:
    subsystems = cell.provenance.get("model", {}).get(SUBSYSTEMS, {})
    inside = {name: tuple(gene for gene in genes if gene in cell.genes) for name, genes in subsystems.items()}
    yield GeneSets("subsystem", inside)
    if CATALYSES not in cell.relations:
        return
    genes_of, reactions = _sources(cell, CATALYSES), cell.vocabularies[REACTION].names
    complexes = {frozenset(genes): reactions[node][:-1] for node, genes in genes_of.items() if len(genes) > 1}
    yield GeneSets("enzyme complex", _named(cell, {name: genes for genes, name in complexes.items()}))
    if not subsystems and CONVERTS in cell.relations:
        yield GeneSets("genes around a metabolite", _named(cell, _around_metabolites(cell, genes_of)))


def _sources(cell: CellGraph, relation: Relation) -> dict[int, set[int]]:
    """Return destination → sources of its edges."""
    edges = cell.edges(relation)
    found: dict[int, set[int]] = {}
    for source, destination in zip(edges.src.tolist(), edges.dst.tolist(), strict=True):
        found.setdefault(destination, set()).add(source)
    return found


def _around_metabolites(cell: CellGraph, genes_of: Mapping[int, set[int]]) -> dict[str, set[int]]:
    """Return metabolite → genes of the reactions that make or take it.

    Carriers, which most reactions have, are left out.
    """
    names, edges = cell.vocabularies[METABOLITE].names, cell.edges(CONVERTS)
    found: dict[str, set[int]] = {}
    for reaction, metabolite in zip(edges.src.tolist(), edges.dst.tolist(), strict=True):
        name = names[metabolite]
        if name.rpartition("_")[0].lower() not in CURRENCY_SPECIES and name.lower() not in CURRENCY_SPECIES:
            found.setdefault(name, set()).update(genes_of.get(reaction, ()))
    return found


def _named(cell: CellGraph, members: Mapping[str, Iterable[int]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(cell.genes.names[gene] for gene in sorted(genes)) for name, genes in members.items()}


def _of_tables(cell: CellGraph, config: CellConfig, raw: str | None) -> Iterator[GeneSets]:
    for name, named in _tables(cell, config, raw).items():
        try:
            found = read_sets(named, name, cell.genes, cell.genes.others, raw)
        except (DataError, GraphError) as error:
            log.info("no sets of genes from '%s': %s", name, str(error).partition("\n")[0])
            continue
        members: dict[str, set[int]] = {}
        for gene, number in zip(found.genes.tolist(), found.sets.tolist(), strict=True):
            members.setdefault(found.names[number], set()).add(gene)
        yield GeneSets(name.replace("_", " "), _named(cell, members))


def _tables(cell: CellGraph, config: CellConfig, raw: str | None) -> dict[str, NamedTable]:
    """Return tables of genes and sets: those of the configuration, and those of the catalogue whose files are there."""
    found = {name: table for name, table in config.tables().items() if table.config.layout == GROUPS}
    sources = config.similarity.sources if config.similarity is not None else {}
    for name, source in sources.items():
        if source.sets is not None:
            found.setdefault(name, named_table(source.sets, f"cell.similarity.sources.{name}.sets"))
    used = {table.config.source for table in found.values()}
    for name in SETS_OF_GENOMES.get(names_of_genes(cell.genes) or "", ()):
        if name not in used and NETWORKS[name].file.is_here(raw):
            found[name] = named_table(NetworkConfig(source=name), name)
    return {name: _with_set_names(table) for name, table in found.items()}


def _with_set_names(table: NamedTable) -> NamedTable:
    """Return the same table with names of sets that people can read."""
    column = SET_NAMES.get(table.config.source)
    if column is None:
        return table
    return replace(table, config=replace(table.config, columns=[table.config.columns[0], column]))
