"""Read edge tables from text files: separators, headers, columns and the errors that a table can have."""

from __future__ import annotations

import csv
import itertools
import mmap
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError, listing
from dglcell.files.atomic import CONTROL, DAMAGE, MOST_COLUMNS, open_text

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS = ("auto", ",", "\t", ";", " ")
"""These separators are accepted; a space stands for any run of blanks."""

UNDECODABLE = re.compile("\N{REPLACEMENT CHARACTER}")
"""This character stands for bytes that are no UTF-8: harmless in remarks and citations, an error in a column that is
read."""


@dataclass(frozen=True)
class Codes:
    """Hold a column of names as indices into its distinct names.

    Attributes:
        rows: [rows] indices into ``names``.
        names: distinct names, sorted, without surrounding blanks.
    """

    rows: NDArray[np.int64]
    names: tuple[str, ...]

    @classmethod
    def of(cls, rows: NDArray[Any], written: Iterable[object]) -> Codes:
        """Make codes from written names; names that differ only in blanks have one code, and −1 is an empty name."""
        stripped, same = np.unique(np.array(["", *(str(name).strip() for name in written)]), return_inverse=True)
        return cls._with_used_names(same[rows + 1], stripped.tolist())

    def select(self, kept: NDArray[np.bool_]) -> Codes:
        """Return the ``kept`` rows, and only the names that they hold."""
        return self._with_used_names(self.rows[kept], self.names)

    @classmethod
    def _with_used_names(cls, rows: NDArray[np.int64], names: Sequence[str]) -> Codes:
        used = np.bincount(rows, minlength=len(names)) > 0
        position = np.cumsum(used, dtype=np.int64) - 1
        return cls(position[rows], tuple(itertools.compress(names, used.tolist())))

    def code(self, name: str) -> int:
        """Return the index of ``name``; −1 where no row has it."""
        return self.names.index(name) if name in self.names else -1


@dataclass(frozen=True)
class EdgeTable:
    """Hold columns of one text file, with the line that each row stood in.

    Attributes:
        path: the file.
        columns: requested column → the names in it, row by row.
        labels: requested column → its name in the header (the request itself where there is no header).
        lines: [rows] line numbers in the file, counted from 1.
    """

    path: Path
    columns: dict[str, Codes]
    labels: dict[str, str]
    lines: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lines)

    def text(self, column: str) -> Codes:
        """Return a column of names.

        Raises:
            GraphError: a row has nothing there.
        """
        values = self.columns[column]
        empty = np.flatnonzero(values.rows == values.code(""))
        if empty.size:
            raise GraphError(
                f"'{self.path.name}', line {self.lines[empty[0]]}: column '{self.labels[column]}' is empty",
                got=f"{empty.size:,} such rows",
                do="mend the file, or choose another separator or column",
            )
        return values

    def number(self, column: str) -> NDArray[np.float64]:
        """Return a column of finite numbers.

        Raises:
            GraphError: a row holds something else.
        """
        import pandas as pd

        written = self.columns[column]
        numbers = pd.to_numeric(pd.Series(written.names, dtype=object), errors="coerce").to_numpy(dtype=np.float64)
        values = numbers[written.rows]
        # A number beyond float32 would become infinite in the graph.
        bad = np.flatnonzero(~(np.abs(values) <= np.finfo(np.float32).max))
        if bad.size:
            value = written.names[written.rows[bad[0]]]
            raise GraphError(
                f"'{self.path.name}', line {self.lines[bad[0]]}: weight in column '{self.labels[column]}'",
                got=f"'{value}'" if value else "nothing",
                expected="a finite number",
                do="mend the file, or choose another weight column",
            )
        return values

    def where(self, conditions: Mapping[str, str]) -> EdgeTable:
        """Return the rows that hold a value in each of some columns.

        Raises:
            GraphError: no row holds the value in a column.
        """
        if not conditions:
            return self
        kept = np.ones(len(self), dtype=bool)
        for column, value in conditions.items():
            values = self.columns[column]
            rows = values.rows == values.code(value)
            if not rows.any():
                raise GraphError(
                    f"network file '{self.path.name}': no row has '{value}' in column '{self.labels[column]}'",
                    got=listing(name or "nothing" for name in values.names),
                    do="correct `where`, or check that the file is the one meant",
                )
            kept &= rows
        return self.select(kept)

    def select(self, kept: NDArray[np.bool_]) -> EdgeTable:
        """Return the ``kept`` rows."""
        columns = {name: codes.select(kept) for name, codes in self.columns.items()}
        return EdgeTable(self.path, columns, self.labels, self.lines[kept])


