"""Read the file of a table whole and strictly: text, plain or packed, a spreadsheet, or Parquet."""

from __future__ import annotations

import csv
import functools
import io
import os
import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from dglcell.data.table import SHOWN_LINES, Rows, uncollected, written_as
from dglcell.errors import DataError, and_more, listing, shorten
from dglcell.files.atomic import CONTROL, DAMAGE, MOST_COLUMNS, import_pyarrow, read_text
from dglcell.files.untrusted import BOMB_BYTES

SPREADSHEETS = (".xlsx", ".xls", ".ods", ".xlsb")

MOST_ABOVE = 20
"""The first lines, one of which has the header."""

Numbered = list[tuple[int, list[str]]]
"""Line number and cells of rows."""


@uncollected()
def read_rows(path: Path, *, keep_blank: bool = False) -> Rows:
    """Read a table: a spreadsheet's first sheet or Parquet (told by the name), or text, plain or gzipped.

    Text is in UTF-8 or UTF-16. Its separator is the most frequent one of comma, tab and semicolon in the header. Above
    the header there may be a title. Rows of a Parquet file have numbers from 2, as if below a header.

    Args:
        path: the file.
        keep_blank: whether lines of separators alone are rows.
    """
    import pandas as pd

    if not os.path.isfile(path):
        raise DataError(f"'{path}' not found", expected="a table of strains: CSV, TSV, Excel or Parquet")
    kind = path.suffix.lower()
    rows = _sheet(path) if kind in SPREADSHEETS else _parquet(path) if kind == ".parquet" else _text_rows(path)
    if not rows:
        raise DataError(f"'{path.name}' is empty", expected="a row of column names, then one row per strain")
    if kind != ".parquet":
        rows = rows[_header(rows, is_sheet=kind in SPREADSHEETS) :]
    header = [" ".join(name.split()) or f"Unnamed: {number}" for number, name in enumerate(rows[0][1])]
    where, alone = f"'{path.name}', line {rows[0][0]}", len(header) == 1
    if len(header) > MOST_COLUMNS:
        expected, do = f"{MOST_COLUMNS:,} or fewer", "keep those of genes and phenotypes"
        raise DataError(f"{where}: too many columns", got=f"{len(header):,}", expected=expected, do=do)
    if twice := [name for name, times in Counter(header).items() if times > 1]:
        raise DataError(f"{where}: two columns are called '{twice[0]}'", do="give every column a name of its own")
    body = [
        (number, row)
        for number, row in rows[1:]
        if (keep_blank and (alone or len(row) > 1)) or any(cell.strip() for cell in row)
    ]
    if not body:
        raise DataError(f"'{path.name}' has a header but no rows", got=listing(header), expected="one row per strain")
    if bad := [(number, len(row)) for number, row in body if len(row) != len(header)]:
        where = f"'{path.name}', line{'s' if len(bad) > 1 else ''} {listing((n for n, _ in bad), SHOWN_LINES)}"
        do = "mend the row; a last row like this means that the file is cut off"
        raise DataError(f"{where}: not as many cells as in the header", got=bad[0][1], expected=len(header), do=do)
    lines = np.array([number for number, _ in body], dtype=np.int64)
    return Rows(path.name, pd.DataFrame([row for _, row in body], columns=header, dtype=object), lines)


def _header(rows: Numbered, *, is_sheet: bool) -> int:
    """Return the position of the header: the first row with several names, if only titles stand above it."""
    for place, (_, row) in enumerate(rows[:MOST_ABOVE]):
        filled = [cell.strip() for cell in row if cell.strip()]
        if len(filled) > 1:
            numbers = (re.fullmatch(r"[+-]?[\d.,]+(e[+-]?\d+)?", text, re.IGNORECASE) for text in filled)
            return place if not all(numbers) else 0
        if filled and not (is_sheet or _is_title(filled[0])):
            break
    return 0


def _is_title(text: str) -> bool:
    return text.startswith("#") or len(text.split()) > 2


