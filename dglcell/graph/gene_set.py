"""Genes of a genome with their other names, as the Saccharomyces Genome Database publishes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from dglcell.errors import GraphError
from dglcell.graph.text_lines import numbered_lines
from dglcell.graph.vocabulary import AliasTable, Vocabulary

ORF, GFF_GENE = "ORF", "gene"
FEATURE_COLUMNS = 16


@dataclass(frozen=True)
class GeneSet:
    """Genes and their other names.

    Attributes:
        genes: systematic names.
        aliases: standard names, their protein forms (``Gcn4p``) and aliases. A standard name stands for its gene,
            even where others have it among their aliases.
    """

    genes: Vocabulary
    aliases: AliasTable


@dataclass(frozen=True)
class _Gene:
    systematic: str
    standard: str
    aliases: tuple[str, ...]


def read_sgd_features(path: Path) -> GeneSet:
    """The open reading frames of ``SGD_features.tab``: tab-separated, no header, 16 columns.

    Column 2 is the feature type (`ORF` here, with every qualifier: verified, uncharacterized, dubious), column 4 the
    systematic name, column 5 the standard name, column 6 aliases separated by ``|``. Rows of parts of features (CDS,
    introns) have no name of their own. (Columns as SGD's README and yeastgenome/SGDBackend-Nex2,
    generate_sgd_features.py, give them.)

    Raises:
        GraphError: the file is damaged, has other columns, or holds no open reading frame.
    """
    genes = []
    for number, line in numbered_lines(path):
        fields = line.split("\t")
        if len(fields) != FEATURE_COLUMNS:
            raise GraphError(
                f"'{path.name}', line {number}: not a row of SGD_features.tab",
                got=f"{len(fields)} columns",
                expected=f"{FEATURE_COLUMNS} columns, separated by tabs",
                do="copy or download the file again",
            )
        if fields[1] == ORF and fields[3]:
            genes.append(_Gene(fields[3], fields[4], tuple(filter(None, fields[5].split("|")))))
    return _gene_set(genes, path)


def read_gff(path: Path) -> GeneSet:
    """The features of type ``gene`` of SGD's GFF3: ``ID`` is the systematic name, ``gene`` the standard name.

    SGD writes protein-coding genes as ``gene``; those of RNAs, of transposons and pseudogenes have types of their own.
    ``Alias`` lists the standard name and others. Reading ends where the sequences begin.

    Raises:
        GraphError: the file is damaged, a gene has no ID, or there is no gene.
    """
    genes = []
    for number, line in numbered_lines(path):
        if line.startswith("##FASTA"):
            break
        fields = line.split("\t")
        if line.startswith("#") or len(fields) != 9 or fields[2] != GFF_GENE:
            continue
        attributes = dict(pair.partition("=")[::2] for pair in fields[8].split(";"))
        if not attributes.get("ID"):
            raise GraphError(f"'{path.name}', line {number}: a gene without ID", expected="GFF3 as SGD writes it")
        aliases = tuple(unquote(alias) for alias in attributes.get("Alias", "").split(",") if alias)
        genes.append(_Gene(unquote(attributes["ID"]), unquote(attributes.get("gene", "")), aliases))
    return _gene_set(genes, path)


def _gene_set(genes: list[_Gene], path: Path) -> GeneSet:
    if not genes:
        raise GraphError(
            f"'{path.name}' holds no genes", expected="protein-coding genes as SGD lists them", do="check the file"
        )
    standard = _targets((name, gene) for gene in genes for name in _standard_forms(gene.standard))
    others = _targets((name, gene) for gene in genes for name in gene.aliases)
    return GeneSet(Vocabulary.of(gene.systematic for gene in genes), AliasTable({**others, **standard}))


def _standard_forms(name: str) -> tuple[str, ...]:
    """A gene's name, and its protein's in either form: GCN4, Gcn4, Gcn4p."""
    return (name, name.capitalize(), f"{name.capitalize()}p") if name else ()


def _targets(pairs: Iterable[tuple[str, _Gene]]) -> dict[str, tuple[str, ...]]:
    targets: dict[str, set[str]] = {}
    for name, gene in pairs:
        targets.setdefault(name, set()).add(gene.systematic)
    return {name: tuple(sorted(genes)) for name, genes in targets.items()}
