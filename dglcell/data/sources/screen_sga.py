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
from dglcell.data.sources.text_table import deletes_twice
from dglcell.data.strains import Strains
from dglcell.errors import DataError, and_more, listing
from dglcell.files.atomic import DAMAGE
from dglcell.published.file import Found, PublishedFile, open_member

if TYPE_CHECKING:
    import pandas as pd

GZIP_MAGIC, ZIP_SUFFIX = b"\x1f\x8b", ".zip"


@dataclass(frozen=True)
class RawTable:
    """Describe a table of a publication.

    Attributes:
        file: the table itself, or an archive that holds it, with its copies.
        member: name of the table inside an archive, without folders.
        rows: number of its rows, without the header; None where unknown.
    """

    file: PublishedFile
    member: str = ""
    rows: int | None = None


@dataclass(frozen=True)
class FoundTable:
    """Locate a table that is here.

    Attributes:
        table: the table's description.
        found: the file, or the archive that holds it.
    """

    table: RawTable
    found: Found

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


@dataclass
class SgaRows:
    """Hold R rows of SGA tables.

    Attributes:
        labels: column of ``CODED`` → its distinct cells; one empty cell where the tables lack it.
        codes: column → [R] indices into its distinct cells.
        numbers: column of ``NUMBERS`` → [R] float32; NaN where the cell is empty.
        alleles: query strain → its allele names.
    """

    labels: dict[str, list[str]]
    codes: dict[str, NDArray[np.int32]]
    numbers: dict[str, NDArray[np.float32]]
    alleles: dict[str, str]


def read_sga(tables: Sequence[FoundTable]) -> SgaRows:
    """Read all rows of tables, one after the other.

    Args:
        tables: found, in the order wanted.

    Raises:
        DataError: a table is damaged, lacks a column, has a row of another width, a cell that is no number, or not as
            many rows as was published.
    """
    import pandas as pd

    index: dict[str, dict[str, int]] = {column: {} for column in CODED}
    alleles: dict[str, str] = {}
    chunks: list[dict[str, NDArray[Any]]] = []
    for found in tables:
        rows = 0
        try:
            for cells in _sheet(found) if found.is_sheet else _text(found):
                rows += len(cells)
                chunk: dict[str, NDArray[Any]] = {name: _numbers(found, cells[name]) for name in NUMBERS}
                for column in CODED:
                    codes, distinct = pd.factorize(cells.get(column, pd.Series("", cells.index)))
                    known = [index[column].setdefault(str(label), len(index[column])) for label in distinct]
                    chunk[column] = np.array(known, dtype=np.int32)[codes]
                chunks.append(chunk)
                alleles = dict(zip(*(cells[name].iloc[::-1] for name in (QUERY, ALLELES)), strict=True)) | alleles
        except (*DAMAGE, zipfile.BadZipFile) as error:
            raise DataError(
                f"'{found.name}' cannot be read to its end",
                got=str(error),
                expected="a text table in UTF-8 or a spreadsheet, plain, .gz or in a .zip archive",
                do="copy or download the file again",
            ) from error
        if found.table.rows not in (None, rows):
            raise DataError(
                f"'{found.name}' does not have the rows that were published: cut off, or another version",
                got=f"{rows:,} rows",
                expected=f"{found.table.rows:,} rows",
                do="download it again; to read a table of your own, use `data.source.name: csv`",
            )
    if not sum(len(chunk[QUERY]) for chunk in chunks):
        raise DataError("a table has a header but no rows", expected="one row per cross")
    whole = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in (*CODED, *NUMBERS)}
    labels = {column: list(names) for column, names in index.items()}
    return SgaRows(labels, {name: whole[name] for name in CODED}, {name: whole[name] for name in NUMBERS}, alleles)


def _columns_of(found: FoundTable, header: Sequence[str]) -> dict[int, str]:
    """Return position → column of each known column that a table has."""
    cells = [" ".join(cell.split()).lower() for cell in header]
    at = {column: next((cells.index(name) for name in names if name in cells), -1) for column, names in HEADERS.items()}
    missing = [HEADERS[column][0] for column, position in at.items() if position < 0 and column not in OPTIONAL]
    if missing:
        raise DataError(
            f"'{found.name}' lacks columns",
            got=listing(header, 20),
            expected="besides: " + listing(missing),
            do="use the table as it was published",
        )
    return {position: column for column, position in at.items() if position >= 0}


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
                if line.count(separator) != len(names) - 1:
                    raise DataError(
                        f"'{found.name}', line {number}: not as many cells as in the header",
                        got=line.count(separator) + 1,
                        expected=len(names),
                        do="download the file again; a last row like this means that it is cut off",
                    )
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
        raise DataError(
            f"'{found.name}' is no spreadsheet", got=str(error), do="copy or download the file again"
        ) from error
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
        raise DataError(
            f"'{found.name}'{line}: the {str(cells.name).replace('_', ' ')} is no number",
            got=f"'{cells[wrong].iloc[0]}'",
            do="download the file again",
        )
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
        raise DataError(
            f"strain '{name}' names no gene",
            expected="a systematic name, an underscore and the kind of strain, e.g. YBR188C_sn1898",
            do="mend the name",
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
    strains: Sequence[str], alleles: Mapping[str, str], index: dict[str, int]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Read the genes of distinct strains from their names; ``HO_LOCUS`` does not count in strains of two genes.

    Args:
        strains: T names.
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
        return ("tables", "deletions_only", *kind, *array)

    def read(self, tables: Sequence[FoundTable], config: LaboratoryConfig, provenance: Provenance) -> Strains:
        """Return the rows that the configuration asks for."""
        rows = read_sga(tables)
        index: dict[str, int] = {}
        query, query_deleted = strain_genes(rows.labels[QUERY], rows.alleles, index)
        array, array_deleted = strain_genes(rows.labels[ARRAY], {}, index)
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
        columns, provenance = _columns(rows, kept), replace(provenance, counts=counts)
        strains = Strains.from_matrix(tuple(index), genes, columns=columns, provenance=provenance)
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
    score, p_value = rows.numbers[SCORE][kept], rows.numbers[P_VALUE][kept]
    if TRIGENIC in rows.labels[KIND]:
        trigenic = rows.codes[KIND][kept] == rows.labels[KIND].index(TRIGENIC)
    else:
        trigenic = np.zeros(len(kept), dtype=bool)
    phenotypes, p_values = {}, {}
    for kind, chosen in ((TRIGENIC, trigenic), (DIGENIC, ~trigenic)):
        if chosen.any():
            phenotypes[PHENOTYPE[kind]] = np.where(chosen, score, np.float32(np.nan))
            p_values[PHENOTYPE[kind]] = np.where(chosen, p_value, np.float32(np.nan))
    phenotypes["fitness"] = rows.numbers[FITNESS][kept]
    # Crosses in different conditions are different experiments.
    crosses = np.zeros(len(kept), dtype=np.int64)
    for column in (QUERY, ARRAY, ARRAY_TYPE):
        crosses = crosses * len(rows.labels[column]) + rows.codes[column][kept]
    sds = {"fitness": rows.numbers[FITNESS_SD][kept]}
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
