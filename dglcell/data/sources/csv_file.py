"""Reading a text table whole and strictly: every row has as many cells as the header, or the reading stops."""

from __future__ import annotations

import gzip
import io
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import DataError, MissingDependencyError, listing

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
            raise DataError(f"{self.file}: no column '{name}', which '{key}' asks for",
                            expected="one of " + listing(self.frame.columns, 30))
        return self.frame[name]

    def where(self, column: str, value: str) -> Rows:
        """The rows whose cell in ``column`` is ``value``.

        Raises:
            DataError: there is no such column or no such row.
        """
        cells = self.column(column, "where")
        chosen = (cells == value).to_numpy()
        if not chosen.any():
            raise DataError(f"{self.file}: no row has {column} = {value}",
                            expected="one of " + listing(sorted(cells.unique())))
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
        raise MissingDependencyError("reading tables of strains needs pandas",
                                     do="pip install 'dglcell[data]'") from error
    text = _text(path)
    header = text.split("\n", 1)[0].rstrip("\r")
    if not header.strip():
        raise DataError(f"{path.name} is empty or begins with an empty line", got=f"{len(text):,} characters",
                        expected="a row of column names, then one row per strain")
    if separator == "auto":
        separator = max(",\t;", key=header.count)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(io.StringIO(text), sep=separator, dtype=str, keep_default_na=False, na_values=[],
                                skip_blank_lines=False, index_col=False)
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise DataError(f"{path.name} is not a table", got=str(error).strip(),
                        expected=f"{header.count(separator) + 1} cells in every row",
                        do="mend the row, or set `separator`") from error
    frame.columns = frame.columns.str.strip()
    lines = np.arange(2, len(frame) + 2, dtype=np.int64)
    filled = (frame.fillna("") != "").any(axis=1).to_numpy()
    rows = Rows(path.name, frame[filled], lines[filled])
    _check(rows)
    return rows


def _text(path: Path) -> str:
    content = path.read_bytes()
    try:
        if content.startswith(GZIP_MAGIC):
            content = gzip.decompress(content)
        return content.decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise DataError(f"{path.name} cannot be read to its end", got=str(error),
                        expected="a text table in UTF-8, plain or gzipped",
                        do="copy or download the file again") from error


def _check(rows: Rows) -> None:
    if not len(rows):
        raise DataError(f"{rows.file} has a header but no rows", got=listing(rows.frame.columns),
                        expected="one row per strain")
    short = rows.frame.isna().any(axis=1).to_numpy()
    if short.any():
        width = rows.frame.shape[1]
        got = int(rows.frame[short].iloc[0].notna().sum())
        raise DataError(f"{rows.file}, line {rows.lines[short][0]}: too few cells", got=got, expected=width,
                        do="mend the row; if it is the last one, the file is cut off: copy it again")


def refuse_rows(rows: Rows, bad: NDArray[np.bool_], what: str, columns: Sequence[str], *, do: str,
                expected: str | None = None) -> None:
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
    raise DataError(f"{rows.file}, line {rows.lines[first]}: {what}" + (f" (and {more:,} more rows)" if more else ""),
                    got=f"'{cells}'", expected=expected, do=do)
