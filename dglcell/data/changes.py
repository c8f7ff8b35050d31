"""Read what the rows of tables change: genes, what is left of each, and what is wrong with them."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from dglcell.checks import AN_ACTIVITY, no_activities
from dglcell.data.table import MOST_SHOWN, Issue, Rows, by_text, uncollected
from dglcell.errors import GenotypeError, listing
from dglcell.graph.vocabulary import AliasTable, Vocabulary

GENES, GENE = "genes", "gene"
"""A column of the first name holds all deleted genes, separated by ``;``; so does one of the second name, where there
are no other columns of genes."""

ACTIVITIES, LEARNED_ACTIVITIES = "activities", "learned_activities"
"""Columns of these names hold the activities of ``GENES``, in the same order, and those that a model has learned."""

ACTIVITY = re.compile(r"(.+):(0|1|[0-9]*[.,][0-9]+(?:e-?[0-9]+)?)")
"""A cell with such a text holds a gene and its activity."""

NUMBERED = re.compile(r"gene_[0-9]{1,9}")
"""A column with such a name holds one deleted gene."""

WITHIN_CELL = ";"
"""This stands between the genes of a cell that holds several."""


def gene_columns(header: Sequence[str], where: str) -> list[str]:
    """Return the gene columns of a header, in order; ``where`` is the place of the table for messages.

    Raises:
        GenotypeError: there is none, or both forms are used.
    """
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

    Raises:
        GenotypeError: a gene column has no column of activities where others have one, or the other way round.
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


# Genes of rows, and what is left of each: all tables of strains are read by this.


def split_activity(written: str) -> tuple[str, str]:
    """Split the text of a cell, e.g. ``b0008:0.3``, into gene and activity; the activity may be empty.

    It is 0, 1, or a number with a decimal point or comma, since a name may itself have a colon before a number.
    """
    found = ACTIVITY.fullmatch(written)
    return (found[1].strip(), found[2]) if found else (written, "")


def is_ignored(name: str, ignored: Iterable[str]) -> bool:
    """Return whether a name is one of these, or fits one with ``*``, such as ``control_*``."""
    return any(name == one or ("*" in one and fnmatchcase(name, one)) for one in ignored)


def _parsed(cell: str, amount: str, *, several: bool) -> tuple[list[str], list[str], str]:
    """Return the genes of a cell, what is left of each as it is written, and what is wrong with the first wrong pair.

    Args:
        amount: the cell of activities beside it; empty where there is none.
        several: whether a cell may hold several genes.
    """
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


@dataclass(frozen=True)
class Changes:
    """Hold what the rows of a table delete or weaken, P changes one after the other."""

    rows: Rows  #: the table
    meant: dict[str, str]  #: written name → systematic name; the name itself where no gene has it
    names: tuple[str, ...]  #: distinct systematic names, in the order of the rows
    offsets: NDArray[np.int64]  #: [rows + 1]; row r has the changes ``offsets[r]`` to before ``offsets[r + 1]``
    genes: NDArray[np.int32]  #: [P] numbers of ``names``
    written: list[str]  #: P names as they are written
    #: [P] what is left, as it is written, with a decimal point; empty where nothing is said. None where no row says it.
    left: list[str] | None
    issues: list[Issue]  #: what is wrong

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Return how many genes each row names, [rows]."""
        return np.diff(self.offsets)

    @property
    def row_of(self) -> NDArray[np.int64]:
        """Return the row of each change, [P]."""
        return np.repeat(np.arange(len(self.rows)), self.numbers)

    def of_row(self, row: int) -> tuple[list[str], list[str]]:
        """Return the genes that a row names, and what is left of each."""
        part = slice(self.offsets[row], self.offsets[row + 1])
        names = self.written[part]
        return names, [""] * len(names) if self.left is None else self.left[part]

    @property
    def activities(self) -> NDArray[np.float32] | None:
        """Return what is left of each gene of all rows; None where no row says it. One that is no amount is 0."""
        if self.left is None:
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


def _amounts(texts: Iterable[str]) -> NDArray[np.float32]:
    """Return the numbers that texts say, 0 where they are empty, NaN where they say none."""
    import pandas as pd

    numbers = pd.to_numeric(pd.Series([*texts], dtype=object).replace("", "0"), errors="coerce")
    with np.errstate(over="ignore"):
        return numbers.to_numpy(dtype=np.float32)


def _of_several(name: str) -> str:
    return f"'{name}' stands for several genes"


