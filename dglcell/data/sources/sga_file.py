"""Read tables of synthetic genetic array (SGA) screens in chunks, from text or a spreadsheet, packed or not.

Costanzo et al. (2016) and Kuzmin et al. (2018, 2020) publish the same table in slightly different words. Strain names
become numbers as they are read, so that twenty million rows take less than a gigabyte.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.screen_tables import FoundTable
from dglcell.errors import DataError, listing
from dglcell.files.atomic import DAMAGE

if TYPE_CHECKING:
    import pandas as pd


# A stream of bytes that counts lines and separators as they pass, so that short rows do not go unnoticed.


NEWLINE = b"\n"


class CountingStream(io.RawIOBase):
    """Pass on the bytes that are read, and count separators and lines.

    Args:
        source: where the bytes come from.
        separator: the byte that separates cells.

    Attributes:
        separators: number of separators that have passed.
        lines: number of lines that have begun, the last one with or without an end.
    """

    def __init__(self, source: IO[bytes], separator: bytes) -> None:
        super().__init__()
        self._source = source
        self._separator = separator
        self._ended = True
        self.separators = 0
        self.lines = 0

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes, all where it is −1."""
        block = self._source.read(size)
        if block:
            self.separators += block.count(self._separator)
            # A line begins with the first byte after the end of another.
            self.lines += block.count(NEWLINE) + self._ended - block.endswith(NEWLINE)
            self._ended = block.endswith(NEWLINE)
        return block


CHUNK_ROWS = 200_000
NA_VALUES = ["", "NaN", "nan", "NA"]
QUERY, ALLELES, ARRAY, KIND, ARRAY_TYPE = "query", "alleles", "array", "kind", "array_type"
SCORE, P_VALUE, FITNESS, FITNESS_SD = "score", "p_value", "fitness", "fitness_sd"
CODED, NUMBERS = (QUERY, ARRAY, KIND, ARRAY_TYPE), (SCORE, P_VALUE, FITNESS, FITNESS_SD)
TEXT = (*CODED, ALLELES)
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
    collected = _Collected()
    for found in tables:
        before = collected.rows
        try:
            for chunk in _sheet(found) if found.is_sheet else _text(found):
                collected.add(chunk)
        except (*DAMAGE, zipfile.BadZipFile) as error:
            raise DataError(
                f"'{found.name}' cannot be read to its end",
                got=str(error),
                expected="a text table in UTF-8 or a spreadsheet, plain, .gz or in a .zip archive",
                do="copy or download the file again",
            ) from error
        rows = collected.rows - before
        if found.table.rows not in (None, rows):
            raise DataError(
                f"'{found.name}' does not have the rows that were published: cut off, or another version",
                got=f"{rows:,} rows",
                expected=f"{found.table.rows:,} rows",
                do="download it again; to read a table of your own, use `data.source.name: csv`",
            )
    return collected.finish()


@dataclass
class _Collected:
    """Hold the chunks read so far, with strain names as numbers."""

    rows: int = 0
    index: dict[str, dict[str, int]] = field(default_factory=lambda: {column: {} for column in CODED})
    codes: dict[str, list[NDArray[np.int32]]] = field(default_factory=lambda: {column: [] for column in CODED})
    numbers: dict[str, list[NDArray[np.float32]]] = field(default_factory=lambda: {name: [] for name in NUMBERS})
    alleles: dict[str, str] = field(default_factory=dict)

    def add(self, chunk: pd.DataFrame) -> None:
        """Take in the next rows: columns of ``TEXT`` as categories, of ``NUMBERS`` as float32."""
        self.rows += len(chunk)
        for column in CODED:
            index = self.index[column]
            if column in chunk:
                cells = chunk[column].cat
                known = np.array([index.setdefault(str(name), len(index)) for name in cells.categories], dtype=np.int32)
                codes = known[cells.codes.to_numpy()]
            else:
                codes = np.full(len(chunk), index.setdefault("", len(index)), dtype=np.int32)
            self.codes[column].append(codes)
        for name in NUMBERS:
            self.numbers[name].append(chunk[name].to_numpy(dtype=np.float32))
        queries = chunk[QUERY].cat
        present, first = np.unique(queries.codes.to_numpy(), return_index=True)
        names = chunk[ALLELES].iloc[first]
        for strain, alleles in zip(queries.categories[present], names, strict=True):
            self.alleles.setdefault(str(strain), str(alleles))

    def finish(self) -> SgaRows:
        """Return the rows as whole columns.

        Raises:
            DataError: there are none.
        """
        if not self.rows:
            raise DataError("a table has a header but no rows", expected="one row per cross")
        codes = {column: np.concatenate(parts) for column, parts in self.codes.items()}
        numbers = {name: np.concatenate(parts) for name, parts in self.numbers.items()}
        return SgaRows({column: list(names) for column, names in self.index.items()}, codes, numbers, self.alleles)


