"""Find other names of genes: standard names, aliases, and the names that a metabolic model has for its genes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dglcell.files.atomic import find_raw
from dglcell.graph.catalogue import GENE_SETS, MODELS
from dglcell.graph.catalogue import provenance as provenance_of
from dglcell.graph.model_files import FORMATS, SHIPPED, locate_model, read_model
from dglcell.graph.vocabulary import AliasTable, GeneSet, Vocabulary, read_aliases

if TYPE_CHECKING:
    from cobra import Model


def named_aliases(name: str, raw: str | None = None) -> tuple[AliasTable, Path]:
    """Return other names of genes, and the file that has them.

    Args:
        name: a gene set of the catalogue, a metabolic model, or the path of a table of aliases.
        raw: folder for relative paths; see `find_raw`.

    Raises:
        DataError: the file is missing, or is not the one that it should be.
        GraphError: it cannot be read.
    """
    if name in GENE_SETS:
        path = GENE_SETS[name].file.find(raw).path
        return with_own_names(GENE_SETS[name].read(path)), path
    if name in SHIPPED or name in MODELS or Path(name.removesuffix(".gz")).suffix in FORMATS:
        return model_aliases(read_model(name, raw)), locate_model(name, raw)
    path = find_raw(name, raw)
    return read_aliases(path), path


def with_own_names(genes: GeneSet) -> AliasTable:
    """Return the aliases of a gene set, in which a gene without other names stands for itself."""
    return genes.aliases.joined(AliasTable({name: (name,) for name in genes.genes}))


def model_aliases(model: Model) -> AliasTable:
    """Return the names that a metabolic model has for its genes, unless they merely repeat the identifiers."""
    names: dict[str, set[str]] = {}
    for gene in model.genes:
        if gene.name and gene.name.strip() and gene.name not in (gene.id, f"G_{gene.id}"):
            names.setdefault(gene.name.strip(), set()).add(gene.id)
    shown = {gene.id: gene.name.strip() for gene in model.genes if gene.name and gene.name.strip() in names}
    own = {gene.id: (gene.id,) for gene in model.genes}
    return AliasTable({**{name: tuple(sorted(ids)) for name, ids in names.items()}, **own}, shown)


def names_of_model(model: str | None) -> str | None:
    """Return the gene set of the catalogue that names the genes of a model, if there is one."""
    return next((name for name, source in GENE_SETS.items() if model in source.models), None)


def names_of_genes(genes: Iterable[str]) -> str | None:
    """Return the gene set of the catalogue that names most of some genes, by the form of their systematic names."""
    listed = list(genes)
    for name, source in GENE_SETS.items():
        if source.names and 2 * sum(map(bool, map(re.compile(source.names).fullmatch, listed))) > len(listed):
            return name
    return None


def add_names(genes: Vocabulary, given: Iterable[AliasTable], raw: str | None) -> tuple[Vocabulary, dict[str, Any]]:
    """Add other names to genes, and say where these come from.

    The file of the catalogue is used where it is in the raw folder; a cell graph can be built without it.

    Args:
        genes: genes of a cell graph.
        given: what is known of their names, the most reliable first.
        raw: the raw folder.

    Returns:
        The vocabulary with other names, and its provenance, which is empty where the catalogue has no part in it.

    Raises:
        DataError: the file is present, and is not the one that it should be.
    """
    others, provenance = AliasTable.empty(), {}
    for table in given:
        others = others.joined(table)
    name = names_of_genes(genes)
    if name is not None:
        source = GENE_SETS[name]
        if source.file.is_here(raw):
            found = source.file.find(raw)
            provenance = provenance_of(name, found)
            others = source.read(found.path).aliases.joined(others)
    return Vocabulary(genes.names, others.of_genes(genes)), provenance
