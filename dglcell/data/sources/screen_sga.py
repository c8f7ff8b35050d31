"""Read screens published as tables of synthetic genetic array (SGA) crosses: query strain × array strain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.columns import CROSS, Column, Provenance, columns_of
from dglcell.data.sources import sga_file
from dglcell.data.sources.config import DIGENIC, TRIGENIC, LaboratoryConfig
from dglcell.data.sources.csv_table import find_aliases
from dglcell.data.sources.replicates import genes_of, keep
from dglcell.data.sources.screen_tables import FoundTable
from dglcell.data.sources.sga_file import ARRAY, ARRAY_TYPE, KIND, QUERY, SgaRows, read_sga
from dglcell.data.sources.text_table import deletes_twice
from dglcell.data.strains import Strains
from dglcell.errors import DataError, and_more, listing
from dglcell.files.atomic import sha256_file
from dglcell.graph.vocabulary import AliasTable

# Strain names of synthetic genetic array (SGA) screens: which genes they mean, and which of these are deleted.
#
# A strain is called by the systematic name of its gene and what it is, e.g. ``YBR188C_sn1898``: ``sn`` and ``dma`` are
# deletions (query and array), ``tsq`` and ``tsa`` temperature-sensitive alleles, ``damp`` DAmP alleles, ``S``
# suppressor alleles. Queries of two genes are called by both, ``YAL015C+YOL043C_tm72``; which of them are deletions is
# told by their allele names, ``ntg1Δ+ygl081wΔ``. In controls the second one is ``hoΔ``.


DELETED = re.compile(r"(?:sn|dma)\d+")
DELTAS = ("Δ", "\N{INCREMENT}")
BOTH = "+"


def parse_strain(name: str, alleles: str, aliases: AliasTable) -> list[tuple[str, bool]]:
    """Return the systematic names of the genes of a strain, one or two, and whether each is deleted.

    Args:
        name: as in the table.
        alleles: the strain's allele names; used for strains of two genes only.
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
        return [(genes[0], DELETED.fullmatch(what) is not None)]
    parts = alleles.strip().split(BOTH)
    if len(parts) != len(genes):
        raise DataError(
            f"strain '{name}' has not as many alleles as genes", got=f"'{alleles}'", expected="e.g. ntg1Δ+hoΔ"
        )
    return [(gene, any(delta in part for delta in DELTAS)) for gene, part in zip(genes, parts, strict=True)]


# The HO locus carries the second marker of single-mutant control queries. Its deletion is neutral, so that such a
# strain stands for the mutant of its other genes (Kuzmin et al. 2018).
HO_LOCUS = "YDL227C"


