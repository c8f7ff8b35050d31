"""Read screens published as tables of synthetic genetic array (SGA) crosses: query strain × array strain.

Costanzo et al. (2016) and Kuzmin et al. (2018, 2020) publish the same table in slightly different words. Strain names
become numbers as they are read, so that twenty million rows take less than a gigabyte.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from dglcell.data.columns import CROSS, Column, Provenance, columns_of
from dglcell.data.sources.config import DIGENIC, TRIGENIC, LaboratoryConfig
from dglcell.data.sources.replicates import genes_of, keep
from dglcell.data.strains import Strains
from dglcell.errors import DataError, and_more, listing
from dglcell.files.atomic import DAMAGE
from dglcell.published.file import Found, PublishedFile, open_member

if TYPE_CHECKING:
    import pandas as pd

GZIP_MAGIC, ZIP_SUFFIX = b"\x1f\x8b", ".zip"


@dataclass(frozen=True)
class RawTable:
    """Describe a table of a publication."""

    file: PublishedFile  #: the table itself, or an archive that holds it, with its copies
    member: str = ""  #: name of the table inside an archive, without folders
    rows: int | None = None  #: number of its rows, without the header; None where unknown


@dataclass(frozen=True)
class FoundTable:
    """Locate a table that is here."""

    table: RawTable  #: the table's description
    found: Found  #: the file, or the archive that holds it

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        return self.found.path

    @property
    def name(self) -> str:
        """Return what the table is called, with the archive it is in."""
        return f"{self.path.name}/{self.table.member}" if self.path.suffix == ZIP_SUFFIX else self.path.name

    @property
    def is_sheet(self) -> bool:
        """Return whether the table is a spreadsheet."""
        return PurePosixPath(self.name).suffix == ".xlsx"

    def open(self) -> AbstractContextManager[IO[bytes]]:
        """Open its bytes, unpacked.

        Raises:
            DataError: the archive is damaged or lacks the table.
        """
        if self.path.suffix == ZIP_SUFFIX:
            return open_member(self.path, self.table.member)
        with open(self.path, "rb") as file:
            packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        return cast(IO[bytes], gzip.open(self.path, "rb")) if packed else open(self.path, "rb")


CHUNK_ROWS = 200_000
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
OPTIONAL = (KIND, ARRAY_TYPE)


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

    alleles: dict[str, str] = {}
    chunks: list[dict[str, Any]] = []
    for found in tables:
        rows, do = 0, "copy or download the file again; to read a table of your own, use `data.source.name: csv`"
        try:
            for cells in _sheet(found) if found.is_sheet else _text(found):
                rows += len(cells)
                alleles = dict(zip(*(cells[name].iloc[::-1] for name in (QUERY, ALLELES)), strict=True)) | alleles
                coded = {name: cells.get(name, pd.Series("", cells.index)).astype("category") for name in CODED}
                chunks.append(coded | {name: _numbers(found, cells[name]) for name in NUMBERS})
        except (*DAMAGE, zipfile.BadZipFile) as error:
            raise DataError(f"'{found.name}' cannot be read to its end", got=str(error), do=do) from error
        if found.table.rows not in (None, rows):
            what = f"'{found.name}' does not have the rows that were published: cut off, or another version"
            raise DataError(what, got=f"{rows:,} rows", expected=f"{found.table.rows:,} rows", do=do)
    if not chunks:
        raise DataError("a table has a header but no rows", expected="one row per cross")
    whole = {name: union_categoricals([chunk[name] for chunk in chunks]) for name in CODED}
    return pd.DataFrame(whole | {name: np.concatenate([chunk[name] for chunk in chunks]) for name in NUMBERS}), alleles


def _columns_of(found: FoundTable, header: Sequence[str]) -> dict[int, str]:
    """Return position → column of each known column that a table has."""
    cells = [" ".join(cell.split()).lower() for cell in header]
    at = {column: next((cells.index(name) for name in names if name in cells), -1) for column, names in HEADERS.items()}
    if missing := [HEADERS[column][0] for column, place in at.items() if place < 0 and column not in OPTIONAL]:
        expected, do = f"besides: {listing(missing)}", "use the table as it was published"
        raise DataError(f"'{found.name}' lacks columns", got=listing(header, 20), expected=expected, do=do)
    return {place: column for column, place in at.items() if place >= 0}


def _text(found: FoundTable) -> Iterator[pd.DataFrame]:
    """Yield chunks of a text table, as text, under the line numbers of the file; blank lines do not count."""
    import pandas as pd

    with found.open() as file:
        lines = io.TextIOWrapper(file, encoding="utf-8-sig")
        header = next(lines, "").rstrip("\n")
        separator = "\t" if "\t" in header else ","
        names = header.split(separator)
        called, first = _columns_of(found, names), 2
        columns = [called.get(position, str(position)) for position in range(len(names))]
        while block := list(islice(lines, CHUNK_ROWS)):
            numbered = [(number, line) for number, line in enumerate(block, first) if line != "\n"]
            for number, line in numbered:
                if (width := line.count(separator) + 1) != len(names):
                    what = f"'{found.name}', line {number}: not as many cells as in the header"
                    do = "download the file again; a last row like this means that it is cut off"
                    raise DataError(what, got=width, expected=len(names), do=do)
            if numbered:
                text = io.StringIO("".join(line for _, line in numbered))
                form: dict[str, Any] = {"quoting": csv.QUOTE_NONE, "keep_default_na": False, "na_values": []}
                cells = pd.read_csv(text, sep=separator, names=columns, usecols=[*called.values()], dtype=str, **form)
                yield cells.set_axis([number for number, _ in numbered])
            first += len(block)


def _sheet(found: FoundTable) -> Iterator[pd.DataFrame]:
    """Yield chunks of the first sheet of a spreadsheet, as text; rows above the header are its title."""
    import pandas as pd
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        with found.open() as file:
            rows = CalamineWorkbook.from_filelike(file).get_sheet_by_index(0).iter_rows()
    except CalamineError as error:
        do = "copy or download the file again"
        raise DataError(f"'{found.name}' is no spreadsheet", got=str(error), do=do) from error
    texts = ([str(cell) for cell in row] for row in rows)
    header = next((row for row in texts if HEADERS[QUERY][0] in [cell.strip().lower() for cell in row]), [])
    called = _columns_of(found, header)
    filled = ([row[position] for position in called] for row in texts if any(row))
    while block := list(islice(filled, CHUNK_ROWS)):
        yield pd.DataFrame(block, columns=list(called.values()), dtype=str)


def _numbers(found: FoundTable, cells: pd.Series) -> NDArray[np.float32]:
    import pandas as pd

    known = cells.mask(cells.isin(NA_VALUES))
    numbers = pd.to_numeric(known, errors="coerce")
    wrong = numbers.isna() & known.notna()
    if wrong.any():
        line = "" if found.is_sheet else f", line {wrong.idxmax()}"
        what = f"'{found.name}'{line}: the {str(cells.name).replace('_', ' ')} is no number"
        raise DataError(what, got=f"'{cells[wrong].iloc[0]}'", do="download the file again")
    return numbers.to_numpy(dtype=np.float32)


# Strain names of synthetic genetic array (SGA) screens: which genes they mean, and which of these are deleted.
#
# A strain is called by the systematic name of its gene and what it is, e.g. ``YBR188C_sn1898``: ``sn`` and ``dma`` are
# deletions (query and array), ``tsq`` and ``tsa`` temperature-sensitive alleles, ``damp`` DAmP alleles, ``S``
# suppressor alleles. Queries of two genes are called by both, ``YAL015C+YOL043C_tm72``; which of them are deletions is
# told by their allele names, ``ntg1Δ+ygl081wΔ``. In controls the second one is ``hoΔ``.


DELETED = re.compile(r"(?:sn|dma)\d+")
DELTAS = ("Δ", "\N{INCREMENT}")
BOTH = "+"


def parse_strain(name: str, alleles: str) -> list[tuple[str, bool]]:
    """Return the systematic names of the genes of a strain, one or two, and whether each is deleted.

    Args:
        name: as in the table.
        alleles: the strain's allele names; used for strains of two genes only.

    Raises:
        DataError: the name has no gene, or not as many genes as alleles.
    """
    orfs, _, what = name.strip().rpartition("_")
    genes = (orfs or what).split(BOTH)
    if not all(genes):
        expected = "a systematic name, an underscore and the kind of strain, e.g. YBR188C_sn1898"
        raise DataError(f"strain '{name}' names no gene", expected=expected, do="mend the name")
    if len(genes) == 1:
        return [(genes[0], DELETED.fullmatch(what) is not None)]
    parts = alleles.strip().split(BOTH)
    if len(parts) != len(genes):
        what = f"strain '{name}' has not as many alleles as genes"
        raise DataError(what, got=f"'{alleles}'", expected="e.g. ntg1Δ+hoΔ")
    return [(gene, any(delta in part for delta in DELTAS)) for gene, part in zip(genes, parts, strict=True)]


# The HO locus carries the second marker of single-mutant control queries. Its deletion is neutral, so that such a
# strain stands for the mutant of its other genes (Kuzmin et al. 2018).
HO_LOCUS = "YDL227C"


def strain_genes(
    strains: Sequence[str], alleles: Mapping[str, str], index: dict[str, int]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Read the genes of T distinct strains from their names; ``HO_LOCUS`` does not count in strains of two genes.

    Args:
        strains: their names.
        alleles: strain → its allele names.
        index: gene name → index; genes that are not in it yet are added.

    Returns:
        [T, k] indices of genes, −1 where a strain has fewer, and [T] whether all genes that count are deleted.

    Raises:
        DataError: a name cannot be read.
    """
    parsed = [parse_strain(name, alleles.get(name, "")) for name in strains]
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
        rows, counts = self._select(rows, config)
        index: dict[str, int] = {}
        query, query_deleted = strain_genes(rows[QUERY].cat.categories.tolist(), alleles, index)
        array, array_deleted = strain_genes(rows[ARRAY].cat.categories.tolist(), {}, index)
        deleted = query_deleted[rows[QUERY].cat.codes] & array_deleted[rows[ARRAY].cat.codes]
        if config.deletions_only:
            counts["rows_with_other_alleles"] = int((~deleted).sum())
            rows = rows[deleted]
        else:
            counts["rows_of_deletions_only"] = int(deleted.sum())
        genes = np.hstack([query[rows[QUERY].cat.codes], array[rows[ARRAY].cat.codes]])
        ascending = np.sort(genes, axis=1)
        twice = np.any((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0), axis=1)
        counts["rows_with_a_gene_twice"] = int(twice.sum())
        columns, provenance = _columns(rows[~twice]), replace(provenance, counts=counts)
        strains = Strains.from_matrix(tuple(index), genes[~twice], columns=columns, provenance=provenance)
        return _measured(strains, config.missing)

    def _select(self, rows: pd.DataFrame, config: LaboratoryConfig) -> tuple[pd.DataFrame, dict[str, int]]:
        counts = {"rows": len(rows)}
        for column, is_stated in ((KIND, self.states_kind), (ARRAY_TYPE, self.states_array)):
            if is_stated:
                tally = rows[column].value_counts(sort=False)
                counts |= {f"rows_{label or 'of_no_kind'}": int(number) for label, number in tally.items()}
        stray = set(rows[KIND].cat.categories) - {DIGENIC, TRIGENIC}
        if self.states_kind and stray:
            what, got = "a row is neither digenic nor trigenic", listing(map(repr, sorted(stray)))
            raise DataError(what, got=got, do="use the table as it was published")
        of_array, temperature = rows[ARRAY_TYPE].str, str(config.temperature)
        for is_asked, what, wanted in (
            (config.kind, "rows_of_another_kind", rows[KIND] == config.kind),
            (config.temperature, "rows_of_another_array", of_array.endswith(temperature)),
        ):
            if is_asked:
                counts[what] = int((~wanted[rows.index]).sum())
                rows = rows[wanted[rows.index]]
        return rows, counts


def _columns(rows: pd.DataFrame) -> dict[Column, NDArray[Any]]:
    trigenic = (rows[KIND] == TRIGENIC).to_numpy()
    phenotypes, p_values = {}, {}
    for kind, chosen in ((TRIGENIC, trigenic), (DIGENIC, ~trigenic)):
        if chosen.any():
            phenotypes[PHENOTYPE[kind]] = rows[SCORE].where(chosen).to_numpy()
            p_values[PHENOTYPE[kind]] = rows[P_VALUE].where(chosen).to_numpy()
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
