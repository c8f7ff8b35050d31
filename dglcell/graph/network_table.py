"""Edge tables as text files: separators, headers, columns and the errors a table can have."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError, MissingDependencyError, listing
from dglcell.files import DAMAGE, open_text

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = ("auto", ",", "\t", ";", " ")
"""Accepted separators; a space stands for any run of blanks."""


@dataclass(frozen=True)
class EdgeTable:
    """Columns of one text file, read as text, with the line each row stood in.

    Attributes:
        path: the file.
        columns: requested column → its values, row by row.
        labels: requested column → its name in the header (the request itself where there is no header).
        lines: [rows] line numbers in the file, counted from 1.
    """

    path: Path
    columns: dict[str, pd.Series]
    labels: dict[str, str]
    lines: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lines)

    def text(self, column: str) -> pd.Series:
        """A column of names, without surrounding blanks.

        Raises:
            GraphError: a row has nothing there.
        """
        values = self.columns[column].str.strip()
        empty = np.flatnonzero((values == "").to_numpy())
        if empty.size:
            raise GraphError(
                f"'{self.path.name}', line {self.lines[empty[0]]}: column '{self.labels[column]}' is empty",
                got=f"{empty.size:,} such rows",
                do="mend the file, or choose another separator or column",
            )
        return values

    def number(self, column: str) -> NDArray[np.float64]:
        """A column of finite numbers.

        Raises:
            GraphError: a row holds something else.
        """
        import pandas as pd

        values = pd.to_numeric(self.columns[column], errors="coerce").to_numpy(dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            value = self.columns[column].iloc[bad[0]]
            raise GraphError(
                f"'{self.path.name}', line {self.lines[bad[0]]}: weight in column '{self.labels[column]}'",
                got=f"'{value}'" if value else "nothing",
                expected="a finite number",
                do="mend the file, or choose another weight column",
            )
        return values


def read_table(path: Path, wanted: Sequence[str], separator: str, header: bool | None) -> EdgeTable:
    """Read some columns of a text file, plain or ``.gz``.

    Args:
        path: the file.
        wanted: column names of the header, or positions from 0 written as numbers.
        separator: one of `SEPARATORS`; ``auto`` looks at the first line.
        header: whether the first line names the columns; None: it does if a wanted column is not a number.

    Raises:
        GraphError: the file is damaged, empty or not text, or a column is not there.
        MissingDependencyError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise MissingDependencyError("reading edge tables needs pandas", do="pip install 'dglcell[data]'") from error

    damage = (*DAMAGE, pd.errors.ParserError, pd.errors.ParserWarning)
    has_header = header if header is not None else not all(column.isdigit() for column in wanted)
    try:
        first = _first_line(path)
        pattern = _separator(first) if separator == "auto" else separator.replace(" ", r"\s+")
        names = _split(first, pattern)
        positions = {column: _position(column, names, has_header, path) for column in wanted}
        frame = _read_text(path, pattern, len(names), skip=int(has_header))
    except damage as error:
        raise GraphError(
            f"network file '{path.name}' cannot be read to its end",
            got=str(error).strip().splitlines()[0],
            expected="a text table, plain or .gz, with equally many columns in every row",
            do="copy or download the file again",
        ) from error
    lines = np.arange(len(frame), dtype=np.int64) + 1 + int(has_header)
    filled = _filled_rows(frame)
    columns = {column: frame[position][filled] for column, position in positions.items()}
    labels = {column: names[position] if has_header else column for column, position in positions.items()}
    return EdgeTable(path, columns, labels, lines[filled])


def _read_text(path: Path, pattern: str, width: int, skip: int) -> pd.DataFrame:
    """Every field as text; nothing where a row is too short."""
    import pandas as pd

    with warnings.catch_warnings():
        # pandas only warns when all rows are longer than the first line, and then drops what is too much.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return pd.read_csv(
            path,
            sep=pattern,
            header=None,
            skiprows=skip,
            names=list(range(width)),
            dtype=str,
            keep_default_na=False,
            na_values=[],
            skip_blank_lines=False,
            index_col=False,
        ).fillna("")


def _filled_rows(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """[rows] false for blank lines."""
    blank = frame[0].str.strip().eq("").to_numpy(copy=True)
    blank[blank] = frame[blank].sum(axis=1).str.strip().eq("").to_numpy()
    return ~blank


def _first_line(path: Path) -> str:
    with open_text(path) as file:
        line = file.readline().rstrip("\r\n")
    if not line:
        raise GraphError(
            f"network file '{path.name}' is empty or begins with an empty line",
            expected="a row of column names or data",
            do="check the file",
        )
    return line


def _separator(line: str) -> str:
    return next((mark for mark in ("\t", ",", ";") if mark in line), r"\s+")


def _split(line: str, pattern: str) -> list[str]:
    fields = line.split() if pattern == r"\s+" else line.split(pattern)
    return [field.strip().strip('"') for field in fields]


def _position(column: str, names: list[str], has_header: bool, path: Path) -> int:
    if has_header and column in names:
        return names.index(column)
    if column.isdigit() and int(column) < len(names):
        return int(column)
    raise GraphError(
        f"network file '{path.name}' has no column '{column}'",
        expected=(listing(names, 20) + ", or " if has_header else "") + f"a number from 0 to {len(names) - 1}",
        do="name one of these columns" + ("" if has_header else ", or set `header: true` if line 1 names them"),
    )
