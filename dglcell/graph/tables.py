"""Read tables that others wrote: edges and groups of genes, and a row of numbers for each of some names."""

from __future__ import annotations

import csv
import mmap
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError, import_optional, listing
from dglcell.files.atomic import CONTROL, DAMAGE, MOST_COLUMNS, open_text
from dglcell.files.untrusted import UnreadableError, read_npz

if TYPE_CHECKING:
    import pandas as pd

    from dglcell.graph.vocabulary import Vocabulary

SEPARATORS = ("auto", ",", "\t", ";", " ")
"""These separators are accepted; a space stands for any run of blanks."""


@dataclass(frozen=True)
class EdgeTable:
    """Hold columns of one text file."""

    path: Path  #: the file
    #: requested column → the names in it as categories, in order and without surrounding blanks. The index is the line
    #: of the file, counted from 1.
    frame: pd.DataFrame
    labels: dict[str, str]  #: requested column → its name in the header (the request itself where there is no header)

    def __len__(self) -> int:
        return len(self.frame)

    def text(self, column: str, *, filled: bool = True) -> tuple[list[str], NDArray[np.int64]]:
        """Return the distinct names of a column, sorted, and the index of each row's, [rows]; of all if ``filled``."""
        values = self.frame[column]
        empty = self.frame.index[values == ""]
        if filled and len(empty):
            what = f"'{self.path.name}', line {empty[0]}: column '{self.labels[column]}' is empty"
            do = "mend the file, or choose another separator or column"
            raise GraphError(what, got=f"{len(empty):,} such rows", do=do)
        used = values.cat.remove_unused_categories().cat
        return list(used.categories), np.asarray(used.codes, dtype=np.int64)

    def number(self, column: str) -> NDArray[np.float64]:
        """Return a column of finite numbers."""
        import pandas as pd

        written = self.frame[column]
        names = pd.Series(written.cat.categories, dtype=object)
        values = pd.to_numeric(names, errors="coerce").to_numpy(dtype=np.float64)[written.cat.codes]
        # A number beyond float32 would become infinite in the graph.
        bad = np.flatnonzero(~(np.abs(values) <= np.finfo(np.float32).max))
        if bad.size:
            value, line = written.iloc[bad[0]], self.frame.index[bad[0]]
            what = f"'{self.path.name}', line {line}: weight in column '{self.labels[column]}'"
            got, do = f"'{value}'" if value else "nothing", "mend the file, or choose another weight column"
            raise GraphError(what, got=got, expected="a finite number", do=do)
        return values

    def where(self, conditions: Mapping[str, str]) -> EdgeTable:
        """Return the rows that hold a value in each of some columns."""
        kept = np.ones(len(self), dtype=bool)
        for column, value in conditions.items():
            rows = (self.frame[column] == value).to_numpy()
            if not rows.any():
                what = f"network file '{self.path.name}': no row has '{value}' in column '{self.labels[column]}'"
                got = listing(name or "nothing" for name in self.text(column, filled=False)[0])
                raise GraphError(what, got=got, do="correct `where`, or check that the file is the one meant")
            kept &= rows
        return self.select(kept)

    def select(self, kept: NDArray[np.bool_]) -> EdgeTable:
        """Return the ``kept`` rows."""
        return self if kept.all() else EdgeTable(self.path, self.frame[kept], self.labels)


