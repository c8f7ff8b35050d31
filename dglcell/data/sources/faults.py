"""Find everything that is wrong with a user's own table of strains in one pass, and write a copy without it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dglcell.checks import A_STRENGTH, no_strengths
from dglcell.data.sources.text_table import Rows, read_numbers, written_genotypes
from dglcell.data.table import is_ignored, number_of
from dglcell.errors import DataError, count, listing
from dglcell.files.atomic import atomic_file
from dglcell.graph.vocabulary import AliasTable, Vocabulary, form_of

MOST_SHOWN = 200
"""A message lists at most so many faults."""

SHOWN_ALIKE = 5
"""A message lists at most so many contradictions."""

CONTRADICTING = "contradiction"
"""Such faults are of one kind, of which a few examples say enough."""

SHOWN_LINES = 8
"""A message names at most so many of the lines that share a fault."""

SPREAD = 3.0
"""Rows of the same genes may differ by so many standard deviations, estimated by the median deviation."""

NEARLY_ALL, FEW_BLANK = 0.95, 20
"""Where so large a part of the rows fill all columns of genes, and fewer rows than that do not, a blank is a fault."""

NUMBER_WITH_COMMA = re.compile(r"\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class Fault:
    """Describe something that is wrong in rows of a table.

    Attributes:
        rows: the numbers of the rows, from 0.
        what: the fault in words; it ends a sentence that begins with the lines.
        column: the column whose cells the copy without faults changes; where None, the copy leaves the rows out.
        cell: the text of these cells in the copy.
        word: a cell that may mean "not measured".
        kind: what faults of this kind are together, where a few examples of them say enough.
    """

    rows: tuple[int, ...]
    what: str
    column: str | None = None
    cell: str = ""
    word: str | None = None
    kind: str = ""


@dataclass(frozen=True)
class TableColumns:
    """Say what the columns of a table hold.

    Attributes:
        genes: columns of genes.
        phenotypes: columns of numbers.
        decimal: point or comma.
        na_values: cells that mean "not measured".
        keep_blank: whether rows with a blank gene are strains with fewer deletions, however few they are.
        strengths: columns of what is left of each gene, in the order of ``genes``; there may be none.
        conditions: columns of conditions, which every strain needs.
        guides: columns of sequences and sites of guides, which a strain may lack.
        average: whether rows of the same strain are replicates, however much their values differ.
        ignore: names that stand for no deletion, as those of controls do.
    """

    genes: Sequence[str]
    phenotypes: Sequence[str]
    decimal: str = "."
    na_values: Sequence[str] = ()
    keep_blank: bool = False
    strengths: Sequence[str] = ()
    conditions: Sequence[str] = ()
    guides: Sequence[str] = ()
    average: bool = False
    ignore: Sequence[str] = ()

    @property
    def apart(self) -> list[str]:
        """Return the columns that tell strains of the same genes apart. If there are any, no gene need be changed."""
        return [*self.conditions, *self.guides]


class FaultsError(DataError):
    """Report that a table has faults; the message lists them line by line, however long it gets."""

    def __init__(self, rows: Rows, faults: Sequence[Fault], do: str) -> None:
        bad = len({row for fault in faults for row in fault.rows})
        head = f"'{rows.file}': {count(len(faults), 'fault')} in {bad:,} of {count(len(rows), 'row')}"
        super().__init__(head, do=do)
        lines = describe_faults(rows, faults)
        more = [f"  and {len(lines) - MOST_SHOWN:,} more"] if len(lines) > MOST_SHOWN else []
        self.args = ("\n".join([head, *lines[:MOST_SHOWN], *more, f"  do:       {do}"]),)


def describe_faults(rows: Rows, faults: Sequence[Fault]) -> list[str]:
    """Return a line for each fault, but only for the first few of a kind of which a few say enough."""
    said, alike = list[str](), Counter[str]()
    for fault in faults:
        alike[fault.kind] += 1
        if fault.kind and alike[fault.kind] > SHOWN_ALIKE:
            continue
        lines = rows.lines[list(fault.rows)]
        said.append(f"  line{'s' if len(lines) > 1 else ''} {listing(lines, SHOWN_LINES)}: {fault.what}")
    more = ((number - SHOWN_ALIKE, kind) for kind, number in alike.items() if kind and number > SHOWN_ALIKE)
    return said + [f"  and {count(number, f'more {kind}')}" for number, kind in more]


def na_options(faults: Sequence[Fault]) -> str:
    """Return what to add to a command so that words are read as "not measured"; it is safe to paste into a shell."""
    words = dict.fromkeys(fault.word for fault in faults if fault.word is not None)
    return " ".join(shlex.quote(f"--na-values={word}") for word in words)


def find_faults(rows: Rows, columns: TableColumns, strains: Written, genes: Vocabulary) -> list[Fault]:
    """Return all faults, in the order of their first lines.

    Args:
        rows: the table.
        columns: the meaning of its columns.
        strains: the genes that its rows delete.
        genes: the genes of the cell graph, with their other names.
    """
    numbers = {name: read_numbers(rows.frame[name], columns.decimal, columns.na_values) for name in columns.phenotypes}
    found = [
        *_faulty_genes(strains, genes, may_be_empty=bool(columns.apart)),
        *_blank_genes(rows, columns, strains),
        *_faulty_strengths(strains),
        *_missing_conditions(rows, columns),
    ]
    keys = [] if columns.average else strain_keys(rows, columns, strains)
    for name, (values, missing) in numbers.items():
        found += _faulty_numbers(rows, name, values, missing, columns.decimal)
        if keys:
            found += _contradictions(rows, columns, strains, keys, name, values)
    return sorted(found, key=lambda fault: fault.rows[0])


def write_clean(rows: Rows, faults: Sequence[Fault], file: Path) -> int:
    """Write a table without its faults as CSV: cells are mended or emptied, and rows are left out.

    Returns:
        how many rows were left out.
    """
    frame = rows.frame.copy()
    out = np.zeros(len(rows), dtype=bool)
    for fault in faults:
        chosen = list(fault.rows)
        if fault.column is None:
            out[chosen] = True
        else:
            frame.loc[frame.index[chosen], fault.column] = fault.cell
    with atomic_file(file) as partial:
        frame[~out].to_csv(partial, index=False, lineterminator="\n")
    return int(out.sum())


# Faults of genes.


@dataclass(frozen=True)
class Written:
    """Hold what the rows of a table delete or weaken.

    Attributes:
        rows: names of each row, without blanks around them.
        meant: name → systematic name; the name itself where the cell graph lacks the gene.
        unknown: names of genes that the cell graph lacks.
        ambiguous: names of several genes.
        left: what is left of each gene of ``rows`` as the table says it; empty where it says nothing.
        stray: numbers of the rows where a strength has no gene, or a gene has two.
        blank: numbers of the rows that name nothing.
    """

    rows: list[list[str]]
    meant: dict[str, str]
    unknown: list[str]
    ambiguous: frozenset[str]
    left: list[list[str]]
    stray: list[int]
    blank: list[int]

    @classmethod
    def of(
        cls,
        rows: Rows,
        columns: Sequence[str],
        genes: Vocabulary,
        aliases: AliasTable,
        strengths: Sequence[str] = (),
        ignored: Sequence[str] = (),
    ) -> Written:
        """Read the columns of genes.

        Args:
            rows: the table.
            columns: the columns of genes.
            genes: the genes of the cell graph, with their other names.
            aliases: more names of genes.
            strengths: the columns of what is left of them; there may be none.
            ignored: names that stand for no deletion.

        Raises:
            DataError: there is no such column.
        """
        genotypes = written_genotypes(rows, columns, strengths, ("--genes", "--strengths"))
        blank = [row for row, (names, _, _) in enumerate(genotypes) if not names]
        kept = [[not is_ignored(name, ignored) for name in names] for names, _, _ in genotypes]
        written = [[*compress(names, use)] for (names, _, _), use in zip(genotypes, kept, strict=True)]
        left = [[*compress(amounts, use)] for (_, amounts, _), use in zip(genotypes, kept, strict=True)]
        stray = [row for row, (_, _, odd) in enumerate(genotypes) if odd is not None]
        distinct = list(dict.fromkeys(name for row in written for name in row))
        resolved, ambiguous = aliases.resolve(distinct, genes, spelled=True)
        meant = {name: genes.find(found) for name, found in zip(distinct, resolved, strict=True)}
        unknown = [name for name, found in meant.items() if found not in genes]
        several = [name for name in unknown if len(genes.others.systematic.get(name, ())) > 1]
        return cls(written, meant, unknown, frozenset([*ambiguous, *several]), left, stray, blank)

    def found(self, row: int) -> list[str]:
        """Return the systematic names of a row."""
        return [self.meant[name] for name in self.rows[row]]


def strain_keys(rows: Rows, columns: TableColumns, strains: Written) -> list[Hashable]:
    """Return what tells the strain of each row apart: its genes with what is left of them, and its conditions."""
    conditions = [[_plain(cell) for cell in rows.column(name, "--conditions")] for name in columns.apart]
    grown = zip(*conditions, strict=True) if conditions else [()] * len(rows)
    changed = (
        frozenset(zip(strains.found(row), map(_plain, left), strict=True)) for row, left in enumerate(strains.left)
    )
    return list(zip(changed, grown, strict=True))


def _plain(cell: str) -> float | str:
    """Return the number that a cell says, 0 where it is empty, or else its text."""
    try:
        return number_of(cell.strip() or "0")
    except ValueError:
        return cell.strip()


def _faulty_genes(strains: Written, genes: Vocabulary, *, may_be_empty: bool) -> Iterator[Fault]:
    where: dict[str, list[int]] = {}
    if strains.blank and not may_be_empty:
        yield Fault(tuple(strains.blank), "no gene is deleted")
    for row, written in enumerate(strains.rows):
        found = strains.found(row)
        twice = sorted({gene for gene in found if found.count(gene) > 1})
        if twice:
            same = [place for place, gene in enumerate(found) if gene == twice[0]]
            names, left = [written[place] for place in same], [strains.left[row][place] for place in same]
            written_as = names[0] if len({*names}) == 1 else f"{twice[0]} (written {' and '.join(names)})"
            how = "deleted twice"
            if any(left):
                how = f"changed twice, with strengths {listing([one or '0' for one in left])}"
            yield Fault((row,), f"{written_as} is {how}")
        for name in dict.fromkeys(written):
            where.setdefault(name, []).append(row)
    for name in strains.unknown:
        if name in strains.ambiguous:
            yield Fault(tuple(where[name]), f"'{name}' stands for several genes")
        elif form_of(strains.meant[name]) not in genes.forms:
            yield Fault(tuple(where[name]), f"unknown gene '{name}'{genes.suggestion(name)}")


def _blank_genes(rows: Rows, columns: TableColumns, strains: Written) -> Iterator[Fault]:
    """Return rows whose blank gene stands out; a screen with single deletions on purpose has more such rows."""
    wanted = len(columns.genes)
    fewer = [row for row, written in enumerate(strains.rows) if 0 < len(written) < wanted]
    full = sum(len(written) == wanted for written in strains.rows)
    if columns.keep_blank or columns.ignore or len(fewer) >= FEW_BLANK or full < NEARLY_ALL * len(rows):
        return
    where: dict[str, list[int]] = {}
    for row in fewer:
        blank = [name for name in columns.genes if not rows.frame[name].iloc[row].strip()]
        where.setdefault(" and ".join(blank), []).append(row)
    for names, found in where.items():
        others = f"while {full:,} of {count(len(rows), 'row')} name {wanted} genes (if that is meant: `--keep-blank`)"
        yield Fault(tuple(found), f"{names} {'are' if ' and ' in names else 'is'} blank, {others}")


def _faulty_strengths(strains: Written) -> Iterator[Fault]:
    if strains.stray:
        yield Fault(tuple(strains.stray), "a strength has no gene, or a gene has two strengths")
    where: dict[str, list[int]] = {}
    for row, left in enumerate(strains.left):
        for amount in dict.fromkeys(left):
            number = _plain(amount)
            if isinstance(number, str) or no_strengths(np.array(number)):
                where.setdefault(amount, []).append(row)
    for amount, found in where.items():
        yield Fault(tuple(found), f"'{amount}' is no strength of a gene, which is {A_STRENGTH}")


def _missing_conditions(rows: Rows, columns: TableColumns) -> Iterator[Fault]:
    for name in columns.conditions:
        _, missing = read_numbers(rows.column(name, "--conditions"), columns.decimal, columns.na_values)
        if missing.any():
            blank = tuple(np.flatnonzero(missing).tolist())
            yield Fault(blank, f"condition {name} is blank, and every strain needs it")


# Faults of numbers.


def _faulty_numbers(
    rows: Rows, column: str, values: NDArray[np.float64], missing: NDArray[np.bool_], decimal: str
) -> Iterator[Fault]:
    wrong = np.flatnonzero(~missing & ~(np.abs(values) <= np.finfo(np.float32).max))
    cells = rows.frame[column]
    words: dict[str, list[int]] = {}
    for row in wrong.tolist():
        cell = cells.iloc[row].strip()
        if decimal == "." and NUMBER_WITH_COMMA.fullmatch(cell):
            mended = cell.replace(",", ".")
            yield Fault((row,), f"{column} '{cell}' has a decimal comma ({mended} in a clean copy)", column, mended)
        else:
            words.setdefault(cell, []).append(row)
    for cell, where in words.items():
        finite = bool(np.isnan(values[where[0]]))
        what = "is no number" if finite else "is no finite number"
        word = cell if finite and not any(c.isdigit() for c in cell) else None
        yield Fault(tuple(where), f"{column} '{cell}' {what}", column, "", word)


def _contradictions(
    rows: Rows,
    columns: TableColumns,
    strains: Written,
    keys: Sequence[Hashable],
    column: str,
    values: NDArray[np.float64],
) -> Iterator[Fault]:
    """Return rows of the same strain whose values differ by more than different strains do, and by more than half the
    effect.
    """
    known = values[np.isfinite(values)]
    if len(known) < 2:
        return
    centre = float(np.median(known))
    limit = SPREAD * (1.4826 * float(np.median(np.abs(known - centre))) or float(known.std()))
    same: dict[Hashable, list[int]] = {}
    for row, key in enumerate(keys):
        if (strains.rows[row] or columns.apart) and np.isfinite(values[row]):
            same.setdefault(key, []).append(row)
    for where in same.values():
        if len(where) > 1 and np.ptp(values[where]) > max(limit, float(np.abs(values[where] - centre).max()) / 2):
            cells = [rows.frame[column].iloc[row].strip() for row in where]
            least, most = (cells[int(pick(values[where]))] for pick in (np.argmin, np.argmax))
            numbers = " and ".join(cells) if len(cells) < 4 else f"from {least} to {most} in {len(cells)} rows"
            what = f"{_named(rows, columns, strains, where[0])} has contradicting values: {column} {numbers}"
            yield Fault(tuple(where), what, kind=CONTRADICTING)


def _named(rows: Rows, columns: TableColumns, strains: Written, row: int) -> str:
    """Return the genes of a row with their strengths, and its conditions."""
    written = zip(strains.rows[row], strains.left[row], strict=True)
    genes = [f"{name}:{left}" if left else name for name, left in written]
    return ", ".join([*genes, *[f"{name} {rows.frame[name].iloc[row].strip()}" for name in columns.apart]])