def _text_rows(path: Path) -> Numbered:
    """Return the rows of a text. A cell may have line breaks, but none that would be rows, because it may hide rows."""
    try:
        text = read_text(path)
    except DAMAGE as error:
        expected = "a text table in UTF-8 or UTF-16, plain or gzipped"
        do = "copy or download the file again; save a spreadsheet as CSV in UTF-8"
        raise DataError(f"'{path.name}' cannot be read to its end", got=str(error), expected=expected, do=do) from error
    text = text if "\n" in text else text.replace("\r", "\n")  # lines of old systems
    if control := CONTROL.search(text):
        line = text.count("\n", 0, control.start()) + 1
        got = ascii(text[max(0, control.start() - 20) : control.end() + 20])
        expected = "text in lines that end with a line feed"
        raise DataError(f"'{path.name}', line {line}: a control character", got=got, expected=expected)
    above = text.split("\n", MOST_ABOVE)[:MOST_ABOVE]
    header = next((one for one in above if re.search(r"[,;\t]", one) or (one.strip() and not _is_title(one))), above[0])
    separator = max(",\t;", key=lambda s: (len(re.findall(f"{s}(?! )", header)), header.count(s)))  # not in "µ, 1/h"
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows, number = Numbered(), 1
    try:
        for row in reader:
            if rows and reader.line_num > number:
                within = (part for cell in row for part in cell.split("\n")[1:])
                if any(part.count(separator) >= len(row) - 1 for part in within):
                    raise csv.Error("unexpected end of data")
            if row:
                rows.append((number, row))
            number = reader.line_num + 1
    except csv.Error as error:
        is_open = "unexpected end" in str(error)
        what = "a quotation mark is not closed" if is_open else "it cannot be read as cells"
        got = shorten(text.split("\n", number)[number - 1], 200) if is_open else str(error)
        do = "see whether quotation marks are closed and one separator is used throughout"
        raise DataError(f"'{path.name}', line {number}: {what}", got=got, do=do) from error
    return rows


def _parquet(path: Path) -> Numbered:
    pa, pq = import_pyarrow()
    try:
        table = pq.read_table(path)
        columns = [column.cast(pa.string()).fill_null("").to_pylist() for column in table.columns]
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        what = f"'{path.name}' is no whole Parquet file, or a column of it cannot be written as text"
        got = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(what, got=got, do="leave columns out that are no UTF-8 texts and numbers") from error
    rows = list(enumerate([table.column_names, *map(list, zip(*columns, strict=True))], start=1))
    if bad := next((number for number, row in rows if CONTROL.search("".join(row))), None):
        raise DataError(f"'{path.name}', line {bad}: a control character", do="mend or remove the row")
    return rows


LOST = re.compile(
    r"[\W_]*(percent|pct|gene|target|crispri)?[\W_]*(knock[ _-]?down|kd|repression|inhibition|silencing)([\W_].*)?",
    re.IGNORECASE,
)
"""Columns of these names say how much of a gene is lost."""


def refuse_lost(file: str, column: str) -> None:
    """Refuse a column that says how much of a gene is lost, which is the strain and no phenotype of it."""
    if LOST.fullmatch(column):
        raise DataError(
            f"'{file}', line 1: column '{column}' says how much of a gene is lost, and is no phenotype",
            expected="what is left of each gene, from 0 (deleted) to 1 (as in the wild type)",
            do="write what is left, e.g. 0.3 for a knockdown of 70 %, into a column `activities` or activity_1, …; "
            "if it is something else, give it another name",
        )


# Spreadsheets.


MOST_ROWS, MOST_CELLS = 1 << 20, 20_000_000
"""Most cells of a sheet; they are counted from the first to the last that is filled, and take memory each."""

SAVE = "save the table as .xlsx or as CSV in UTF-8"


