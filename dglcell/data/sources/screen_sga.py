"""Screens published as tables of synthetic genetic array (SGA) crosses: query strain × array strain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources import sga_file
from dglcell.data.sources.csv_table import find_aliases
from dglcell.data.sources.genotypes import Genotypes, deletes_twice, present_first
from dglcell.data.sources.laboratory_config import DIGENIC, TRIGENIC, LaboratoryConfig
from dglcell.data.sources.measurements import Measurements
from dglcell.data.sources.raw_tables import FoundTable
from dglcell.data.sources.sga_file import ARRAY, ARRAY_TYPE, KIND, QUERY, SgaRows, read_sga
from dglcell.data.sources.sga_strains import strain_genes
from dglcell.data.table import Provenance
from dglcell.errors import DataError, listing
from dglcell.files import sha256_file

# The HO locus carries the second marker of single-mutant control queries. Its deletion is neutral, so that such a
# strain stands for the mutant of its other genes (Kuzmin et al. 2018).
HO_LOCUS = "YDL227C"
PHENOTYPE = {DIGENIC: "digenic_interaction", TRIGENIC: "trigenic_interaction"}


@dataclass(frozen=True)
class SgaScreen:
    """How such tables are read.

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
        """Keys of the laboratory section that apply."""
        kind = ("kind",) if self.states_kind else ()
        array = ("temperature", "array_types") if self.states_array else ()
        return ("tables", "deletions_only", "aliases", *kind, *array)

    def read(
        self, tables: Sequence[FoundTable], config: LaboratoryConfig, provenance: Provenance, raw: str | None
    ) -> Measurements:
        """The rows that the configuration asks for."""
        aliases, alias_file = find_aliases(config.aliases, raw)
        rows = read_sga(tables)
        index: dict[str, int] = {}
        marker = None if config.keep_marker_locus else HO_LOCUS
        query = strain_genes(rows.labels[QUERY], rows.alleles, index, aliases, marker)
        array = strain_genes(rows.labels[ARRAY], {}, index, aliases, marker)
        kept, counts = self._select(rows, config)
        deleted = query.deleted[rows.codes[QUERY][kept]] & array.deleted[rows.codes[ARRAY][kept]]
        if config.deletions_only:
            counts["rows_with_other_alleles"] = int((~deleted).sum())
            kept = kept[deleted]
        else:
            counts["rows_of_deletions_only"] = int(deleted.sum())
        genes = np.hstack([query.genes[rows.codes[QUERY][kept]], array.genes[rows.codes[ARRAY][kept]]])
        twice = deletes_twice(genes)
        counts["rows_with_a_gene_twice"] = int(twice.sum())
        kept, genes = kept[~twice], present_first(genes[~twice])
        alias_hash = {} if alias_file is None else {alias_file.name: sha256_file(alias_file)}
        provenance = replace(provenance, counts=counts, files={**provenance.files, **alias_hash})
        return _measured(_measurements(rows, kept, Genotypes(tuple(index), genes), provenance), config.missing)

    def _select(self, rows: SgaRows, config: LaboratoryConfig) -> tuple[NDArray[np.int64], dict[str, int]]:
        """Numbers of the rows of the wanted kind and array, and what was counted."""
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
            if (config.temperature is None or array.endswith(str(config.temperature)))
            and (not config.array_types or array in config.array_types)
        ]
        if len(wanted) < len(rows.labels[ARRAY_TYPE]):
            other = ~_is_any(rows, ARRAY_TYPE, wanted)
            counts["rows_of_another_array"] = int((keep & other).sum())
            keep &= ~other
        return np.flatnonzero(keep), counts


def _measurements(rows: SgaRows, kept: NDArray[np.int64], genotypes: Genotypes, provenance: Provenance) -> Measurements:
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
    return Measurements(
        genotypes=genotypes,
        phenotypes=phenotypes,
        provenance=provenance,
        p_values=p_values,
        sds={"fitness": rows.numbers[sga_file.FITNESS_SD][kept]},
        crosses=crosses,
    )


def _measured(rows: Measurements, missing: str) -> Measurements:
    """Rows with a phenotype.

    Raises:
        DataError: a row has none, and such rows are to be refused.
    """
    measured: NDArray[np.bool_] = np.any([~np.isnan(values) for values in rows.phenotypes.values()], axis=0)
    lacking = int((~measured).sum())
    if missing == "refuse" and lacking:
        raise DataError(
            f"'{rows.provenance.source}': no phenotype is measured in a row",
            got=f"{rows.genotypes.describe(int(np.argmin(measured)))} (and {lacking - 1:,} more rows)",
            do="set `missing: drop` to leave such rows out",
        )
    return rows.keep(measured, rows_not_measured=lacking)


def _tally(rows: SgaRows, column: str) -> list[tuple[str, int]]:
    """Distinct cells of a column and how many rows have them."""
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
