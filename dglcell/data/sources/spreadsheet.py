"""Read the first sheet of a spreadsheet as cells of text."""

from __future__ import annotations

import io
from pathlib import Path

from dglcell.data.table import written_as
from dglcell.errors import DataError

SUFFIXES = (".xlsx", ".xls", ".ods", ".xlsb")
"""Spreadsheets with these suffixes are read."""


def read_sheet(path: Path) -> list[list[str]]:
    """Return the rows of the first sheet, from its first row that is not empty.

    Numbers become text as Python writes them, whole numbers without a point. Rows above the first filled one count,
    so that row k of the sheet is item k − 1.

    Raises:
        DataError: it is no spreadsheet.
    """
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        sheet = CalamineWorkbook.from_filelike(io.BytesIO(path.read_bytes())).get_sheet_by_index(0)
        rows = sheet.to_python(skip_empty_area=False)
    except (CalamineError, ValueError, IndexError) as error:
        raise DataError(
            f"'{path.name}' is no spreadsheet", got=str(error), do="save the table as .xlsx or as CSV in UTF-8"
        ) from error
    return [[written_as(cell) for cell in row] for row in rows]
