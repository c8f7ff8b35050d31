"""Read the rows of tables of strains: their numbers, the genes that they change, and everything that is wrong."""

from __future__ import annotations

import functools
import gc
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.checks import AN_ACTIVITY, no_activities
from dglcell.errors import DataError, GenotypeError, count, did_you_mean, listing, shorten
from dglcell.graph.vocabulary import Vocabulary

if TYPE_CHECKING:
    import pandas as pd


REGRESSION, CLASSIFICATION = "regression", "classification"
"""Kinds of labels."""

STRAINS = "the strains"
"""Messages call strains so that come from no file."""

SHOWN_LINES, SHOWN_MENDED, MOST_SHOWN = 8, 5, 100
"""Most lines of an issue that a message names, most issues that a clean copy mends, and most issues in all."""


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


@dataclass(frozen=True)
class Rows:
    """Hold rows of a table."""

    file: str  #: the table's name, for messages
    frame: pd.DataFrame  #: cells as text
    lines: NDArray[np.int64]  #: [rows] line numbers in the file, from 1; of a DataFrame the numbers of its rows, from 0
    names: Sequence[str] | None = None  #: what messages call the rows of a DataFrame; None of a file

    @classmethod
    def of_frame(cls, frame: pd.DataFrame, columns: Sequence[str]) -> Rows:
        """Return columns of a DataFrame as text; empty cells are empty texts, and texts in its index are names."""
        import pandas as pd

        header = [str(name).strip() for name in frame.columns]
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

    def mended(self, issues: Sequence[Issue]) -> Rows:
        """Return the rows without faults: cells are mended or emptied, and rows left out."""
        frame, out = self.frame.copy(), np.zeros(len(self), dtype=bool)
        for issue in issues:
            chosen = np.isin(self.lines, issue.lines)
            if issue.column is None:
                out |= chosen
            else:
                frame.loc[chosen, issue.column] = issue.cell
        return Rows(self.file, frame, self.lines, self.names).keep(~out)

    def column(self, name: str, key: str) -> pd.Series:
        """Return a column of text, which the configuration key ``key`` asks for."""
        if name not in self.frame.columns:
            raise DataError(
                f"'{self.file}': no column '{name}', which `{key}` asks for",
                expected="one of " + listing(self.frame.columns, 30),
                do=did_you_mean(name, self.frame.columns),
            )
        return self.frame[name]

    def where(self, column: str, value: str) -> Rows:
        """Return the rows whose cell in ``column`` is ``value``."""
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
    """Return a line for each issue, in the order of the rows; of cells that a clean copy mends, for a few."""
    said, mended = list[str](), 0
    for issue in sorted(issues, key=lambda issue: issue.lines[0]):
        mended += bool(issue.cell)
        if not issue.cell or mended <= SHOWN_MENDED:
            said.append(f"  {rows.place(issue.lines)}: {shorten(issue.what, 400)}")
    return said + ([f"  and {mended - SHOWN_MENDED:,} more that a clean copy mends"] if mended > SHOWN_MENDED else [])


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


# Columns of numbers.


MISSING = ("", "na", "n/a", "nan")
"""These cells always mean "not measured", in small or capital letters."""

THOUSANDS = r"[+-]?[1-9]\d{0,2}(,\d{3})+"  # either a decimal comma, or separators of thousands
MINUS = r"^[\u2212\u2013\ufe63\uff0d](?=[\d.,])"
"""Word processors and other programs write these before a negative number: a minus sign, or an en dash."""

Numbers = NDArray[np.float64]


def read_numbers(cells: pd.Series, decimal: str, na_values: Sequence[str]) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return the numbers of a column of text, [rows], NaN where a cell holds none, and which mean "not measured".

    These are cells of ``MISSING`` and ``na_values``. ``decimal`` is a point or a comma.
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


def number_issues(rows: Rows, column: str, values: Numbers, wrong: NDArray[np.bool_], decimal: str) -> list[Issue]:
    """Return an issue for each text of a column that is no finite number, as far as float32 goes."""
    issues, cells = list[Issue](), rows.frame[column].str.strip()
    for cell, where in by_text((cells.iloc[row], row) for row in np.flatnonzero(wrong).tolist()).items():
        if decimal == "." and re.fullmatch(r"[+-]?\d+,\d+([eE][+-]?\d+)?", cell) and not re.fullmatch(THOUSANDS, cell):
            mended = cell.replace(",", ".")
            what = f"{column} '{cell}' has a decimal comma ({mended} in a clean copy)"
            do = 'set `decimal: ","`, or write numbers with decimal points'
            issues += rows.issues({what: where}, do, column=column, cell=mended)
        else:
            none = bool(np.isnan(values[where[0]]))
            what = f"{column} '{cell}' is no {'' if none else 'finite '}number"
            do = 'mend the cell, or add it to `na_values` if it means "not measured"'
            word = cell if none and not any(c.isdigit() for c in cell) else None
            issues += rows.issues({what: where}, do, column=column, word=word)
    return issues