@uncollected()
def read_changes(
    rows: Rows,
    genes: Sequence[str],
    activities: Sequence[str] = (),
    aliases: AliasTable | None = None,
    known: Vocabulary | None = None,
    ignored: Sequence[str] = (),
    *,
    may_be_empty: bool = False,
) -> Changes:
    """Read the deleted and weakened genes of the rows of a table.

    Args:
        rows: the table.
        genes: the columns of genes; a single one may hold several genes, separated by ``;``. An activity may stand
            behind a gene, ``b0008:0.3``. There may be none.
        activities: the columns of activities, in the same order; there may be none. They may have decimal commas.
        aliases: other names of genes.
        known: the genes of the cell graph, with their other names; those of ``aliases`` where None.
        ignored: names that do not count as deleted, as those of controls; ``*`` stands for any text in them.
        may_be_empty: whether a strain may change no gene, because it may differ by its covariates.

    Raises:
        DataError: a column is missing.
    """
    import pandas as pd

    row, written, left, wrong = _written(rows, genes, activities)
    aliases = aliases or AliasTable()
    among = aliases.targets if known is None else known
    distinct = list(dict.fromkeys(written))
    resolved, ambiguous = aliases.resolve(distinct, among, spelled=True)
    found = {name: among.find(meant) for name, meant in zip(distinct, resolved, strict=True)}
    meant = {n: of for n, of in found.items() if not (is_ignored(n, ignored) or is_ignored(of, ignored))}
    kept = [name in meant for name in written]
    ends = np.cumsum(np.bincount(np.array(row, np.int64)[kept], minlength=len(rows)))
    words, amounts = (list(itertools.compress(part, kept)) for part in (written, left))
    numbers, names = pd.factorize(np.array([meant[name] for name in words], dtype=object))
    several = [n for n, of in meant.items() if of not in among and len(among.others.systematic.get(n, ())) > 1]
    changes = Changes(
        rows,
        meant,
        tuple(names),
        np.concatenate([[0], ends]).astype(np.int64),
        numbers.astype(np.int32),
        words,
        amounts if any(amounts) else None,
        [],
    )
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


def _twice(changes: Changes) -> list[Issue]:
    order = np.lexsort((changes.genes, changes.row_of))
    rows, genes = changes.row_of[order], changes.genes[order]
    again = (rows[1:] == rows[:-1]) & (genes[1:] == genes[:-1])
    said = []
    for row in np.unique(rows[1:][again]).tolist():
        written = list(zip(*changes.of_row(row), strict=True))
        meant = [changes.meant[name] for name, _ in written]
        gene = min(one for one in meant if meant.count(one) > 1)
        same = [pair for pair, of in zip(written, meant, strict=True) if of == gene]
        how = "deleted twice"
        if any(left for _, left in same):
            how = f"changed twice, with activities {listing(left or '0' for _, left in same)}"
        also = sorted({name for name, _ in same})
        said.append((f"gene '{gene}' is {how}" + (f" (written {listing(also)})" if also != [gene] else ""), row))
    do = "remove the row or the repeated gene; two alleles of one gene are one gene here"
    return changes.rows.issues(by_text(said), do)


def number_of(text: str) -> float:
    """Return the number that a text says; Python alone would read ``1_000`` as a number.

    Raises:
        ValueError: it says none.
    """
    if "_" in text:
        raise ValueError(f"no number: '{text}'")
    return float(text)


def activity_of(written: object) -> float:
    """Return the activity that a text or a number says, 0 where it is empty; it may have a decimal comma.

    Raises:
        GenotypeError: it says no activity.
    """
    try:
        activity = number_of(str(written).replace(",", ".") or "0")
    except ValueError:
        activity = math.nan
    if no_activities(np.array(activity)) or activity > float(np.finfo(np.float32).max):
        raise GenotypeError("an activity is no amount", got=f"'{written}'", expected=AN_ACTIVITY)
    return activity


def list_genotypes(strains: Iterable[Iterable[str]]) -> list[list[str]]:
    """Return the deleted genes of each strain, as lists.

    Raises:
        GenotypeError: a strain is a text.
    """
    genotypes = list(strains)
    for strain in genotypes:
        if isinstance(strain, str):
            raise GenotypeError(
                "a strain is a list of genes",
                got=repr(strain),
                expected=f"e.g. [{strain!r}]",
                do="give a list of lists, or a DataFrame such as `pandas.read_csv(FILE)`",
            )
    return [[str(gene) for gene in strain] for strain in genotypes]


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