def read_table(
    path: Path, wanted: Sequence[str], separator: str, header: bool | None, *, quotes: bool = True
) -> EdgeTable:
    """Read some columns of a text file, plain or ``.gz``; a ``GraphError`` says what is wrong with it.

    Args:
        path: the file.
        wanted: column names of the header, or positions from 0 written as numbers.
        separator: one of `SEPARATORS`; ``auto`` is the first of tab, comma and semicolon in line 1, else blanks.
        header: whether the first line names the columns; None: it does if a wanted column is not a number.
        quotes: whether fields may stand in double quotes; otherwise a quote is a character like others.
    """
    import pandas as pd

    has_header = header if header is not None else not all(column.isdecimal() for column in wanted)
    try:
        if path.suffix != ".gz" and path.stat().st_size:
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                if (at := content.find(b"\0")) >= 0:  # pandas ends a name there, and other programs do not
                    raise _unreadable(path, ValueError(f"a NUL at byte {at:,}"))
        first = _first_line(path)
        if separator == "auto":
            separator = next((mark for mark in ("\t", ",", ";") if mark in first), " ")
        fields = first.split() if separator == " " else first.split(separator)
        names = [field.strip().strip('"') for field in fields]
        if len(names) > MOST_COLUMNS:
            what, do = f"network file '{path.name}' has too many columns", "write a matrix of pairs as a table of pairs"
            do = f"keep those of genes and weights; {do}"
            raise GraphError(what, got=f"{len(names):,}", expected=f"{MOST_COLUMNS:,} or fewer", do=do)
        positions = {column: _position(column, names, has_header, path) for column in wanted}
        with warnings.catch_warnings():
            # pandas only warns when all rows are longer than the first line, and then drops what is too much.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            whole = pd.read_csv(
                path, sep=separator.replace(" ", r"\s+"), header=None, skiprows=int(has_header),
                names=list(range(len(names))), dtype="category", keep_default_na=False, na_values=[],
                skip_blank_lines=False, index_col=False, encoding_errors="replace",
                quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
            )  # fmt: skip
    except (*DAMAGE, pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise _unreadable(path, error) from error
    whole.index = pd.RangeIndex(1 + has_header, len(whole) + 1 + has_header)
    frame = pd.DataFrame({column: _names(whole[position]) for column, position in positions.items()})
    # This character stands for bytes that are no UTF-8, which are harmless in columns that are not read.
    undecodable = re.compile("\N{REPLACEMENT CHARACTER}")
    for column in frame:
        for what, sign in (("bytes that are not UTF-8", undecodable), ("control characters", CONTROL)):
            if any(map(sign.search, frame[column].cat.categories)):
                raise _unreadable(path, ValueError(f"{what} in column '{column}'"))
    nothing = (frame == "").all(axis=1)
    others = whole[nothing].astype(object).fillna("").map(str.strip)
    blank = others.index[(others == "").all(axis=1)]
    labels = {column: names[position] if has_header else column for column, position in positions.items()}
    return EdgeTable(path, frame.drop(blank), labels)


def _names(written: pd.Series) -> pd.Series:
    """Return names without surrounding blanks, which then may be the same; an absent one is empty."""
    import pandas as pd

    stripped = np.array(["", *map(str.strip, written.cat.categories)], dtype=object)
    names, place = np.unique(stripped, return_inverse=True)
    return pd.Series(pd.Categorical.from_codes(place[written.cat.codes + 1], pd.Index(names)), written.index)


def _unreadable(path: Path, error: Exception) -> GraphError:
    got = str(error).strip().splitlines()[0].removeprefix("Error tokenizing data. C error: ")
    what, do = f"network file '{path.name}' cannot be read to its end", "copy or download the file again"
    expected = "a text table, plain or .gz, with equally many columns in every row"
    return GraphError(what, got=got, expected=expected, do=do)


def _first_line(path: Path) -> str:
    with open_text(path, errors="replace") as file:
        line = file.readline().rstrip("\r\n")
    if not line:
        what = f"network file '{path.name}' is empty or begins with an empty line"
        raise GraphError(what, expected="a row of column names or data", do="check the file")
    return line


def _position(column: str, names: list[str], has_header: bool, path: Path) -> int:
    if has_header and names.count(column) > 1:
        raise GraphError(f"network file '{path.name}': two columns are called '{column}'", do="name it by its position")
    if has_header and column in names:
        return names.index(column)
    if column.isdecimal() and int(column) < len(names):
        return int(column)
    expected = (listing(names, 20) + ", or " if has_header else "") + f"a number from 0 to {len(names) - 1}"
    do = "name one of these columns" + ("" if has_header else ", or set `header: true` if line 1 names them")
    raise GraphError(f"network file '{path.name}' has no column '{column}'", expected=expected, do=do)


VECTORS = (".csv", ".csv.gz", ".parquet", ".npz")
"""Files of vectors end in one of these."""


def read_vectors(path: Path, key: str) -> tuple[list[str], NDArray[np.float64]]:
    """Read G names, and [G, D] finite numbers.

    The file is CSV or Parquet with a name in the first column and numbers in the others. Or it is an ``.npz`` file
    with the arrays ``genes`` [G] of names and ``vectors`` [G, D].

    Raises:
        GraphError: the file is damaged or of another form, a number is not finite, or a name occurs twice.
        MissingDependencyError: the file is Parquet, and pyarrow is not installed.
    """
    where = f"`{key}`: '{path.name}'"
    if not path.name.endswith(VECTORS):
        raise GraphError(f"`{key}`: unknown form of file", got=path.name, expected=", ".join(VECTORS))
    try:
        names, values = _read_arrays(path)
        vectors = np.asarray(values, dtype=np.float64)
    except (*DAMAGE, UnreadableError, ValueError, TypeError, KeyError, Warning) as error:
        got = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        expected = "a name and equally many numbers in every row; in npz the arrays `genes` and `vectors`"
        raise GraphError(f"{where} cannot be read", got=got, expected=expected) from error
    if vectors.ndim != 2 or vectors.shape[0] != len(names) or not vectors.shape[1]:
        got = f"{len(names):,} names and numbers of shape {list(vectors.shape)}"
        expected = "a row of one or more numbers for each name"
        raise GraphError(f"{where} has no vector for each name", got=got, expected=expected)
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise GraphError(f"{where} has names twice", got=listing(sorted(twice)), do="keep one row of each")
    if rows := np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist():
        got, do = listing(sorted(names[row] for row in rows)), "leave these names out of the file"
        raise GraphError(f"{where} has numbers that are not finite", got=got, do=do)
    return names, vectors


def _read_arrays(path: Path) -> tuple[list[str], NDArray[Any]]:
    if path.suffix == ".npz":
        arrays = read_npz(path)
        return [str(name) for name in arrays["genes"].ravel()], arrays["vectors"]
    import pandas as pd

    if path.suffix == ".parquet":
        import_optional("pyarrow", "Parquet files", "pip install 'dglcell[parquet]'")
        frame = pd.read_parquet(path)
    else:
        with warnings.catch_warnings(), open_text(path) as file:
            warnings.simplefilter("error", pd.errors.ParserWarning)  # as in `read_table`
            frame = pd.read_csv(file, index_col=False)
    return [str(name) for name in frame.iloc[:, 0]], frame.iloc[:, 1:].to_numpy()


def refuse_strangers(what: str, names: Sequence[str], known: Vocabulary) -> NoReturn:
    """Refuse a file that names nothing of the cell graph."""
    got = f"{len(names):,} names, e.g. {names[0] if names else 'none'}"
    raise GraphError(f"{what} of the cell graph", got=got, expected=f"names such as {known.names[0]}")


def standardised(values_NF: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return every column with mean 0 and standard deviation 1; a constant column becomes 0."""
    sd = values_NF.std(axis=0)
    out: NDArray[np.float64] = (values_NF - values_NF.mean(axis=0)) / np.where(sd > 0, sd, 1)
    return out
