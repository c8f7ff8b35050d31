"""Strain names of synthetic genetic array (SGA) screens: which genes they mean, and which of these are deleted.

A strain is called by the systematic name of its gene and what it is, e.g. ``YBR188C_sn1898``: ``sn`` and ``dma`` are
deletions (query and array), ``tsq`` and ``tsa`` temperature-sensitive alleles, ``damp`` DAmP alleles, ``S`` suppressor
alleles. Queries of two genes are called by both, ``YAL015C+YOL043C_tm72``; which of them are deletions is told by
their allele names, ``ntg1Δ+ygl081wΔ``. In controls the second one is ``hoΔ``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import DataError
from dglcell.graph.vocabulary import AliasTable

DELETED = re.compile(r"(?:sn|dma)\d+")
DELTAS = ("Δ", "\N{INCREMENT}")
BOTH = "+"


@dataclass(frozen=True)
class Strain:
    """What a strain name says.

    Attributes:
        genes: systematic names, one or two.
        deleted: whether each of them is deleted.
    """

    genes: tuple[str, ...]
    deleted: tuple[bool, ...]


def parse_strain(name: str, alleles: str, aliases: AliasTable) -> Strain:
    """Genes of a strain.

    Args:
        name: as in the table.
        alleles: its allele names; used for strains of two genes only.
        aliases: strain name → systematic name; a strain that is not listed is taken by its own name.

    Raises:
        DataError: the name has no gene, an ambiguous one, or not as many genes as alleles.
    """
    orfs, _, what = name.strip().rpartition("_")
    genes, ambiguous = aliases.resolve([name] if name in aliases.systematic else (orfs or what).split(BOTH))
    if ambiguous or not all(genes):
        raise DataError(
            f"strain '{name}' names no gene" if not ambiguous else f"strain '{name}' stands for several genes",
            expected="a systematic name, an underscore and the kind of strain, e.g. YBR188C_sn1898",
            do="mend the name, or give an alias table",
        )
    if len(genes) == 1:
        return Strain(tuple(genes), (DELETED.fullmatch(what) is not None,))
    parts = alleles.strip().split(BOTH)
    if len(parts) != len(genes):
        raise DataError(
            f"strain '{name}' has not as many alleles as genes", got=f"'{alleles}'", expected="e.g. ntg1Δ+hoΔ"
        )
    return Strain(tuple(genes), tuple(any(delta in part for delta in DELTAS) for part in parts))


@dataclass(frozen=True)
class StrainGenes:
    """Genes of the distinct strains of a table column.

    Attributes:
        genes: [T, k] int32 indices of gene names; −1 where a strain has fewer.
        deleted: [T] whether all genes that count are deleted.
    """

    genes: NDArray[np.int32]
    deleted: NDArray[np.bool_]


def strain_genes(
    strains: Sequence[str], alleles: Mapping[str, str], index: dict[str, int], aliases: AliasTable, marker: str | None
) -> StrainGenes:
    """Genes of strains.

    Args:
        strains: T names.
        alleles: strain → its allele names.
        index: gene name → index; genes that are not in it yet are added.
        aliases: strain name → systematic name.
        marker: a gene that does not count in strains of two genes, such as a marker locus.

    Raises:
        DataError: a name cannot be read.
    """
    parsed = [parse_strain(name, alleles.get(name, ""), aliases) for name in strains]
    genes = np.full((len(parsed), max(len(strain.genes) for strain in parsed)), -1, dtype=np.int32)
    deleted = np.ones(len(parsed), dtype=bool)
    for row, strain in enumerate(parsed):
        counted = [
            (gene, gone)
            for gene, gone in zip(strain.genes, strain.deleted, strict=True)
            if len(strain.genes) == 1 or gene != marker
        ]
        genes[row, : len(counted)] = [index.setdefault(gene, len(index)) for gene, _ in counted]
        deleted[row] = all(gone for _, gone in counted)
    return StrainGenes(genes, deleted)
