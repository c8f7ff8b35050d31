"""Read the first sheet of a spreadsheet as cells of text."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from dglcell.data.table import written_as
from dglcell.errors import DataError, and_more
from dglcell.files.untrusted import BOMB_BYTES

SUFFIXES = (".xlsx", ".xls", ".ods", ".xlsb")
"""Spreadsheets with these suffixes are read."""

MOST_ROWS, MOST_COLUMNS, MOST_CELLS = 1 << 20, 1 << 14, 20_000_000
"""A sheet has at most so many; cells are counted from the first to the last that is filled, and take memory each."""

PLACE = re.compile(r"([A-Z]+)([0-9]+)")

DAMAGED = (zipfile.BadZipFile, zlib.error, ElementTree.ParseError, LookupError, ValueError, StopIteration, EOFError)
"""Reading a file that is no spreadsheet, or a damaged one, raises these errors."""

SAVE = "save the table as .xlsx or as CSV in UTF-8"


def read_sheet(path: Path) -> tuple[list[list[str]], list[str]]:
    """Return the rows of the first sheet, from its first row that is not empty, and the names of all sheets.

    Numbers become text as Python writes them, whole numbers without a point. Rows above the first filled one count,
    so that row k of the sheet is item k − 1.

    Raises:
        DataError: it is no spreadsheet; or a cell is far away, an error, merged, or a formula without a value.
    """
    from python_calamine import CalamineError, CalamineWorkbook

    content = path.read_bytes()
    _refuse_bomb(path, content)
    mistakes = _mistakes(path, content) if path.suffix.lower() == ".xlsx" else []
    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(content))
        rows = book.get_sheet_by_index(0).to_python(skip_empty_area=False)
    except BaseException as error:
        # What the reader cannot bear ends as a panic, which is no `Exception`.
        if not isinstance(error, CalamineError | ValueError | IndexError) and type(error).__name__ != "PanicException":
            raise
        raise DataError(f"'{path.name}' is no spreadsheet", got=str(error), do=SAVE) from error
    if mistakes:
        row, column, what = mistakes[0]
        header = str(rows[0][column - 1]).strip() if rows and column <= len(rows[0]) else ""
        raise DataError(
            f"'{path.name}', line {row}, column {header or letters(column)!r}: {what}"
            f"{and_more(len(mistakes) - 1, 'such cell')}",
            got=f"cell {letters(column)}{row}",
            expected="a text, a number, or an empty cell",
            do="write the value into every cell, split merged cells, and let the spreadsheet compute its formulas; "
            "then save the table again",
        )
    return [[written_as(cell) for cell in row] for row in rows], book.sheet_names


def letters(column: int) -> str:
    """Return what spreadsheets call a column, counted from 1."""
    name = ""
    while column:
        column, letter = divmod(column - 1, 26)
        name = chr(ord("A") + letter) + name
    return name


def _refuse_bomb(path: Path, content: bytes) -> None:
    """Refuse a spreadsheet of any kind whose parts unpack to more than a table would."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as book:
            size = sum(part.file_size for part in book.infolist())
    except zipfile.BadZipFile:
        return  # the reader says what it is
    if size > BOMB_BYTES:
        raise DataError(f"'{path.name}' is no spreadsheet", got=f"its parts unpack to {size:,} bytes", do=SAVE)


def _mistakes(path: Path, content: bytes) -> list[tuple[int, int, str]]:
    """Return row, column and fault of the cells whose value a reader of spreadsheets would leave out.

    Raises:
        DataError: it is no spreadsheet, or so large that reading it would take all memory.
    """
    found, last_row, last_column = list[tuple[int, int, str]](), 0, 0
    try:
        for row, column, what in _cells(content):
            last_row, last_column = max(last_row, row), max(last_column, column)
            if last_row > MOST_ROWS or last_column > MOST_COLUMNS or last_row * last_column > MOST_CELLS:
                raise DataError(
                    f"'{path.name}', line {row}, column '{letters(column)}': a cell far from the table",
                    got=f"a sheet of {last_row:,} rows and {last_column:,} columns",
                    expected=f"at most {MOST_CELLS:,} cells from the first to the last",
                    do="delete the rows and columns beyond the table, and save it again; or save it as CSV in UTF-8",
                )
            if what:
                found.append((row, column, what))
    except DAMAGED as error:
        raise DataError(f"'{path.name}' is no spreadsheet", got=str(error), do=SAVE) from error
    return found


def _cells(content: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield row and column of each cell that is filled, and what is wrong with it; an empty text where nothing is."""
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        name = _first_sheet(book)
        row = column = 0
        with book.open(name) as file:
            for event, element in ElementTree.iterparse(file, events=("start", "end")):
                kind = _kind(element)
                if kind == "row" and event == "start":
                    row, column = int(element.get("r", row + 1)), 0
                elif kind == "row":
                    element.clear()
                elif kind == "c" and event == "end":
                    place = PLACE.fullmatch(element.get("r", ""))
                    row, column = (int(place[2]), _number(place[1])) if place else (row, column + 1)
                    below = {_kind(child): child for child in element}
                    value = below.get("v")
                    is_empty = "is" not in below and (value is None or not value.text)
                    if element.get("t") == "e":
                        yield row, column, f"the cell holds an error, {'' if value is None else value.text}"
                    elif "f" in below and is_empty and element.get("t") != "str":
                        yield row, column, "the formula of the cell has not been computed"
                    elif not is_empty:
                        yield row, column, ""
                elif kind == "mergeCell" and event == "start":
                    place = PLACE.match(element.get("ref", ""))
                    if place:
                        yield int(place[2]), _number(place[1]), f"cells {element.get('ref')} are merged"


def _first_sheet(book: zipfile.ZipFile) -> str:
    def elements(name: str) -> Iterator[Any]:
        return ElementTree.fromstring(book.read(name)).iter()

    first = next(element for element in elements("xl/workbook.xml") if _kind(element) == "sheet")
    wanted = next(value for name, value in first.items() if name.endswith("}id"))
    targets = {element.get("Id"): element.get("Target") for element in elements("xl/_rels/workbook.xml.rels")}
    return posixpath.normpath(posixpath.join("/xl", targets[wanted])).lstrip("/")


def _kind(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def _number(name: str) -> int:
    number = 0
    for letter in name:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number
