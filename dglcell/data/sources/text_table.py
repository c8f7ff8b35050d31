"""Read the file of a table whole and strictly: text, plain or packed, a spreadsheet, or Parquet."""

from __future__ import annotations

import csv
import gc
import gzip
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dglcell.data.sources.spreadsheet import SUFFIXES, read_sheet
from dglcell.data.table import SHOWN_LINES, Rows
from dglcell.errors import DataError, listing, shorten
from dglcell.files.atomic import CONTROL, DAMAGE, MOST_COLUMNS, UTF_16
from dglcell.files.parquet import import_pyarrow

GZIP_MAGIC = b"\x1f\x8b"

MOST_ABOVE = 20
"""A header stands in one of so many lines."""

Numbered = list[tuple[int, list[str]]]
"""This lists line number and cells of rows."""


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no garbage while many lists are made, which takes longer than making them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@_uncollected()
def read_rows(path: Path, *, keep_blank: bool = False) -> Rows:
    """Read a table: a spreadsheet's first sheet or Parquet (told by the name), or text, plain or gzipped.

    Text is in UTF-8 or UTF-16. Its separator is the most frequent one of comma, tab and semicolon in the header. Above
    the header there may be a title. Rows of a Parquet file have numbers from 2, as if below a header.

    Args:
        path: the file.
        keep_blank: whether lines of separators alone are rows.

    Raises:
        DataError: the file is missing, empty, truncated, no table, or a row has too many or too few cells.
        MissingDependencyError: the table is Parquet and pyarrow is not installed.
    """
    import pandas as pd

    if not os.path.isfile(path):
        raise DataError(f"'{path}' not found", expected="a table of strains: CSV, TSV, Excel or Parquet")
    kind = path.suffix.lower()
    rows = _sheet(path) if kind in SUFFIXES else _parquet(path) if kind == ".parquet" else _text_rows(path)
    if not rows:
        raise DataError(f"'{path.name}' is empty", expected="a row of column names, then one row per strain")
    if kind != ".parquet":
        rows = rows[_header(rows, is_sheet=kind in SUFFIXES) :]
    header = [" ".join(name.split()) or f"Unnamed: {number}" for number, name in enumerate(rows[0][1])]
    _check_header(path.name, rows[0][0], header)
    alone = len(header) == 1
    body = [
        (number, row)
        for number, row in rows[1:]
        if (keep_blank and (alone or len(row) > 1)) or any(cell.strip() for cell in row)
    ]
    if not body:
        raise DataError(f"'{path.name}' has a header but no rows", got=listing(header), expected="one row per strain")
    _check_widths(path.name, body, len(header))
    lines = np.array([number for number, _ in body], dtype=np.int64)
    return Rows(path.name, pd.DataFrame([row for _, row in body], columns=header, dtype=object), lines)


def _header(rows: Numbered, *, is_sheet: bool) -> int:
    """Return the position of the header: the first row with several names, if only titles stand above it."""
    for place, (_, row) in enumerate(rows[:MOST_ABOVE]):
        filled = [cell.strip() for cell in row if cell.strip()]
        if len(filled) > 1:
            return place if not all(map(_is_number, filled)) else 0
        if filled and not (is_sheet or _is_title(filled[0])):
            break
    return 0


def _is_title(text: str) -> bool:
    return text.startswith("#") or len(text.split()) > 2


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?[\d.,]+(e[+-]?\d+)?", text, re.IGNORECASE) is not None


def _text_rows(path: Path) -> Numbered:
    """Return the rows of a text. A cell may have line breaks, but none that would be rows, because it may hide rows."""
    text = _text(path)
    if "\n" not in text:
        text = text.replace("\r", "\n")  # lines of old systems
    control = CONTROL.search(text)
    if control is not None:
        raise DataError(
            f"'{path.name}', line {text.count(chr(10), 0, control.start()) + 1}: a control character",
            got=ascii(text[max(0, control.start() - 20) : control.end() + 20]),
            expected="text in lines that end with a line feed",
        )
    above = text.split("\n", MOST_ABOVE)[:MOST_ABOVE]
    header = next((one for one in above if re.search(r"[,;\t]", one) or (one.strip() and not _is_title(one))), above[0])
    separator = max(",\t;", key=header.count)
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
        raise DataError(
            f"'{path.name}', line {number}: "
            + ("a quotation mark is not closed" if is_open else "it cannot be read as cells"),
            got=shorten(text.split("\n", number)[number - 1], 200) if is_open else error,
            expected="cells that end in their line" if is_open else None,
            do="see whether quotation marks are closed and one separator is used throughout",
        ) from error
    return rows


