"""Reading a text table whole and strictly: every row has as many cells as the header, or the reading stops."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import DataError, MissingDependencyError, listing
from dglcell.files import DAMAGE

if TYPE_CHECKING:
    import pandas as pd

GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Rows:
    """Rows of a text table.

    Attributes:
        file: the file's name, for messages.
        frame: cells as text.
        lines: [rows] line numbers in the file, from 1.
    """

    file: str
    frame: pd.DataFrame
    lines: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lines)

    def keep(self, chosen: NDArray[np.bool_]) -> Rows:
        """The chosen rows."""
        return Rows(self.file, self.frame[chosen], self.lines[chosen])

    def column(self, name: str, key: str) -> pd.Series:
        """A column of text.

        Args:
            name: in the header.
            key: the configuration key that asks for it, for the message.

        Raises:
            DataError: there is no such column.
        """
        if name not in self.frame.columns:
            raise DataError(
                f"'{self.file}': no column '{name}', which `{key}` asks for",
                expected="one of " + listing(self.frame.columns, 30),
            )
        return self.frame[name]

    def where(self, column: str, value: str) -> Rows:
        """The rows whose cell in ``column`` is ``value``.

        Raises:
            DataError: there is no such column or no such row.
        """
        cells = self.column(column, "where")
        chosen = (cells == value).to_numpy()
        if not chosen.any():
            raise DataError(
                f"'{self.file}': no row has {column} = {value}", expected="one of " + listing(sorted(cells.unique()))
            )
        return self.keep(chosen)


def read_rows(path: Path, separator: str = "auto") -> Rows:
    """Read a table, plain or gzipped (told by its content).

    Args:
        path: the file.
        separator: ``auto``, comma, tab or semicolon.

    Raises:
        DataError: the file is empty, truncated, not text, or a row has too many or too few cells.
        MissingDependencyError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "reading tables of strains needs pandas", do="pip install 'dglcell[data]'"
        ) from error
    lines = [line.rstrip("\r") for line in _text(path).split("\n")]
    if not lines[0].strip():
        raise DataError(
            f"'{path.name}' is empty or begins with an empty line",
            expected="a row of column names, then one row per strain",
        )
    if separator == "auto":
        separator = max(",\t;", key=lines[0].count)
    numbers = np.array([n for n, line in enumerate(lines) if line.strip()], dtype=np.int64)
    kept = [lines[n] for n in numbers]
    _check_widths(path.name, kept, numbers + 1, separator)
    frame = pd.read_csv(io.StringIO("\n".join(kept)), sep=separator, dtype=str, keep_default_na=False, na_values=[])
    frame.columns = frame.columns.str.strip()
    filled = (frame != "").any(axis=1).to_numpy()
    if not filled.any():
        raise DataError(
            f"'{path.name}' has a header but no rows", got=listing(frame.columns), expected="one row per strain"
        )
    return Rows(path.name, frame[filled], numbers[1:][filled] + 1)


def _text(path: Path) -> str:
    content = path.read_bytes()
    try:
        if content.startswith(GZIP_MAGIC):
            content = gzip.decompress(content)
        return content.decode("utf-8-sig")
    except DAMAGE as error:
        raise DataError(
            f"'{path.name}' cannot be read to its end",
            got=str(error),
            expected="a text table in UTF-8, plain or gzipped",
            do="copy or download the file again",
        ) from error


def _check_widths(file: str, lines: Sequence[str], numbers: NDArray[np.int64], separator: str) -> None:
    """Refuse the first line that has not as many cells as the header."""
    quoted = any('"' in line for line in lines)
    widths = np.array(
        [len(next(csv.reader([line], delimiter=separator))) if quoted else line.count(separator) + 1 for line in lines]
    )
    bad = np.flatnonzero(widths != widths[0])
    if len(bad):
        raise DataError(
            f"'{file}', line {numbers[bad[0]]}: not as many cells as in the header",
            got=int(widths[bad[0]]),
            expected=int(widths[0]),
            do="mend the row, or set `separator`; a last row like this means that the file is cut off",
        )


def refuse_rows(
    rows: Rows, bad: NDArray[np.bool_], what: str, columns: Sequence[str], *, do: str, expected: str | None = None
) -> None:
    """Raise an error that names the line and content of the first bad row, if there is one.

    Args:
        rows: the table.
        bad: [rows] which rows are wrong.
        what: what is wrong with them.
        columns: where the offending cells are.
        do: what the user can do about it.
        expected: what would have been accepted.

    Raises:
        DataError: a row is bad.
    """
    if not bad.any():
        return
    first = int(np.flatnonzero(bad)[0])
    more = int(bad.sum()) - 1
    cells = "', '".join(rows.frame[column].iloc[first] for column in columns)
    raise DataError(
        f"'{rows.file}', line {rows.lines[first]}: {what}" + (f" (and {more:,} more rows)" if more else ""),
        got=f"'{cells}'",
        expected=expected,
        do=do,
    )