def _sheet(path: Path) -> Numbered:
    """Return the rows of the first sheet that are not blank, with numbers as Python writes them."""
    from python_calamine import CalamineError, CalamineWorkbook

    content, size = path.read_bytes(), 0
    broken = (zipfile.BadZipFile, NotImplementedError, ValueError, LookupError, RuntimeError)
    with suppress(*broken), zipfile.ZipFile(io.BytesIO(content)) as parts:  # the reader says what else it is
        size = sum(part.file_size for part in parts.infolist())
    if size > BOMB_BYTES:
        raise DataError(f"'{path.name}' is no spreadsheet", got=f"its parts unpack to {size:,} bytes", do=SAVE)
    try:
        faults = [*_faults(path.name, content)] if path.suffix.lower() == ".xlsx" else []
        book = CalamineWorkbook.from_filelike(io.BytesIO(content))
        cells = [list(map(written_as, row)) for row in book.get_sheet_by_index(0).to_python(skip_empty_area=False)]
    except BaseException as error:
        # What the reader cannot bear ends as a panic, which is no `Exception`.
        known = (*DAMAGE, *broken, CalamineError, ElementTree.ParseError)
        if isinstance(error, DataError) or not (isinstance(error, known) or type(error).__name__ == "PanicException"):
            raise
        raise DataError(f"'{path.name}' is no spreadsheet", got=str(error), do=SAVE) from error
    if faults:
        row, column, place, what = faults[0]
        header = cells[0][column - 1].strip() if cells and column <= len(cells[0]) else ""
        do = "write the value into every cell, split merged cells, and let the spreadsheet compute its formulas; "
        raise DataError(
            f"'{path.name}', line {row}, column {header or column!r}: {what}{and_more(len(faults) - 1, 'such cell')}",
            got=f"cell {place}",
            expected="a text, a number, or an empty cell",
            do=f"{do}then save the table again",
        )
    rows = [(number, row) for number, row in enumerate(cells, start=1) if any(map(str.strip, row))]
    if len(book.sheet_names) > 1 and rows and max(sum(map(bool, map(str.strip, row))) for _, row in rows) < 2:
        raise DataError(
            f"'{path.name}': the first sheet is no table",
            got=f"sheets {listing(book.sheet_names)}, of which '{book.sheet_names[0]}' has a single column",
            expected="a table with columns of genes and of phenotypes on the first sheet",
            do="move the table's sheet to the front, or save it as CSV in UTF-8",
        )
    return rows


def _faults(name: str, content: bytes) -> Iterator[tuple[int, int, str, str]]:
    """Yield row, column, place and fault of the cells of an .xlsx file whose value its reader would leave out."""
    last_row, last_column = 0, 0
    for row, column, place, what in _filled(content):
        last_row, last_column = max(last_row, row), max(last_column, column)
        if last_row > MOST_ROWS or last_column > MOST_COLUMNS or last_row * last_column > MOST_CELLS:
            raise DataError(
                f"'{name}', line {row}: a cell far from the table",
                got=f"cell {place} in a sheet of {last_row:,} rows and {last_column:,} columns",
                expected=f"at most {MOST_CELLS:,} cells from the first to the last",
                do="delete the rows and columns beyond the table, and save it again; or save it as CSV in UTF-8",
            )
        if what:
            yield row, column, place, what


def _filled(content: bytes) -> Iterator[tuple[int, int, str, str]]:
    """Yield row, column and place of the cells that are filled or merged, and what is wrong; empty where nothing is."""
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        sheet = ElementTree.fromstring(book.read("xl/workbook.xml")).find(".//{*}sheet")
        named = [] if sheet is None else [value for key, value in sheet.items() if key.endswith("}id")]
        relations = ElementTree.fromstring(book.read("xl/_rels/workbook.xml.rels"))
        target = {one.get("Id"): one.get("Target", "") for one in relations}[named[0]]
        row = 0
        with book.open(posixpath.normpath(posixpath.join("/xl", target)).lstrip("/")) as file:
            for _, element in ElementTree.iterparse(file):
                if element.tag.endswith("}mergeCell"):
                    place = element.get("ref", "")
                    yield *_place(place.partition(":")[0], 0, 0), place, f"cells {place} are merged"
                if not element.tag.endswith("}row"):
                    continue
                row, column = int(element.get("r", row + 1)), 0
                for cell in element:
                    place, value, formula = cell.get("r", ""), cell.find("{*}v"), cell.find("{*}f")
                    row, column = _place(place, row, column + 1)
                    is_empty = cell.find("{*}is") is None and (value is None or not value.text)
                    if cell.get("t") == "e":
                        yield row, column, place, f"the cell holds an error, {'' if value is None else value.text}"
                    elif formula is not None and is_empty and cell.get("t") != "str":
                        yield row, column, place, "the formula of the cell has not been computed"
                    elif not is_empty:
                        yield row, column, place, ""
                element.clear()


def _place(text: str, row: int, column: int) -> tuple[int, int]:
    """Return the row and column that a place such as ``B3`` means, from 1; the given ones where it means none."""
    found = re.fullmatch(r"([A-Z]+)([0-9]+)", text)
    if found is None:
        return row, column
    return int(found[2]), functools.reduce(lambda number, letter: 26 * number + ord(letter) - 64, found[1], 0)