def numbers_of(columns: Any, names: Iterable[str]) -> dict[str, NDArray[np.float32]]:
    """Return some columns of numbers."""
    try:
        return {name: np.asarray(columns[name], dtype=np.float32) for name in names}
    except (TypeError, ValueError) as error:
        raise DataError("a column of phenotypes holds no numbers", got=error, expected="numbers, or NaN") from error


def number_of(text: str) -> float:
    """Return the number that a text says; Python alone would read ``1_000`` as a number."""
    if "_" in text:
        raise ValueError(f"no number: '{text}'")
    return float(text)


def activity_of(written: object) -> float:
    """Return the activity that a text or a number says, 0 where it is empty; it may have a decimal comma."""
    try:
        activity = number_of(str(written).replace(",", ".") or "0")
    except ValueError:
        activity = math.nan
    if no_activities(np.array(activity)) or activity > float(np.finfo(np.float32).max):
        raise GenotypeError("an activity is no amount", got=f"'{written}'", expected=AN_ACTIVITY)
    return activity


def _amounts(texts: Iterable[str]) -> NDArray[np.float32]:
    """Return the numbers that texts say, 0 where they are empty, NaN where they say none."""
    import pandas as pd

    numbers = pd.to_numeric(pd.Series([*texts], dtype=object).replace("", "0"), errors="coerce")
    with np.errstate(over="ignore"):
        return numbers.to_numpy(dtype=np.float32)


# Columns of genes, and of what is left of each.


GENES, GENE = "genes", "gene"
"""A column of the first name holds all deleted genes, separated by ``;``; so does one of the second name, where there
are no other columns of genes."""

ACTIVITIES, LEARNED_ACTIVITIES = "activities", "learned_activities"
"""Columns of these names hold the activities of ``GENES``, in the same order, and those that a model has learned."""

NUMBERED = re.compile(r"gene_[0-9]{1,9}")
"""A column with such a name holds one deleted gene."""

WITHIN_CELL = ";"
"""This stands between the genes of a cell that holds several."""


def gene_columns(header: Sequence[str], where: str) -> list[str]:
    """Return the gene columns of a header, in order; ``where`` is the place of the table for messages."""
    numbered = [name for name in header if NUMBERED.fullmatch(name)]
    single = [name for name in header if name == GENES] or [name for name in header if name == GENE and not numbered]
    if bool(numbered) == bool(single):
        expected = "either `gene_1, gene_2, …` or one column `genes` separated by `;`"
        do = "name them with `--columns` on the command line, or rename them"
        what = f"{where}: {'two kinds of' if numbered else 'no'} gene columns"
        raise GenotypeError(what, got=", ".join(header), expected=expected, do=do)
    return sorted(numbered, key=lambda name: int(name[5:])) or single


def activity_columns(header: Sequence[str], genes: Sequence[str], where: str) -> list[str]:
    """Return the columns of activities that a table has for its gene columns, in the same order; there may be none.

    They are ``activity_1, …`` for ``gene_1, …``, and ``activities`` for a single column of all genes.
    """
    names = [f"activity{gene[4:]}" if NUMBERED.fullmatch(gene) else ACTIVITIES for gene in genes]
    there = [name for name in header if re.fullmatch(rf"{ACTIVITIES}|activity_[0-9]{{1,9}}", name)]
    if there and sorted(there) != sorted(names):
        raise GenotypeError(
            f"{where}: the columns of activities do not fit the columns of genes",
            got=f"{listing(there)} beside {listing(genes)}",
            expected="`activity_1` beside `gene_1` and so on, or `activities` beside one column of all genes",
            do="name them so, or write activities behind genes, e.g. b0008:0.3",
        )
    return names if there else []


