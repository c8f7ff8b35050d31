"""Read screens published as tables of synthetic genetic array (SGA) crosses: query strain × array strain.

Costanzo et al. (2016) and Kuzmin et al. (2018, 2020) publish the same table in slightly different words. Strain names
become numbers as they are read, so that twenty million rows take less than a gigabyte.
"""

from __future__ import annotations

import gzip
import io
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.columns import CROSS, Column, Provenance, columns_of
from dglcell.data.sources.config import DIGENIC, TRIGENIC, LaboratoryConfig
from dglcell.data.sources.replicates import genes_of, keep
from dglcell.data.strains import Strains
from dglcell.data.table import uncollected
from dglcell.errors import DataError, and_more, listing
from dglcell.files.atomic import DAMAGE
from dglcell.published.file import open_member

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class FoundTable:
    """Locate a table of a publication."""

    path: Path  #: of the file, or of the archive that holds it
    member: str = ""  #: name of the table inside an archive, without folders
    expected: int | None = None  #: number of its rows, without the header; None where unknown

    @property
    def name(self) -> str:
        """Return what the table is called, with the archive it is in."""
        return f"{self.path.name}/{self.member}" if self.path.suffix == ".zip" else self.path.name

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield line numbers and cells of the rows that are not blank, of a text or of the first sheet."""
        from python_calamine import CalamineWorkbook

        openers: dict[str, Any] = {".zip": partial(open_member, name=self.member), ".gz": gzip.open}
        with openers.get(self.path.suffix, partial(open, mode="rb"))(self.path) as file:
            if self.name.endswith(".xlsx"):
                sheet = CalamineWorkbook.from_filelike(file).get_sheet_by_index(0)
                rows = ([str(cell) for cell in row] for row in sheet.iter_rows())
            else:
                lines = io.TextIOWrapper(file, encoding="utf-8-sig")
                first = next(lines, "")
                separator = "\t" if "\t" in first else ","
                rows = (line.rstrip("\n").split(separator) for line in chain([first], lines))
            yield from ((number, row) for number, row in enumerate(rows, start=1) if any(row))


CHUNK_ROWS, MOST_ABOVE = 100_000, 20
"""Rows that are read together, and most rows up to the header, above which a title may stand."""

NA_VALUES = ["", "NaN", "nan", "NA"]
QUERY, ALLELES, ARRAY, KIND, ARRAY_TYPE = "query", "alleles", "array", "kind", "array_type"
SCORE, P_VALUE, FITNESS, FITNESS_SD = "score", "p_value", "fitness", "fitness_sd"
CODED, NUMBERS = (QUERY, ARRAY, KIND, ARRAY_TYPE), (SCORE, P_VALUE, FITNESS, FITNESS_SD)
_COMBINED = ("combined mutant fitness", "double/triple mutant fitness", "double mutant fitness")
HEADERS = {
    QUERY: ("query strain id",),
    ALLELES: ("query allele name",),
    ARRAY: ("array strain id",),
    KIND: ("combined mutant type",),
    ARRAY_TYPE: ("arraytype/temp",),
    SCORE: ("adjusted genetic interaction score (epsilon or tau)", "genetic interaction score (ε)"),
    P_VALUE: ("p-value",),
    FITNESS: _COMBINED,
    FITNESS_SD: tuple(f"{name} standard deviation" for name in _COMBINED),
}
"""This maps each column to its possible headers, in lower case."""


@uncollected()
def read_sga(tables: Sequence[FoundTable]) -> tuple[pd.DataFrame, dict[str, str]]:
    """Read all rows of tables, one after the other.

    Returns:
        a row for each cross, with ``CODED`` columns of categories, empty where the tables lack them, and ``NUMBERS`` in
        float32, NaN where the cell is empty; and query strain → its allele names.

    Raises:
        DataError: a table is damaged, lacks a column, has a row of another width, a cell that is no number, or not as
            many rows as was published.
    """
    import pandas as pd
    from pandas.api.types import union_categoricals
    from python_calamine import CalamineError

    alleles: dict[str, str] = {}
    chunks: list[dict[str, Any]] = []
    for found in tables:
        rows, do = 0, "copy or download the file again; to read a table of your own, use `data.source.name: csv`"
        try:
            for cells in _chunks(found):
                rows += len(cells)
                alleles = dict(zip(*(cells[name].iloc[::-1] for name in (QUERY, ALLELES)), strict=True)) | alleles
                coded = {name: cells.get(name, pd.Series("", cells.index)).astype("category") for name in CODED}
                chunks.append(coded | {name: _numbers(found, cells[name]) for name in NUMBERS})
        except (*DAMAGE, zipfile.BadZipFile, CalamineError) as error:
            raise DataError(f"'{found.name}' cannot be read to its end", got=str(error), do=do) from error
        if found.expected not in (None, rows):
            what = f"'{found.name}' does not have the rows that were published: cut off, or another version"
            raise DataError(what, got=f"{rows:,} rows", expected=f"{found.expected:,} rows", do=do)
    if not chunks:
        raise DataError("a table has a header but no rows", expected="one row per cross")
    whole = {name: union_categoricals([chunk[name] for chunk in chunks]) for name in CODED}
    return pd.DataFrame(whole | {name: np.concatenate([chunk[name] for chunk in chunks]) for name in NUMBERS}), alleles


def _chunks(found: FoundTable) -> Iterator[pd.DataFrame]:
    """Yield parts of the rows below the header as text, with known columns, under their line numbers."""
    import pandas as pd

    rows = found.rows()
    above = list(islice(rows, MOST_ABOVE))
    headers = [[" ".join(cell.split()).lower() for cell in row] for _, row in above] or [[]]
    place = next((i for i, row in enumerate(headers) if HEADERS[QUERY][0] in row), 0)
    header, do = headers[place], "use the table as it was published; a last row like this means that it is cut off"
    at = {column: header.index(name) for column, names in HEADERS.items() for name in names if name in header}
    if lacking := [HEADERS[column][0] for column in HEADERS if column not in (*at, KIND, ARRAY_TYPE)]:
        got, expected = listing(header, 20), f"besides: {listing(lacking)}"
        raise DataError(f"'{found.name}' lacks columns", got=got, expected=expected, do=do)
    body = chain(above[place + 1 :], rows)
    while block := list(islice(body, CHUNK_ROWS)):
        if bad := next(((number, len(row)) for number, row in block if len(row) != len(header)), None):
            what = f"'{found.name}', line {bad[0]}: not as many cells as in the header"
            raise DataError(what, got=bad[1], expected=len(header), do=do)
        columns = list(zip(*(row for _, row in block), strict=True))
        yield pd.DataFrame({name: columns[place] for name, place in at.items()}, [number for number, _ in block])


def _numbers(found: FoundTable, cells: pd.Series) -> NDArray[np.float32]:
    import pandas as pd

    known = cells.mask(cells.isin(NA_VALUES))
    numbers = pd.to_numeric(known, errors="coerce")
    wrong = numbers.isna() & known.notna()
    if wrong.any():
        what = f"'{found.name}', line {wrong.idxmax()}: the {str(cells.name).replace('_', ' ')} is no number"
        raise DataError(what, got=f"'{cells[wrong].iloc[0]}'", do="download the file again")
    return numbers.to_numpy(dtype=np.float32)


# Strain names of synthetic genetic array (SGA) screens: which genes they mean, and which of these are deleted.
#
# A strain is called by the systematic name of its gene and what it is, e.g. ``YBR188C_sn1898``: ``sn`` and ``dma`` are
# deletions (query and array), ``tsq`` and ``tsa`` temperature-sensitive alleles, ``damp`` DAmP alleles, ``S``
# suppressor alleles. Queries of two genes are called by both, ``YAL015C+YOL043C_tm72``; which of them are deletions is
# told by their allele names, ``ntg1Δ+ygl081wΔ``. In controls the second one is ``hoΔ``.


DELETED = re.compile(r"(?:sn|dma)\d+")
DELTAS = re.compile("[Δ\N{INCREMENT}]")

HO_LOCUS = "YDL227C"
"""The HO locus carries the second marker of single-mutant control queries. Its deletion is neutral, so that such a
strain stands for the mutant of its other genes (Kuzmin et al. 2018)."""


def parse_strain(name: str, alleles: str = "") -> list[tuple[str, bool]]:
    """Return the genes of a strain that count, by systematic name, and whether each is deleted.

    ``HO_LOCUS`` does not count in strains of two genes, whose allele names have to be given.

    Raises:
        DataError: the name has no gene, or not as many genes as alleles.
    """
    orfs, _, what = name.strip().rpartition("_")
    genes, parts = (orfs or what).split("+"), alleles.strip().split("+")
    if not all(genes):
        expected = "a systematic name, an underscore and the kind of strain, e.g. YBR188C_sn1898"
        raise DataError(f"strain '{name}' names no gene", expected=expected, do="mend the name")
    if len(genes) == 1:
        return [(genes[0], DELETED.fullmatch(what) is not None)]
    if len(parts) != len(genes):
        what = f"strain '{name}' has not as many alleles as genes"
        raise DataError(what, got=f"'{alleles}'", expected="e.g. ntg1Δ+hoΔ")
    return [
        (gene, DELTAS.search(part) is not None) for gene, part in zip(genes, parts, strict=True) if gene != HO_LOCUS
    ]


def strain_genes(
    strains: pd.Series, alleles: Mapping[str, str], index: dict[str, int]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the genes of a column of strains [R, k], −1 where a strain has fewer, and whether all are deleted, [R].

    Args:
        strains: names of strains, as categories.
        alleles: strain → its allele names.
        index: gene name → index; genes that are not in it yet are added.
    """
    parsed = [parse_strain(name, alleles.get(name, "")) for name in strains.cat.categories]
    most = max(map(len, parsed))
    numbers = [[index.setdefault(gene, len(index)) for gene, _ in strain] for strain in parsed]
    genes = np.array([row + [-1] * (most - len(row)) for row in numbers], dtype=np.int32)
    deleted = np.array([all(gone for _, gone in strain) for strain in parsed])
    return genes[strains.cat.codes], deleted[strains.cat.codes]


