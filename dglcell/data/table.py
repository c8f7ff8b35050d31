"""Hold the rows of a table of strains, read its numbers, and collect everything that is wrong with it."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import DataError, GenotypeError, count, did_you_mean, listing, shorten

if TYPE_CHECKING:
    import pandas as pd


STRAINS = "the strains"
"""Messages call strains so that come from no file."""

SHOWN_LINES, SHOWN_ALIKE, MOST_SHOWN = 8, 5, 100
"""Most lines of an issue that a message names, most issues of one kind, and most issues in all."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage while many lists are made, which takes longer than making them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@dataclass(frozen=True)
class Issue:
    """Describe something that is wrong in rows of a table."""

    lines: tuple[int, ...]  #: numbers of these rows, as `Rows.lines` has them
    what: str  #: the mistake in words; it ends a sentence that begins with the lines
    do: str = ""  #: what to do about it
    #: the column whose cells a copy without faults changes; where None, the copy leaves the rows out
    column: str | None = None
    cell: str = ""  #: the text of these cells in the copy
    word: str | None = None  #: a cell that may mean "not measured"
    kind: str = ""  #: what issues of this kind are together, where a few examples of them say enough


@dataclass(frozen=True)
class Rows:
    """Hold rows of a table."""

    file: str  #: the table's name, for messages
    frame: pd.DataFrame  #: cells as text
    lines: NDArray[np.int64]  #: [rows] line numbers in the file, from 1; of a DataFrame the numbers of its rows, from 0
    names: Sequence[str] | None = None  #: what messages call the rows of a DataFrame; None of a file

    @classmethod
    def of_frame(cls, frame: pd.DataFrame, columns: Sequence[str]) -> Rows:
        """Return columns of a DataFrame as text; empty cells are empty texts, and texts in its index are names.

        Raises:
            DataError: it has no such column.
        """
        import pandas as pd

        header = [str(name).strip() for name in frame.columns]
        check_columns(header, columns)
        cells = dict[str, list[str]]()
        for name in columns:
            of = frame.iloc[:, header.index(name)]
            cells[name] = list(map(written_as, of.astype(object).where(of.notna(), "").tolist()))
        names = [f"strain '{name}'" if isinstance(name, str) else f"row {i}" for i, name in enumerate(frame.index)]
        return cls(STRAINS, pd.DataFrame(cells, range(len(frame)), dtype=object), np.arange(len(frame)), names)

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def title(self) -> str:
        """Return what messages call the table."""
        return f"'{self.file}'" if self.names is None else self.file

    def keep(self, chosen: NDArray[np.bool_]) -> Rows:
        """Return the chosen rows."""
        return Rows(self.file, self.frame[chosen], self.lines[chosen], self.names)

    def column(self, name: str, key: str) -> pd.Series:
        """Return a column of text, which the configuration key ``key`` asks for.

        Raises:
            DataError: there is no such column.
        """
        if name not in self.frame.columns:
            raise DataError(
                f"'{self.file}': no column '{name}', which `{key}` asks for",
                expected="one of " + listing(self.frame.columns, 30),
                do=did_you_mean(name, self.frame.columns),
            )
        return self.frame[name]

    def where(self, column: str, value: str) -> Rows:
        """Return the rows whose cell in ``column`` is ``value``.

        Raises:
            DataError: there is no such column or no such row.
        """
        cells = self.column(column, "where")
        if not (chosen := (cells == value).to_numpy()).any():
            expected = "one of " + listing(sorted(cells.unique()))
            raise DataError(f"'{self.file}': no row has {column} = {value}", expected=expected)
        return self.keep(chosen)

    def issues(self, found: Mapping[str, Sequence[int]], do: str = "", **more: Any) -> list[Issue]:
        """Return an issue for each text → numbers of rows that it is true of; ``more`` are other fields of it."""
        lines = ((what, tuple(self.lines[rows].tolist())) for what, rows in found.items() if len(rows))
        return [Issue(of, what, do, **more) for what, of in lines]

    def place(self, lines: Sequence[int]) -> str:
        """Return where an issue is, in words."""
        if self.names is not None:
            return listing((self.names[line] for line in lines), SHOWN_LINES)
        return f"line{'s' if len(lines) > 1 else ''} {listing(lines, SHOWN_LINES)}"


class IssuesError(DataError, GenotypeError):
    """Report everything that is wrong with a table, line by line, and each remedy in a line of its own."""

    def __init__(self, rows: Rows, issues: Sequence[Issue], *remedies: str) -> None:
        bad = len({line for issue in issues for line in issue.lines})
        head = f"{rows.title}: {count(len(issues), 'fault')} in {bad:,} of {count(len(rows), 'row')}"
        lines = describe_issues(rows, issues)
        more = [f"  and {len(lines) - MOST_SHOWN:,} more"] if len(lines) > MOST_SHOWN else []
        do = "\n            ".join(remedies or dict.fromkeys(issue.do for issue in issues if issue.do))
        super().__init__(head)
        self.args = ("\n".join([head, *lines[:MOST_SHOWN], *more, f"  do:       {do}"]),)