def split_activity(written: str) -> tuple[str, str]:
    """Split the text of a cell, e.g. ``b0008:0.3``, into gene and activity; the activity may be empty.

    It is 0, 1, or a number with a decimal point or comma, since a name may itself have a colon before a number.
    """
    found = re.fullmatch(r"(.+):(0|1|[0-9]*[.,][0-9]+(?:e-?[0-9]+)?)", written)
    return (found[1].strip(), found[2]) if found else (written, "")


@dataclass(frozen=True)
class Changes:
    """Hold what the rows of a table delete or weaken, P changes one after the other."""

    rows: Rows  #: the table
    meant: dict[str, str]  #: written name → systematic name; the name itself where no gene has it
    row_of: NDArray[np.int64]  #: [P] rows, ascending
    written: list[str]  #: P names as they are written
    left: list[str]  #: P texts, what is left, with a decimal point; empty where nothing is said
    issues: list[Issue] = field(default_factory=list)  #: what is wrong

    @cached_property
    def targets(self) -> tuple[tuple[str, ...], NDArray[np.int32], NDArray[np.int64]]:
        """Return names, targets and offsets as `Strains` has them; names are in the order of the rows."""
        import pandas as pd

        numbers, names = pd.factorize(np.array([self.meant[name] for name in self.written], dtype=object))
        return tuple(names), numbers.astype(np.int32), np.concatenate([[0], np.cumsum(self.numbers)])

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Return how many genes each row names, [rows]."""
        return np.bincount(self.row_of, minlength=len(self.rows))

    @cached_property
    def activities(self) -> NDArray[np.float32] | None:
        """Return what is left of each gene of all rows; None where no row says it. One that is no amount is 0."""
        if not any(self.left):
            return None
        values = _amounts(self.left)
        return np.where(no_activities(values), np.float32(0), values)

    def unknown(self, genes: Vocabulary) -> list[str]:
        """Return the written names that no gene has."""
        return [name for name, found in self.meant.items() if found not in genes]

    def unknown_issues(self, genes: Vocabulary, but: Callable[[str], bool] = lambda found: False) -> list[Issue]:
        """Return an issue for each name that no gene has, except those of which ``but`` is true."""
        named = {issue.what for issue in self.issues}
        wanted = [n for n in self.unknown(genes) if not but(self.meant[n]) and _of_several(n) not in named]
        # Close names take time, and a message shows no more.
        said = {name: genes.suggestion(name) if i < MOST_SHOWN else "" for i, name in enumerate(wanted)}
        where = self.where(wanted)
        return self.rows.issues({f"unknown gene '{name}'{said[name]}": where[name] for name in wanted})

    def where(self, names: Iterable[str]) -> dict[str, list[int]]:
        """Return written name → numbers of the rows that have it."""
        found: dict[str, list[int]] = {name: [] for name in names}
        if found:
            for name, row in zip(self.written, self.row_of.tolist(), strict=True):
                if name in found and row not in found[name][-1:]:
                    found[name].append(row)
        return found


def _of_several(name: str) -> str:
    return f"'{name}' stands for several genes"


@uncollected()
def read_changes(
    rows: Rows,
    genes: Sequence[str],
    activities: Sequence[str] = (),
    aliases: Vocabulary | None = None,
    known: Vocabulary | None = None,
    ignored: Sequence[str] = (),
    *,
    may_be_empty: bool = False,
) -> Changes:
    """Read the deleted and weakened genes of the rows of a table.

    Args:
        genes: the columns of genes; a single one may hold several genes, separated by ``;``. An activity may stand
            behind a gene, ``b0008:0.3``. There may be none.
        activities: the columns of activities, in the same order; there may be none. They may have decimal commas.
        aliases: other names of genes.
        known: the genes of the cell graph, with their other names; those of ``aliases`` where None.
        ignored: names that do not count as deleted, as those of controls; ``*`` stands for any text in them.
        may_be_empty: whether a strain may change no gene, because it may differ by its covariates.
    """
    row, written, left, wrong = _written(rows, genes, activities)
    aliases = Vocabulary() if aliases is None else aliases
    among = aliases if known is None else known
    distinct = list(dict.fromkeys(written))
    resolved, ambiguous = aliases.resolve(distinct, among, spelled=True)
    found = {name: among.find(meant) for name, meant in zip(distinct, resolved, strict=True)}
    plain, patterns = {*ignored}, [one for one in ignored if "*" in one]
    out = {n for n, of in found.items() if {n, of} & plain or any(fnmatchcase(x, p) for p in patterns for x in (n, of))}
    meant = {name: of for name, of in found.items() if name not in out}
    kept = [name in meant for name in written]
    words, amounts = (list(itertools.compress(part, kept)) for part in (written, left))
    several = [n for n, of in meant.items() if of not in among and len(among.aliases.get(n, ())) > 1]
    changes = Changes(rows, meant, np.array(row, np.int64)[np.array(kept, bool)], words, amounts)
    # A row of a control, which is ignored, is the wild type.
    blank = [] if may_be_empty or not genes else sorted({*range(len(rows))} - {*row})
    bad = np.flatnonzero(no_activities(_amounts(amounts)))
    no_amounts = [
        (f"'{amounts[i]}' is no activity of a gene, which is {AN_ACTIVITY}", int(changes.row_of[i])) for i in bad
    ]
    of_several = changes.where(name for name in meant if name in {*ambiguous, *several})
    changes.issues.extend([
        *rows.issues({"no gene is deleted": blank}, "remove the row, or check `genes` and `ignore_genes`"),
        *rows.issues(by_text(wrong), "write one activity for each gene, behind its name or in a column"),
        *_twice(changes),
        *rows.issues(by_text(no_amounts), "mend the cell; leave it empty for a deletion"),
        *rows.issues({_of_several(n): where for n, where in of_several.items()}, "replace them by systematic names"),
    ])  # fmt: skip
    return changes


def _written(
    rows: Rows, genes: Sequence[str], activities: Sequence[str]
) -> tuple[list[int], list[str], list[str], list[tuple[str, int]]]:
    """Return row, name and activity of all changes as they are written, P each, and what is wrong in which rows."""
    parsed = functools.cache(functools.partial(_parsed, several=len(genes) == 1))
    columns = [rows.column(name, "genes").tolist() for name in genes]
    of_left = [rows.column(name, "activities").tolist() for name in activities] or [[""] * len(rows)] * len(genes)
    read = [map(parsed, cells, amounts) for cells, amounts in zip(columns, of_left, strict=True)]
    row, names, left, wrong = list[int](), list[str](), list[str](), list[tuple[str, int]]()
    for number, cells in enumerate(zip(*read, strict=True)):
        for found, of, fault in cells:
            row += [number] * len(found)
            names += found
            left += of
            if fault:
                wrong.append((fault, number))
    return row, names, left, wrong


def _parsed(cell: str, amount: str, *, several: bool) -> tuple[list[str], list[str], str]:
    """Return the genes of a cell, what is written to be left of each, and what is wrong with the first wrong pair."""
    genes, left, wrong = list[str](), list[str](), ""
    cells, amounts = (
        [part.strip() for part in (text.split(WITHIN_CELL) if several else [text])] for text in (cell, amount)
    )
    for one, of in itertools.zip_longest(cells, amounts, fillvalue=""):
        gene, behind = split_activity(one)
        if of and (behind or not gene) and not wrong:
            wrong = f"an activity {'is given twice' if gene else 'has no gene'}: '{one}' and '{of}'"
        if gene:
            genes.append(gene)
            left.append((of or behind).replace(",", "."))
    return genes, left, wrong


def _twice(changes: Changes) -> list[Issue]:
    import pandas as pd

    said, table = [], pd.DataFrame({"row": changes.row_of, "gene": changes.targets[1]})
    for same in table[table.duplicated(keep=False)].groupby(["row", "gene"]).groups.values():
        written, left = ([of[i] for i in same] for of in (changes.written, changes.left))
        gene, also = changes.meant[written[0]], sorted({*written})
        how = f"changed twice, with activities {listing(of or '0' for of in left)}" if any(left) else "deleted twice"
        what = f"gene '{gene}' is {how}" + (f" (written {listing(also)})" if also != [gene] else "")
        said.append((what, int(changes.row_of[same[0]])))
    do = "remove the row or the repeated gene; two alleles of one gene are one gene here"
    return changes.rows.issues(by_text(said), do)


def sets_at(ranks: NDArray[np.int64], genes: int, size: int) -> NDArray[np.int64]:
    """Return the sets of genes with these ranks in the combinatorial number system, [S, size], each ascending."""
    below = [np.arange(genes)]  # [genes] sets of 1, 2 … genes, all of which come before a gene
    for _ in range(1, size):
        below.append(np.cumsum(below[-1]) - below[-1])
    rows = np.empty((len(ranks), size), np.int64)
    for column in range(size - 1, -1, -1):
        rows[:, column] = np.searchsorted(below[column], ranks, side="right") - 1
        ranks = ranks - below[column][rows[:, column]]
    return rows