@dataclass(frozen=True)
class SgaScreen:
    """Read tables of SGA crosses.

    Digenic rows give ``digenic_interaction`` (epsilon), trigenic rows ``trigenic_interaction`` (tau), both with their
    p-value; all give the ``fitness`` of the combined mutant with its standard deviation.
    """

    states_kind: bool = False  #: a column tells digenic from trigenic rows; otherwise all are digenic
    states_array: bool = False  #: a column has the type and temperature of the array

    @property
    def options(self) -> tuple[str, ...]:
        """Return the keys of the laboratory section that apply."""
        stated = {"kind": self.states_kind, "temperature": self.states_array}
        return ("tables", "deletions_only", *(key for key, is_stated in stated.items() if is_stated))

    def read(self, tables: Sequence[FoundTable], config: LaboratoryConfig, provenance: Provenance) -> Strains:
        """Return the rows that the configuration asks for."""
        rows, alleles = read_sga(tables)
        counts = self._counts(rows)
        index: dict[str, int] = {}
        query, query_deleted = strain_genes(rows[QUERY], alleles, index)
        array, array_deleted = strain_genes(rows[ARRAY], {}, index)
        genes, deletes = np.hstack([query, array]), query_deleted & array_deleted
        chosen = np.ones(len(rows), dtype=bool)
        for is_asked, what, wanted in (
            (config.kind, "rows_of_another_kind", rows[KIND] == config.kind),
            (config.temperature, "rows_of_another_array", rows[ARRAY_TYPE].str.endswith(str(config.temperature))),
            (config.deletions_only, "rows_with_other_alleles", deletes),
        ):
            if is_asked:
                counts[what] = int((chosen & ~np.asarray(wanted)).sum())
                chosen &= np.asarray(wanted)
        if not config.deletions_only:
            counts["rows_of_deletions_only"] = int((chosen & deletes).sum())
        rows, genes = rows[chosen], genes[chosen]
        ascending = np.sort(genes, axis=1)
        twice = np.any((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0), axis=1)
        counts["rows_with_a_gene_twice"] = int(twice.sum())
        columns, provenance = _columns(rows[~twice]), replace(provenance, counts=counts)
        strains = Strains.from_matrix(tuple(index), genes[~twice], columns=columns, provenance=provenance)
        return _measured(strains, config.missing)

    def _counts(self, rows: pd.DataFrame) -> dict[str, int]:
        counts = {"rows": len(rows)}
        for column, is_stated in ((KIND, self.states_kind), (ARRAY_TYPE, self.states_array)):
            if is_stated:
                tally = rows[column].value_counts(sort=False)
                counts |= {f"rows_{label or 'of_no_kind'}": int(number) for label, number in tally.items()}
        stray = set(rows[KIND].cat.categories) - {DIGENIC, TRIGENIC}
        if self.states_kind and stray:
            what, got = "a row is neither digenic nor trigenic", listing(map(repr, sorted(stray)))
            raise DataError(what, got=got, do="use the table as it was published")
        return counts


