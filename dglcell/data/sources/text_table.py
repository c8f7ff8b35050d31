"""Read text tables whole and strictly, and the genotypes in their rows."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.checks import A_STRENGTH, no_strengths
from dglcell.data.sources.spreadsheet import SUFFIXES, read_sheet, sheet_names
from dglcell.data.strains import Strains
from dglcell.data.table import is_ignored, parse_genotype, split_cells
from dglcell.errors import DataError, did_you_mean, listing
from dglcell.files.atomic import CONTROL, DAMAGE, MOST_COLUMNS, UTF_16
from dglcell.graph.vocabulary import AliasTable

if TYPE_CHECKING:
    import pandas as pd


# Reading a text table whole and strictly: every row has as many cells as the header, or the reading stops.


GZIP_MAGIC = b"\x1f\x8b"

MOST_BREAKS = 5
"""A header has at most so many line breaks in its names."""

SHOWN_LINES = 5
"""A message names at most so many lines."""


@dataclass(frozen=True)
class Rows:
    """Hold rows of a text table.

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
        """Return the chosen rows."""
        return Rows(self.file, self.frame[chosen], self.lines[chosen])

    def column(self, name: str, key: str) -> pd.Series:
        """Return a column of text.

        Args:
            name: the column's name in the header.
            key: the configuration key that asks for it, for the message.

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
        chosen = (cells == value).to_numpy()
        if not chosen.any():
            raise DataError(
                f"'{self.file}': no row has {column} = {value}", expected="one of " + listing(sorted(cells.unique()))
            )
        return self.keep(chosen)


def read_rows(path: Path) -> Rows:
    """Read a table, plain or gzipped (told by its content), or the first sheet of a spreadsheet (told by its name).

    The separator is the most frequent one of comma, tab and semicolon in the header.

    Raises:
        DataError: the file is empty, truncated, not text, or a row has too many or too few cells.
    """
    import pandas as pd

    if path.suffix.lower() in SUFFIXES:
        return _sheet(path)
    text = _text(path)
    control = CONTROL.search(text)
    if control is not None:
        raise DataError(
            f"'{path.name}', line {text.count(chr(10), 0, control.start()) + 1}: a control character",
            got=ascii(text[max(0, control.start() - 20) : control.end() + 20]),
            expected="text in lines that end with a line feed",
        )
    lines = [line.rstrip("\r") for line in text.split("\n")]
    if not lines[0].strip():
        raise _no_header(path)
    above = 0  # lines on which the header goes on, because one of its names has a line break
    while lines[0].count('"') % 2 and len(lines) > 1 and above < MOST_BREAKS:
        lines[:2] = [f"{lines[0]} {lines[1].strip()}"]
        above += 1
    separator = max(",\t;", key=lines[0].count)
    numbers = np.array([n for n, line in enumerate(lines) if line.strip()], dtype=np.int64)
    kept = [lines[n] for n in numbers]
    _check_header(path.name, [name.strip() for name in _cells(path.name, lines[0], 1, separator)])
    _check_widths(path.name, kept, numbers + 1 + above, separator)
    frame = pd.read_csv(io.StringIO("\n".join(kept)), sep=separator, dtype=str, keep_default_na=False, na_values=[])
    return _filled(path, frame, numbers[1:] + 1 + above)


def _filled(path: Path, frame: pd.DataFrame, lines: NDArray[np.int64]) -> Rows:
    frame.columns = frame.columns.str.strip()
    filled = (frame != "").any(axis=1).to_numpy()
    if not filled.any():
        raise DataError(
            f"'{path.name}' has a header but no rows", got=listing(frame.columns), expected="one row per strain"
        )
    return Rows(path.name, frame[filled], lines[filled])


def _sheet(path: Path) -> Rows:
    """Read the first sheet of a spreadsheet, whose first row with several cells is the header."""
    import pandas as pd

    rows = read_sheet(path)
    if not rows or not any(cell.strip() for cell in rows[0]):
        raise _no_header(path)
    filled = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    sheets = sheet_names(path)
    if len(sheets) > 1 and max(map(len, filled)) < 2:
        raise DataError(
            f"'{path.name}': the first sheet is no table",
            got=f"sheets {listing(sheets)}, of which '{sheets[0]}' has a single column",
            expected="a table with columns of genes and of phenotypes on the first sheet",
            do="move the table's sheet to the front, or save it as CSV in UTF-8",
        )
    # Above the header may stand a title; a header has names alone.
    top = next((number for number, row in enumerate(filled) if len(row) > 1), 0)
    top = top if all(np.isnan(pd.to_numeric(pd.Series(filled[top], dtype=str), errors="coerce"))) else 0
    header = [" ".join(name.split()) or f"column {number}" for number, name in enumerate(rows[top], start=1)]
    _check_header(path.name, header)
    lines = np.arange(top + 1, len(rows)) + 1
    return _filled(path, pd.DataFrame(rows[top + 1 :], columns=header, dtype=str), lines)


def _no_header(path: Path) -> DataError:
    expected = "a row of column names, then one row per strain"
    return DataError(f"'{path.name}' is empty or begins with an empty line", expected=expected)


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


def _check_header(file: str, header: Sequence[str]) -> None:
    """Refuse too many columns, and names that stand above two, because pandas would give the second another name."""
    names = Counter(header)
    if names.total() > MOST_COLUMNS:
        raise DataError(
            f"'{file}', line 1: too many columns",
            got=f"{names.total():,}",
            expected=f"{MOST_COLUMNS:,} or fewer",
            do="keep those of genes and phenotypes",
        )
    twice = [name for name, times in names.items() if times > 1 and name]
    if twice:
        raise DataError(
            f"'{file}', line 1: two columns are called '{twice[0]}'", do="give every column a name of its own"
        )


def _cells(file: str, line: str, number: int, separator: str) -> list[str]:
    """Return the cells of a line. A cell that goes on in the next line is refused, because it may hide rows."""
    try:
        cells, *next_line = csv.reader([line, ""], delimiter=separator)
    except csv.Error as error:
        raise DataError(
            f"'{file}', line {number}: it cannot be read as cells",
            got=error,
            do="see whether quotation marks are closed and one separator is used throughout",
        ) from error
    if not next_line:
        raise DataError(
            f"'{file}', line {number}: a quotation mark is not closed",
            got=line,
            expected="cells that end in their line",
            do="close or remove the quotation mark, and take line ends out of cells",
        )
    return cells


def _check_widths(file: str, lines: Sequence[str], numbers: NDArray[np.int64], separator: str) -> None:
    """Refuse lines that do not have as many cells as the header."""
    quoted = any('"' in line for line in lines)
    widths = np.array(
        [
            len(_cells(file, line, number, separator)) if quoted else line.count(separator) + 1
            for line, number in zip(lines, numbers, strict=True)
        ]
    )
    bad = np.flatnonzero(widths != widths[0])
    if len(bad):
        raise DataError(
            f"'{file}', {_name_lines(numbers[bad])}: not as many cells as in the header",
            got=int(widths[bad[0]]),
            expected=int(widths[0]),
            do="mend the row; a last row like this means that the file is cut off",
        )


MISSING = ("", "na", "n/a", "nan")
"""These cells always mean "not measured", in small or capital letters."""

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

    cells = cells.str.strip().str.replace(MINUS, "-", regex=True)
    missing = (cells.str.lower().isin(MISSING) | cells.isin(list(na_values))).to_numpy()
    if decimal == ",":
        # A point would separate thousands, so such a cell is no number.
        cells = cells.mask(cells.str.contains(".", regex=False)).str.replace(",", ".", regex=False)
    return pd.to_numeric(cells.mask(missing), errors="coerce").to_numpy(dtype=np.float64), missing


@dataclass
class Mistakes:
    """Gather what is wrong with rows of a table, so that one message says it all.

    Attributes:
        file: the table's name.
        found: for each kind of mistake, its message, and what was got, expected and is to be done.
    """

    file: str
    found: list[tuple[str, str, str | None, str]] = field(default_factory=list)

    def add(
        self,
        rows: Rows,
        bad: NDArray[np.bool_],
        what: str,
        columns: Sequence[str],
        *,
        do: str,
        expected: str | None = None,
    ) -> None:
        """Note the lines of bad rows and the content of the first, if there is one.

        Args:
            rows: the table.
            bad: [rows] which rows are wrong.
            what: the mistake in words.
            columns: the columns of the offending cells.
            do: advice to the user.
            expected: the content that would have been accepted.
        """
        if bad.any():
            cells = "', '".join(rows.frame[column].iloc[int(np.argmax(bad))] for column in columns)
            self.found.append((f"{_name_lines(rows.lines[bad])}: {what}", f"'{cells}'", expected, do))

    def refuse(self) -> None:
        """Raise an error if there is any mistake.

        Raises:
            DataError: naming lines and content of each kind.
        """
        if len(self.found) == 1:
            ((what, got, expected, do),) = self.found
            raise DataError(f"'{self.file}', {what}", got=got, expected=expected, do=do)
        if self.found:
            kinds = [f"{what}, got {got}" for what, got, _, _ in self.found]
            raise DataError(
                "\n  ".join([f"'{self.file}': rows have {len(kinds)} kinds of mistakes", *kinds]),
                do="\n            ".join(dict.fromkeys(do for _, _, _, do in self.found)),
            )


def _name_lines(lines: NDArray[np.int64]) -> str:
    return f"line{'s' if len(lines) > 1 else ''} {listing(lines, SHOWN_LINES)}"


# Deleted genes of rows, and how they are read from the cells of a table.


Genotype = tuple[list[str], list[str], tuple[str, str] | None]


def written_genotypes(
    rows: Rows, columns: Sequence[str], strengths: Sequence[str], keys: tuple[str, str] = ("genes", "strengths")
) -> list[Genotype]:
    """Return what each row says of genes, as `parse_genotype` reads it.

    Args:
        rows: the table.
        columns: the columns of genes; there may be none.
        strengths: the columns of what is left of them; there may be none.
        keys: the keys or options that name these columns, for messages.

    Raises:
        DataError: there is no such column.
    """

    def cells(names: Sequence[str], key: str) -> Iterable[Sequence[str]]:
        texts = [rows.column(name, key).tolist() for name in names]
        return map(split_cells, zip(*texts, strict=True)) if texts else itertools.repeat((), len(rows))

    return list(map(parse_genotype, cells(columns, keys[0]), cells(strengths, keys[1])))


def read_genotypes(
    rows: Rows,
    columns: Sequence[str],
    aliases: AliasTable,
    ignored: Sequence[str],
    mistakes: Mistakes,
    strengths: Sequence[str] = (),
    *,
    may_be_empty: bool = False,
) -> Strains:
    """Read the deleted and weakened genes of the rows of a table.

    Args:
        rows: the table.
        columns: the columns of genes; a single one may hold several genes, separated by ``;``. A strength may stand
            behind a gene, ``b0008:0.3``.
        aliases: other names of genes.
        ignored: names that do not count as deleted, as those of controls; ``*`` stands for any text in them.
        mistakes: gets the rows that delete nothing, or a gene twice, or have a strength that is none.
        strengths: the columns of strengths, in the same order; empty where there are none. A strength may have a
            decimal comma.
        may_be_empty: whether a strain may change no gene, because it may differ by its conditions.

    Raises:
        DataError: a column is missing, or a name is ambiguous.
    """
    import pandas as pd

    if not columns:
        return Strains.from_indices((), [()] * len(rows))
    genotypes = written_genotypes(rows, columns, strengths)
    do = "write one strength for each gene, behind its name or in a column"
    wrong = np.array([stray is not None for _, _, stray in genotypes], dtype=bool)
    mistakes.add(rows, wrong, "genes and strengths do not fit", [*columns, *strengths], do=do)
    written, found = pd.factorize(np.array([name for names, _, _ in genotypes for name in names], dtype=object))
    resolved, ambiguous = aliases.resolve(found.tolist(), aliases.targets, spelled=True)
    if ambiguous:
        raise DataError(
            f"'{rows.file}': names that stand for several genes",
            got=listing(ambiguous),
            expected="systematic names, or aliases of one gene",
            do="replace them by systematic names",
        )
    pairs = zip(found.tolist(), resolved, strict=True)
    counted = [
        name if name and not is_ignored(name, ignored) and not is_ignored(one, ignored) else "" for one, name in pairs
    ]
    names = tuple(dict.fromkeys(filter(None, counted)))
    index = {name: i for i, name in enumerate(names)}
    codes = np.array([index.get(name, -1) for name in counted], dtype=np.int32)
    numbers = np.array([len(names) for names, _, _ in genotypes], dtype=np.int64)
    there = np.arange(numbers.max(initial=0)) < numbers[:, None]
    genes = np.full(there.shape, -1, dtype=np.int32)
    genes[there] = codes[written]
    left = [amount for _, amounts, _ in genotypes for amount in amounts]
    weakened = any(left)
    empty = (numbers == 0) & (not may_be_empty)  # a row of a control, which is ignored, is the wild type
    _check(rows, columns, genes, mistakes, strengths, empty, weakened=weakened)
    if not weakened:
        return Strains.from_matrix(names, genes)
    values = np.zeros(there.shape, dtype=np.float32)
    values[there] = pd.to_numeric(pd.Series(left).replace("", "0"), errors="coerce").to_numpy(dtype=np.float32)
    none: NDArray[np.bool_] = np.any(no_strengths(values), axis=1)
    do = "mend the cell; leave it empty for a deletion"
    what = "the strength of a gene is no amount"
    mistakes.add(rows, none, what, strengths or columns, expected=A_STRENGTH, do=do)
    values = np.where(no_strengths(values), np.float32(0), values)
    return Strains.from_matrix(names, genes, strengths=values[genes >= 0])


def deletes_twice(genes: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return whether a row names a gene twice, [R]."""
    ascending = np.sort(genes, axis=1)
    twice: NDArray[np.bool_] = np.any((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0), axis=1)
    return twice


def _check(
    rows: Rows,
    columns: Sequence[str],
    genes: NDArray[np.int32],
    mistakes: Mistakes,
    strengths: Sequence[str],
    empty: NDArray[np.bool_],
    *,
    weakened: bool,
) -> None:
    mistakes.add(
        rows,
        empty,
        "the strain deletes no gene",
        columns,
        expected="at least one gene that counts",
        do="remove the row, or check `genes` and `ignore_genes`",
    )
    mistakes.add(
        rows,
        deletes_twice(genes),
        f"a gene is {'changed' if weakened else 'deleted'} twice",
        [*columns, *strengths],
        expected="distinct genes" + (", each with one strength" if weakened else ""),
        do="remove the row or the repeated gene; two alleles of one gene are one gene here",
    )