def _text(path: Path) -> str:
    content = path.read_bytes()
    try:
        if content.startswith(GZIP_MAGIC):
            content = gzip.decompress(content)
        return content.decode("utf-16" if content.startswith(UTF_16) else "utf-8-sig")
    except DAMAGE as error:
        raise DataError(
            f"'{path.name}' cannot be read to its end",
            got=str(error),
            expected="a text table in UTF-8 or UTF-16, plain or gzipped",
            do="copy or download the file again; save a spreadsheet as CSV in UTF-8",
        ) from error


def _sheet(path: Path) -> Numbered:
    cells, sheets = read_sheet(path)
    rows = [(number, row) for number, row in enumerate(cells, start=1) if any(map(str.strip, row))]
    if len(sheets) > 1 and rows and max(sum(map(bool, map(str.strip, row))) for _, row in rows) < 2:
        raise DataError(
            f"'{path.name}': the first sheet is no table",
            got=f"sheets {listing(sheets)}, of which '{sheets[0]}' has a single column",
            expected="a table with columns of genes and of phenotypes on the first sheet",
            do="move the table's sheet to the front, or save it as CSV in UTF-8",
        )
    return rows


def _parquet(path: Path) -> Numbered:
    pa, pq = import_pyarrow()

    def texts(column: Any) -> list[str]:
        # Dates and times are Arrow's text, because Arrow knows more years and zones than Python.
        column = column.cast(pa.string()) if pa.types.is_temporal(column.type) else column
        return ["" if cell is None else str(cell) for cell in column.to_pylist()]

    try:
        table = pq.read_table(path)
        columns = [texts(column) for column in table.columns]
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise DataError(
            f"'{path.name}' is no whole Parquet file, or a column of it cannot be written as text",
            got=(str(error).splitlines() or [type(error).__name__])[0],
            expected="columns of UTF-8 texts and numbers",
            do="leave such columns out of the file",
        ) from error
    rows = [table.column_names, *map(list, zip(*columns, strict=True))]
    for number, row in enumerate(rows, start=1):
        if CONTROL.search("".join(row)):
            raise DataError(f"'{path.name}', line {number}: a control character", do="mend or remove the row")
    return list(enumerate(rows, start=1))


def _check_header(file: str, line: int, header: Sequence[str]) -> None:
    """Refuse too many columns, and names that stand above two."""
    names = Counter(header)
    if names.total() > MOST_COLUMNS:
        raise DataError(
            f"'{file}', line {line}: too many columns",
            got=f"{names.total():,}",
            expected=f"{MOST_COLUMNS:,} or fewer",
            do="keep those of genes and phenotypes",
        )
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        raise DataError(
            f"'{file}', line {line}: two columns are called '{twice[0]}'", do="give every column a name of its own"
        )


def _check_widths(file: str, rows: Numbered, width: int) -> None:
    bad = [(number, len(row)) for number, row in rows if len(row) != width]
    if bad:
        lines = [number for number, _ in bad]
        raise DataError(
            f"'{file}', line{'s' if len(bad) > 1 else ''} {listing(lines, SHOWN_LINES)}: "
            "not as many cells as in the header",
            got=bad[0][1],
            expected=width,
            do="mend the row; a last row like this means that the file is cut off",
        )


LOST = re.compile(
    r"[\W_]*(percent|pct|gene|target|crispri)?[\W_]*(knock[ _-]?down|kd|repression|inhibition|silencing)([\W_].*)?",
    re.IGNORECASE,
)
"""Columns of these names say how much of a gene is lost."""


def refuse_lost(file: str, column: str) -> None:
    """Refuse a column that says how much of a gene is lost, which is the strain and no phenotype of it.

    Raises:
        DataError: it is one by its name.
    """
    if LOST.fullmatch(column):
        raise DataError(
            f"'{file}', line 1: column '{column}' says how much of a gene is lost, and is no phenotype",
            expected="what is left of each gene, from 0 (deleted) to 1 (as in the wild type)",
            do="write what is left, e.g. 0.3 for a knockdown of 70 %, into a column `strengths` or strength_1, …; "
            "if it is something else, give it another name",
        )