def _columns(found: FoundTable, header: Sequence[str]) -> dict[str, int]:
    """Return the position of each known column that a table has."""
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
    return {column: position for column, position in at.items() if position >= 0}


def _text(found: FoundTable) -> Iterator[pd.DataFrame]:
    """Yield chunks of a text table."""
    import pandas as pd

    with found.open() as file:
        header = file.readline().decode("utf-8-sig").rstrip("\r\n")
    separator = "\t" if "\t" in header else ","
    names = header.split(separator)
    at = _columns(found, names)
    called = {position: column for column, position in at.items()}
    with found.open() as file:
        stream = CountingStream(file, separator.encode())
        try:
            yield from pd.read_csv(
                cast(IO[bytes], stream),
                sep=separator,
                header=0,
                names=[called.get(position, str(position)) for position in range(len(names))],
                index_col=False,
                usecols=list(at),
                dtype={column: "category" if column in TEXT else "float32" for column in at},
                keep_default_na=False,
                na_values={column: NA_VALUES for column in NUMBERS},
                quoting=csv.QUOTE_NONE,
                chunksize=CHUNK_ROWS,
            )
        except (ValueError, pd.errors.ParserError) as error:
            if isinstance(error, UnicodeDecodeError):
                raise
            _explain(found, names, at, separator)
            raise DataError(
                f"'{found.name}' is no table",
                got=str(error).strip(),
                expected=f"a text table with the columns {listing(names)}",
                do="`dglcell data fetch` says whether the file is the published one",
            ) from error
    if stream.separators != stream.lines * (len(names) - 1):
        _explain(found, names, at, separator)


def _explain(found: FoundTable, names: Sequence[str], at: dict[str, int], separator: str) -> None:
    """Find the first line that cannot be read and raise an error that names it; blank lines do not count."""
    with found.open() as file:
        for number, line in enumerate(file, start=1):
            cells = line.decode("utf-8").rstrip("\r\n").split(separator)
            if number == 1 or cells == [""]:
                continue
            if len(cells) != len(names):
                raise DataError(
                    f"'{found.name}', line {number}: not as many cells as in the header",
                    got=len(cells),
                    expected=len(names),
                    do="download the file again; a last row like this means that it is cut off",
                )
            for column in NUMBERS:
                if cells[at[column]] not in NA_VALUES and not _is_number(cells[at[column]]):
                    raise DataError(
                        f"'{found.name}', line {number}: column '{names[at[column]]}' does not hold a number",
                        got=f"'{cells[at[column]]}'",
                        do="download the file again",
                    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _sheet(found: FoundTable) -> Iterator[pd.DataFrame]:
    """Yield chunks of the first sheet of a spreadsheet; rows above the header are its title."""
    import pandas as pd
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        with found.open() as file:
            rows = CalamineWorkbook.from_filelike(file).get_sheet_by_index(0).iter_rows()
    except CalamineError as error:
        raise DataError(
            f"'{found.name}' is no spreadsheet", got=str(error), do="copy or download the file again"
        ) from error
    header: list[str] = []
    for row in rows:
        header = [str(cell) for cell in row]
        if HEADERS[QUERY][0] in [cell.strip().lower() for cell in header]:
            break
    at = _columns(found, header)

    def frame(block: list[list[object]]) -> pd.DataFrame:
        columns = {column: [row[position] for row in block] for column, position in at.items()}
        text = {name: pd.Categorical([str(cell) for cell in columns[name]]) for name in TEXT if name in columns}
        numbers = {name: _numbers(found, header[at[name]], columns[name]) for name in NUMBERS}
        return pd.DataFrame({**text, **numbers})

    block: list[list[object]] = []
    for row in rows:
        if any(cell != "" for cell in row):
            block.append(row)
        if len(block) == CHUNK_ROWS:
            yield frame(block)
            block = []
    if block:
        yield frame(block)


def _numbers(found: FoundTable, name: str, cells: Sequence[Any]) -> NDArray[np.float32]:
    numbers = np.empty(len(cells), dtype=np.float32)
    for i, cell in enumerate(cells):
        try:
            numbers[i] = np.nan if cell in NA_VALUES else float(cell)
        except (ValueError, TypeError):
            raise DataError(
                f"'{found.name}': column '{name}' does not hold a number", got=f"'{cell}'", do="download the file again"
            ) from None
    return numbers