def describe_issues(rows: Rows, issues: Sequence[Issue]) -> list[str]:
    """Return a line for each issue in the order of the rows, but only for the first few of a kind."""
    said, alike = list[str](), dict[str, int]()
    for issue in sorted(issues, key=lambda issue: issue.lines[0]):
        alike[issue.kind] = alike.get(issue.kind, 0) + 1
        if not issue.kind or alike[issue.kind] <= SHOWN_ALIKE:
            said.append(f"  {rows.place(issue.lines)}: {shorten(issue.what, 400)}")
    more = ((number - SHOWN_ALIKE, kind) for kind, number in alike.items() if kind and number > SHOWN_ALIKE)
    return said + [f"  and {count(number, f'more {kind}')}" for number, kind in more]


def in_one_line(error: Exception) -> str:
    """Return the message of an error as one line."""
    return re.sub(r"\n  (got|expected|do): +", r"; \1: ", str(error))


def by_text(rows: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return text → numbers of the rows that have it."""
    found = dict[str, list[int]]()
    for text, row in rows:
        found.setdefault(text, []).append(row)
    return found


def written_as(cell: object) -> str:
    """Return a cell as text; whole numbers have no point, because a column with gaps and a spreadsheet hold floats."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15 else str(cell)


def check_columns(header: Sequence[str], names: Sequence[str]) -> None:
    """Refuse names of columns that a DataFrame does not have.

    Raises:
        DataError: naming those that it has.
    """
    for name in names:
        if name not in header:
            do = did_you_mean(name, header)
            raise DataError(f"the DataFrame has no column '{name}'", expected=f"among {listing(header)}", do=do)


# Columns of numbers.


MISSING = ("", "na", "n/a", "nan")
"""These cells always mean "not measured", in small or capital letters."""

MINUS = r"^[\u2212\u2013\ufe63\uff0d](?=[\d.,])"
"""Word processors and other programs write these before a negative number: a minus sign, or an en dash."""

Numbers = NDArray[np.float64]


def read_numbers(cells: pd.Series, decimal: str, na_values: Sequence[str]) -> tuple[Numbers, NDArray[np.bool_]]:
    """Read the numbers of a column of text.

    Args:
        cells: the cells of the column.
        decimal: point or comma.
        na_values: cells that mean "not measured", beside those of ``MISSING``.

    Returns:
        [rows] the numbers, NaN where a cell holds none, and whether it means "not measured".
    """
    import pandas as pd

    found, no_numbers = (pd.to_numeric(pd.Series(of, dtype=object), errors="coerce") for of in (cells, [*na_values]))
    # Texts take time, and are looked at where no number is, or where a number may mean something else.
    rest = found.isna().to_numpy() | (decimal == ",") | bool(no_numbers.notna().any())
    numbers, missing = found.to_numpy(dtype=np.float64, copy=True), np.zeros(len(cells), dtype=bool)
    cells = cells[rest].str.strip().str.replace(MINUS, "-", regex=True)
    missing[rest] = cells.str.lower().isin(MISSING) | cells.isin(list(na_values))
    if decimal == ",":
        # A point would separate thousands, so such a cell is no number.
        cells = cells.mask(cells.str.contains(".", regex=False)).str.replace(",", ".", regex=False)
    numbers[rest] = pd.to_numeric(cells.mask(missing[rest]), errors="coerce")
    return numbers, missing


def numbers_of(columns: Any, names: Iterable[str]) -> dict[str, NDArray[np.float32]]:
    """Return some columns of numbers.

    Raises:
        DataError: one holds none.
    """
    try:
        return {name: np.asarray(columns[name], dtype=np.float32) for name in names}
    except (TypeError, ValueError) as error:
        raise DataError("a column of phenotypes holds no numbers", got=error, expected="numbers, or NaN") from error


def number_issues(rows: Rows, column: str, values: Numbers, wrong: NDArray[np.bool_], decimal: str) -> list[Issue]:
    """Return an issue for each text of a column that is no finite number, as far as float32 goes."""
    issues, cells = list[Issue](), rows.frame[column].str.strip()
    for cell, where in by_text((cells.iloc[row], row) for row in np.flatnonzero(wrong).tolist()).items():
        if decimal == "." and re.fullmatch(r"[+-]?\d+,\d+([eE][+-]?\d+)?", cell):
            mended = cell.replace(",", ".")
            what = f"{column} '{cell}' has a decimal comma ({mended} in a clean copy)"
            do = 'set `decimal: ","`, or write numbers with decimal points'
            issues += rows.issues({what: where}, do, column=column, cell=mended, kind="decimal comma")
        else:
            none = bool(np.isnan(values[where[0]]))
            what = f"{column} '{cell}' is no {'' if none else 'finite '}number"
            do = 'mend the cell, or add it to `na_values` if it means "not measured"'
            word = cell if none and not any(c.isdigit() for c in cell) else None
            issues += rows.issues({what: where}, do, column=column, word=word)
    return issues


REGRESSION, CLASSIFICATION = "regression", "classification"
"""Kinds of labels."""