def read_table(
    path: Path, wanted: Sequence[str], separator: str, header: bool | None, *, quotes: bool = True
) -> EdgeTable:
    """Read some columns of a text file, plain or ``.gz``.

    Args:
        path: the file.
        wanted: column names of the header, or positions from 0 written as numbers.
        separator: one of `SEPARATORS`; ``auto`` looks at the first line.
        header: whether the first line names the columns; None: it does if a wanted column is not a number.
        quotes: whether fields may stand in double quotes; otherwise a quote is a character like others.

    Raises:
        GraphError: the file is damaged, empty or not text, or a column is not there.
    """
    import pandas as pd

    damage = (*DAMAGE, pd.errors.ParserError, pd.errors.ParserWarning)
    has_header = header if header is not None else not all(column.isdecimal() for column in wanted)
    try:
        _refuse_nul(path)
        first = first_line(path)
        pattern = separator_pattern(first, separator)
        names = split_line(first, pattern)
        if len(names) > MOST_COLUMNS:
            raise GraphError(
                f"network file '{path.name}' has too many columns",
                got=f"{len(names):,}",
                expected=f"{MOST_COLUMNS:,} or fewer",
                do="keep those of genes and weights; write a matrix of pairs as a table of pairs",
            )
        positions = {column: _position(column, names, has_header, path) for column in wanted}
        frame = _read_text(path, pattern, len(names), skip=int(has_header), quotes=quotes)
    except damage as error:
        raise unreadable(path, error) from error
    lines = np.arange(len(frame), dtype=np.int64) + 1 + int(has_header)
    filled = _filled_rows(frame)
    columns = {
        column: Codes.of(values.cat.codes.to_numpy(dtype=np.int64)[filled], values.cat.categories)
        for column, values in ((column, frame[position]) for column, position in positions.items())
    }
    for column, codes in columns.items():
        for what, sign in (("bytes that are not UTF-8", UNDECODABLE), ("control characters", CONTROL)):
            if any(sign.search(name) for name in codes.names):
                raise unreadable(path, ValueError(f"{what} in column '{column}'"))
    labels = {column: names[position] if has_header else column for column, position in positions.items()}
    return EdgeTable(path, columns, labels, lines[filled])


def unreadable(path: Path, error: Exception) -> GraphError:
    """Return the error to raise for a table that ends early or is not one."""
    return GraphError(
        f"network file '{path.name}' cannot be read to its end",
        got=str(error).strip().splitlines()[0].removeprefix("Error tokenizing data. C error: "),
        expected="a text table, plain or .gz, with equally many columns in every row",
        do="copy or download the file again",
    )


def _refuse_nul(path: Path) -> None:
    """Refuse a file with a NUL, where pandas ends a name and other programs do not."""
    if path.suffix == ".gz" or not path.stat().st_size:
        return
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if (at := content.find(b"\0")) >= 0:
            raise unreadable(path, ValueError(f"a NUL at byte {at:,}"))


def _read_text(path: Path, pattern: str, width: int, skip: int, *, quotes: bool) -> pd.DataFrame:
    """Read every field as a category of its column; code −1 stands where a row is too short."""
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
            dtype="category",
            keep_default_na=False,
            na_values=[],
            skip_blank_lines=False,
            index_col=False,
            quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
            encoding_errors="replace",
        )


def _filled_rows(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which lines are not blank, [rows] bool."""
    blank = np.ones(len(frame), dtype=bool)
    for column in frame:
        values = frame[column].cat
        empty = np.array([True, *(str(name).strip() == "" for name in values.categories)])
        blank &= empty[values.codes.to_numpy(dtype=np.int64) + 1]
        if not blank.any():
            break
    return ~blank


def first_line(path: Path) -> str:
    """Return the first line of a table, without its end.

    Raises:
        GraphError: the table is empty.
    """
    with open_text(path, errors="replace") as file:
        line = file.readline().rstrip("\r\n")
    if not line:
        raise GraphError(
            f"network file '{path.name}' is empty or begins with an empty line",
            expected="a row of column names or data",
            do="check the file",
        )
    return line


def separator_pattern(line: str, separator: str) -> str:
    """Return the separator in the form that pandas takes.

    ``auto`` is the first of tab, comma and semicolon in ``line``, else blanks.
    """
    if separator == "auto":
        separator = next((mark for mark in ("\t", ",", ";") if mark in line), " ")
    return separator.replace(" ", r"\s+")


def split_line(line: str, pattern: str) -> list[str]:
    """Return the fields of a line, without blanks and quotes around them."""
    fields = line.split() if pattern == r"\s+" else line.split(pattern)
    return [field.strip().strip('"') for field in fields]


def _position(column: str, names: list[str], has_header: bool, path: Path) -> int:
    if has_header and names.count(column) > 1:
        raise GraphError(f"network file '{path.name}': two columns are called '{column}'", do="name it by its position")
    if has_header and column in names:
        return names.index(column)
    if column.isdecimal() and int(column) < len(names):
        return int(column)
    raise GraphError(
        f"network file '{path.name}' has no column '{column}'",
        expected=(listing(names, 20) + ", or " if has_header else "") + f"a number from 0 to {len(names) - 1}",
        do="name one of these columns" + ("" if has_header else ", or set `header: true` if line 1 names them"),
    )