def _columns(rows: pd.DataFrame) -> dict[Column, NDArray[Any]]:
    trigenic = (rows[KIND] == TRIGENIC).to_numpy()
    phenotypes, p_values = {}, {}
    for kind, chosen in ((TRIGENIC, trigenic), (DIGENIC, ~trigenic)):
        if chosen.any():
            phenotypes[f"{kind}_interaction"] = rows[SCORE].where(chosen).to_numpy()
            p_values[f"{kind}_interaction"] = rows[P_VALUE].where(chosen).to_numpy()
    phenotypes["fitness"] = rows[FITNESS].to_numpy()
    # Crosses with different covariates are different experiments.
    crosses = np.zeros(len(rows), dtype=np.int64)
    for column in (QUERY, ARRAY, ARRAY_TYPE):
        crosses = crosses * len(rows[column].cat.categories) + rows[column].cat.codes.to_numpy()
    sds = {"fitness": rows[FITNESS_SD].to_numpy()}
    return {**columns_of(phenotype=phenotypes, p_value=p_values, sd=sds), Column(CROSS): crosses}


def _measured(rows: Strains, missing: str) -> Strains:
    """Return the rows with a phenotype."""
    measured: NDArray[np.bool_] = np.any([~np.isnan(values) for values in rows.phenotypes.values()], axis=0)
    lacking = int((~measured).sum())
    if missing == "refuse" and lacking:
        got = genes_of(rows, int(np.argmin(measured))) + and_more(lacking - 1, "row")
        do = "set `missing: drop` to leave such rows out"
        raise DataError(f"'{rows.provenance.source}': no phenotype is measured in a row", got=got, do=do)
    return keep(rows, measured, rows_not_measured=lacking)
