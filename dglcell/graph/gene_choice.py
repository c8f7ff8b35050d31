"""Which genes a cell graph has, and what else they are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dglcell.errors import ConfigError, DataError
from dglcell.graph.catalogue import GENE_SETS
from dglcell.graph.cell_config import MODEL, UNION, CellConfig
from dglcell.graph.gene_set import GeneSet, read_gff, read_sgd_features
from dglcell.graph.metabolism import Metabolism
from dglcell.graph.names import read_aliases, read_gene_list
from dglcell.graph.networks import Network
from dglcell.graph.raw_file import RawFile
from dglcell.graph.vocabulary import AliasTable, Vocabulary

GENOME_READERS: dict[str, Callable[[Path], GeneSet]] = {
    ".gff": read_gff,
    ".gff3": read_gff,
    ".tab": read_sgd_features,
}
"""Extension of a file (before ``.gz``) that holds genes with their aliases → how to read it."""


def _genome_reader(path: Path) -> Callable[[Path], GeneSet] | None:
    return GENOME_READERS.get(Path(path.name.removesuffix(".gz")).suffix)


@dataclass
class GeneChoice:
    """Genes and aliases as a configuration names them, read when they are asked for.

    Attributes:
        config: of the cell.
        raw: folder for relative paths; see `find_raw`.
        provenance: ``genes`` and ``aliases``: the files that were read, with hashes.
    """

    config: CellConfig
    raw: str | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    _sets: dict[str, GeneSet] = field(default_factory=dict)

    def aliases(self) -> AliasTable:
        """The other names of genes.

        Raises:
            DataError: the file is not there, or not the right one.
            GraphError: it cannot be read.
        """
        name = self.config.aliases
        if not name:
            return AliasTable.empty()
        if name in GENE_SETS:
            return self._gene_set(name, "aliases").aliases
        file = RawFile(name)
        path = file.find(self.raw)
        self.provenance["aliases"] = {"path": name, **file.check(path).provenance()}
        read = _genome_reader(path)
        return read(path).aliases if read else read_aliases(path)

    def self_evident(self, metabolism: Metabolism | None, aliases: AliasTable) -> Vocabulary:
        """Names that stand for themselves: of the model, of a chosen gene set, and all that have aliases."""
        names = {name for names in aliases.systematic.values() for name in names}
        if metabolism is not None:
            names |= set(metabolism.genes.names)
        if self.config.genes in GENE_SETS:
            names |= set(self._gene_set(self.config.genes, "genes").genes.names)
        return Vocabulary.of(names)

    def genes(self, metabolism: Metabolism | None, networks: dict[str, Network]) -> Vocabulary:
        """The gene vocabulary.

        Raises:
            ConfigError: the choice is neither known nor a file.
            DataError: a file is not the right one.
            GraphError: a file cannot be read.
        """
        choice = self.config.genes
        model_genes = metabolism.genes.names if metabolism else ()
        if choice == MODEL:
            return Vocabulary(model_genes)
        if choice == UNION:
            ambiguous = {name for network in networks.values() for name in network.ambiguous}
            names = {name for network in networks.values() for name in network.names}
            return Vocabulary.of((names - ambiguous).union(model_genes))
        if choice in GENE_SETS:
            return self._gene_set(choice, "genes").genes
        file = RawFile(choice)
        try:
            path = file.find(self.raw)
        except DataError as error:
            raise ConfigError(
                "`cell.genes` is neither a choice nor a file",
                got=choice,
                expected=f"union, model, {', '.join(GENE_SETS)}, or the path of a list with one name per line",
            ) from error
        self.provenance["genes"] = {"path": choice, **file.check(path).provenance()}
        read = _genome_reader(path)
        return read(path).genes if read else read_gene_list(path)

    def _gene_set(self, name: str, use: str) -> GeneSet:
        source = GENE_SETS[name]
        path = source.file.find(self.raw)
        if name not in self._sets:
            self._sets[name] = source.read(path)
        if use not in self.provenance:
            checked = source.file.check(path).provenance()
            self.provenance[use] = {
                "source": name,
                "path": source.file.path,
                **source.origin.provenance(source.file),
                **checked,
            }
        return self._sets[name]