def strain_genes(
    strains: Sequence[str], alleles: Mapping[str, str], index: dict[str, int], aliases: AliasTable
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Read the genes of distinct strains from their names; ``HO_LOCUS`` does not count in strains of two genes.

    Args:
        strains: T names.
        alleles: strain → its allele names.
        index: gene name → index; genes that are not in it yet are added.
        aliases: strain name → systematic name.

    Returns:
        [T, k] indices of genes, −1 where a strain has fewer, and [T] whether all genes that count are deleted.

    Raises:
        DataError: a name cannot be read.
    """
    parsed = [parse_strain(name, alleles.get(name, ""), aliases) for name in strains]
    genes = np.full((len(parsed), max(map(len, parsed))), -1, dtype=np.int32)
    deleted = np.ones(len(parsed), dtype=bool)
    for row, strain in enumerate(parsed):
        counted = [(gene, gone) for gene, gone in strain if len(strain) == 1 or gene != HO_LOCUS]
        genes[row, : len(counted)] = [index.setdefault(gene, len(index)) for gene, _ in counted]
        deleted[row] = all(gone for _, gone in counted)
    return genes, deleted


PHENOTYPE = {DIGENIC: "digenic_interaction", TRIGENIC: "trigenic_interaction"}


@dataclass(frozen=True)
class SgaScreen:
    """Read tables of SGA crosses.

    Digenic rows give ``digenic_interaction`` (epsilon), trigenic rows ``trigenic_interaction`` (tau), both with their
    p-value; all give the ``fitness`` of the combined mutant with its standard deviation.

    Attributes:
        states_kind: the table has a column that tells digenic from trigenic rows; otherwise all are digenic.
        states_array: the table has a column with the type and temperature of the array.
    """

    states_kind: bool = False
    states_array: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """Return the keys of the laboratory section that apply."""
        kind = ("kind",) if self.states_kind else ()
        array = ("temperature",) if self.states_array else ()
        return ("tables", "deletions_only", "aliases", *kind, *array)

    def read(
        self, tables: Sequence[FoundTable], config: LaboratoryConfig, provenance: Provenance, raw: str | None
    ) -> Strains:
        """Return the rows that the configuration asks for."""
        aliases, alias_file = find_aliases(config.aliases, raw)
        rows = read_sga(tables)
        index: dict[str, int] = {}
        query, query_deleted = strain_genes(rows.labels[QUERY], rows.alleles, index, aliases)
        array, array_deleted = strain_genes(rows.labels[ARRAY], {}, index, aliases)
        kept, counts = self._select(rows, config)
        deleted = query_deleted[rows.codes[QUERY][kept]] & array_deleted[rows.codes[ARRAY][kept]]
        if config.deletions_only:
            counts["rows_with_other_alleles"] = int((~deleted).sum())
            kept = kept[deleted]
        else:
            counts["rows_of_deletions_only"] = int(deleted.sum())
        genes = np.hstack([query[rows.codes[QUERY][kept]], array[rows.codes[ARRAY][kept]]])
        twice = deletes_twice(genes)
        counts["rows_with_a_gene_twice"] = int(twice.sum())
        kept, genes = kept[~twice], genes[~twice]
        alias_hash = {} if alias_file is None else {alias_file.name: sha256_file(alias_file)}
        provenance = replace(provenance, counts=counts, files={**provenance.files, **alias_hash})
        strains = Strains.from_matrix(tuple(index), genes, columns=_columns(rows, kept), provenance=provenance)
        return _measured(strains, config.missing)

    def _select(self, rows: SgaRows, config: LaboratoryConfig) -> tuple[NDArray[np.int64], dict[str, int]]:
        """Return the numbers of the rows of the wanted kind and array, and what was counted."""
        total = len(rows.codes[QUERY])
        counts = {"rows": total}
        keep = np.ones(total, dtype=bool)
        if self.states_kind:
            counts |= {f"rows_{kind or 'of_no_kind'}": int(n) for kind, n in _tally(rows, KIND)}
            _refuse_unknown(rows.labels[KIND])
        if config.kind:
            keep &= _is_any(rows, KIND, [config.kind])
            counts["rows_of_another_kind"] = int((~keep).sum())
        if self.states_array:
            counts |= {f"rows_{array}": int(n) for array, n in _tally(rows, ARRAY_TYPE)}
        wanted = [
            array
            for array in rows.labels[ARRAY_TYPE]
            if config.temperature is None or array.endswith(str(config.temperature))
        ]
        if len(wanted) < len(rows.labels[ARRAY_TYPE]):
            other = ~_is_any(rows, ARRAY_TYPE, wanted)
            counts["rows_of_another_array"] = int((keep & other).sum())
            keep &= ~other
        return np.flatnonzero(keep), counts


def _columns(rows: SgaRows, kept: NDArray[np.int64]) -> dict[Column, NDArray[Any]]:
    score, p_value = rows.numbers[sga_file.SCORE][kept], rows.numbers[sga_file.P_VALUE][kept]
    if TRIGENIC in rows.labels[KIND]:
        trigenic = rows.codes[KIND][kept] == rows.labels[KIND].index(TRIGENIC)
    else:
        trigenic = np.zeros(len(kept), dtype=bool)
    phenotypes, p_values = {}, {}
    for kind, chosen in ((TRIGENIC, trigenic), (DIGENIC, ~trigenic)):
        if chosen.any():
            phenotypes[PHENOTYPE[kind]] = np.where(chosen, score, np.float32(np.nan))
            p_values[PHENOTYPE[kind]] = np.where(chosen, p_value, np.float32(np.nan))
    phenotypes["fitness"] = rows.numbers[sga_file.FITNESS][kept]
    # Crosses in different conditions are different experiments.
    crosses = np.zeros(len(kept), dtype=np.int64)
    for column in (QUERY, ARRAY, ARRAY_TYPE):
        crosses = crosses * len(rows.labels[column]) + rows.codes[column][kept]
    sds = {"fitness": rows.numbers[sga_file.FITNESS_SD][kept]}
    return {**columns_of(phenotype=phenotypes, p_value=p_values, sd=sds), Column(CROSS): crosses}


def _measured(rows: Strains, missing: str) -> Strains:
    """Return the rows with a phenotype.

    Raises:
        DataError: a row has none, and such rows are to be refused.
    """
    measured: NDArray[np.bool_] = np.any([~np.isnan(values) for values in rows.phenotypes.values()], axis=0)
    lacking = int((~measured).sum())
    if missing == "refuse" and lacking:
        raise DataError(
            f"'{rows.provenance.source}': no phenotype is measured in a row",
            got=genes_of(rows, int(np.argmin(measured))) + and_more(int(lacking) - 1, "row"),
            do="set `missing: drop` to leave such rows out",
        )
    return keep(rows, measured, rows_not_measured=lacking)


def _tally(rows: SgaRows, column: str) -> list[tuple[str, int]]:
    """Count how many rows have each distinct cell of a column."""
    return list(zip(rows.labels[column], np.bincount(rows.codes[column]), strict=True))


def _is_any(rows: SgaRows, column: str, cells: Sequence[str]) -> NDArray[np.bool_]:
    wanted = np.array([label in cells for label in rows.labels[column]])
    chosen: NDArray[np.bool_] = wanted[rows.codes[column]]
    return chosen


def _refuse_unknown(kinds: Sequence[str]) -> None:
    stray = sorted(set(kinds) - {DIGENIC, TRIGENIC})
    if stray:
        raise DataError(
            "a row is neither digenic nor trigenic",
            got=listing(map(repr, stray)),
            expected=f"'{DIGENIC}' or '{TRIGENIC}' in the column of the combined mutant's type",
            do="use the table as it was published",
        )
