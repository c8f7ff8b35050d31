"""Read tables of strains: find which of their columns name deleted genes, and what their labels ask for."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from dglcell.checks import A_STRENGTH, no_strengths
from dglcell.errors import DataError, GenotypeError, did_you_mean, listing
from dglcell.graph.vocabulary import Vocabulary

if TYPE_CHECKING:
    import pandas as pd


GENES = "genes"
"""The column of this name holds all deleted genes, separated by ``;``."""

STRENGTHS = "strengths"
"""The column of this name holds the strengths of ``GENES``, in the same order."""

LEARNED_STRENGTHS = "learned_strengths"
"""The column of this name holds strengths that a model has learned for ``GENES``, in the same order."""

STRENGTH = re.compile(r"(.+):(0|1|[0-9]*[.,][0-9]+(?:e-?[0-9]+)?)")
"""A cell with such a text holds a gene and its strength."""

NUMBERED = re.compile(r"gene_[0-9]{1,9}")
"""A column with such a name holds one deleted gene."""

OF_STRENGTHS = re.compile(rf"{STRENGTHS}|strength_[0-9]{{1,9}}")
"""A column with such a name holds strengths."""


def gene_columns(header: Sequence[str], where: str) -> list[int]:
    """Return the positions of the gene columns, in order.

    Args:
        header: column names.
        where: the place of the table, for the message.

    Raises:
        GenotypeError: there is none, or both forms are used.
    """
    names = [name.strip() for name in header]
    numbered = [i for i, name in enumerate(names) if NUMBERED.fullmatch(name)]
    single = [i for i, name in enumerate(names) if name == GENES]
    if bool(numbered) == bool(single):
        raise GenotypeError(
            f"{where}: {'two kinds of' if numbered else 'no'} gene columns",
            got=", ".join(header),
            expected="either `gene_1, gene_2, …` or one column `genes` separated by `;`",
            do="name them with `--columns` on the command line, or rename them",
        )
    if len(single) > 1:
        raise GenotypeError(f"{where}: {len(single)} columns are called `genes`", expected="one")
    return sorted(numbered, key=lambda i: int(names[i][5:])) or single


WITHIN_CELL = ";"
"""This stands between the genes of a cell that holds several."""


def split_strength(written: str) -> tuple[str, str]:
    """Split the text of a cell, e.g. ``b0008:0.3``, into gene and strength; the strength may be empty.

    It is 0, 1, or a number with a decimal point or comma, since a name may itself have a colon before a number.
    """
    found = STRENGTH.fullmatch(written)
    return (found[1].strip(), found[2]) if found else (written, "")


def split_cells(row: Sequence[str]) -> list[str]:
    """Return the cells of a row without blanks around them; the parts of the only one where it holds several."""
    return [part.strip() for part in (row[0].split(WITHIN_CELL) if len(row) == 1 else row)]


def is_ignored(name: str, ignored: Iterable[str]) -> bool:
    """Return whether a name is one of these, or fits one with ``*``, such as ``control_*``."""
    return any(name == one or ("*" in one and fnmatchcase(name, one)) for one in ignored)


def parse_genotype(cells: Sequence[str], amounts: Sequence[str]) -> tuple[list[str], list[str], tuple[str, str] | None]:
    """Read the genes of a row and what is left of each: all tables of strains are read by this.

    Args:
        cells: genes, with their strengths or without; empty ones change nothing.
        amounts: their strengths, of columns of their own; none where there are no such columns.

    Returns:
        the genes; what is left of each as it is written, with a decimal point, empty where nothing is said; and the
        first cell with its amount where a gene has two strengths, or a strength has no gene.
    """
    genes, left, stray = list[str](), list[str](), None
    for cell, amount in itertools.zip_longest(cells, amounts, fillvalue=""):
        gene, behind = split_strength(cell)
        if amount and (behind or not gene):
            stray = stray or (cell, amount)
        if gene:
            genes.append(gene)
            left.append((amount or behind).replace(",", "."))
    return genes, left, stray


def frame_genotypes(
    frame: pd.DataFrame, genes: Sequence[str] | None = None, strengths: Sequence[str] | None = None
) -> list[list[str] | dict[str, float]]:
    """Return the deleted genes of each row of a DataFrame, or gene → strength; empty cells change nothing.

    A strength is written behind its gene, ``b0008:0.3``, or in columns ``strength_1, strength_2, …`` of their own; a
    gene without one is deleted.

    Args:
        frame: a row per strain.
        genes: its gene columns; one column may hold several genes, separated by ``;``. The columns ``gene_1, gene_2,
            …`` or ``genes`` where None. If the list is empty, no row changes a gene.
        strengths: the columns of their strengths, in the same order; as `strength_columns` finds them where None.

    Raises:
        DataError: a column is not there.
        GenotypeError: there is no gene column, or columns of strengths do not fit them, or a strength is no amount.
    """
    header = [str(name) for name in frame.columns]
    check_columns(header, [*(genes or ()), *(strengths or ())])
    place = "the DataFrame"
    chosen = [header.index(name) for name in genes] if genes is not None else gene_columns(header, place)
    amounts = strength_columns(header, [header[i] for i in chosen], place) if strengths is None else strengths

    def cells(columns: Sequence[int]) -> list[list[str]]:
        filled = [frame.iloc[:, i].astype(object).where(frame.iloc[:, i].notna(), "") for i in columns]
        return [split_cells([written_as(cell) for cell in row]) for row in zip(*filled, strict=True)]

    written = cells([header.index(name) for name in amounts]) if amounts else None
    rows = cells(chosen) if chosen else [[]] * len(frame)
    names = row_names(frame)
    return [with_strengths(row, written[i] if written else (), names[i]) for i, row in enumerate(rows)]


def written_as(cell: object) -> str:
    """Return a cell as text; whole numbers have no point, because a column with gaps and a spreadsheet hold floats."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def row_names(frame: pd.DataFrame) -> list[str]:
    """Return what messages call the rows of a DataFrame: ``row 0``, or ``strain 'b0008'`` where an index names them."""
    return [f"strain '{name}'" if isinstance(name, str) else f"row {i}" for i, name in enumerate(frame.index)]


def strength_columns(header: Sequence[str], genes: Sequence[str], where: str) -> list[str]:
    """Return the columns of strengths that a table has for its gene columns, in the same order; there may be none.

    They are ``strength_1, …`` for ``gene_1, …``, and ``strengths`` for a single column of all genes.

    Args:
        header: column names.
        genes: its gene columns.
        where: the place of the table, for the message.

    Raises:
        GenotypeError: a gene column has no column of strengths where others have one, or the other way round.
    """
    names = [f"strength{gene[4:]}" if NUMBERED.fullmatch(gene) else STRENGTHS for gene in genes]
    there = [name for name in header if OF_STRENGTHS.fullmatch(name)]
    if there and sorted(there) != sorted(names):
        raise GenotypeError(
            f"{where}: the columns of strengths do not fit the columns of genes",
            got=f"{listing(there)} beside {listing(genes)}",
            expected="`strength_1` beside `gene_1` and so on, or `strengths` beside one column of all genes",
            do="name them so, or write strengths behind genes, e.g. b0008:0.3",
        )
    return names if there else []


def with_strengths(cells: Sequence[str], amounts: Sequence[str], where: str = "") -> list[str] | dict[str, float]:
    """Return the genes of a row, or gene → strength where any has one.

    Args:
        cells: genes, with their strengths or without; empty ones change nothing.
        amounts: their strengths, of columns of their own; none where there are no such columns.
        where: the row, for messages.

    Raises:
        GenotypeError: a strength is no number, is given twice or without a gene, or a gene has two strengths.
    """
    where += ": " if where else ""
    genes, left, stray = parse_genotype(cells, amounts)
    if stray is not None:
        raise GenotypeError(
            f"{where}a strength {'is given twice' if stray[0] else 'has no gene'}",
            got=f"'{stray[0]}' and '{stray[1]}'",
            expected="one strength for each gene, behind its name or in a column of its own",
        )
    if not any(left):
        return genes
    twice = [gene for gene, times in Counter(genes).items() if times > 1]
    if twice:
        raise GenotypeError(
            f"{where}gene '{twice[0]}' is changed twice",
            got="strengths "
            + listing([amount or "0" for gene, amount in zip(genes, left, strict=True) if gene == twice[0]]),
            expected="each gene once, with one strength",
        )
    return {gene: strength_of(amount, where) for gene, amount in zip(genes, left, strict=True)}


def number_of(text: str) -> float:
    """Return the number that a text says; Python alone would read ``1_000`` as a number.

    Raises:
        ValueError: it says none.
    """
    if "_" in text:
        raise ValueError(f"no number: '{text}'")
    return float(text)


def strength_of(written: object, where: str = "") -> float:
    """Return the strength that a text or a number says, 0 where it is empty; it may have a decimal comma.

    Raises:
        GenotypeError: it says no strength.
    """
    try:
        strength = number_of(str(written).replace(",", ".") or "0")
    except ValueError:
        strength = math.nan
    if no_strengths(np.array(strength)) or strength > float(np.finfo(np.float32).max):
        raise GenotypeError(f"{where}a strength is no amount", got=f"'{written}'", expected=A_STRENGTH)
    return strength


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


def check_columns(header: Sequence[str], names: Sequence[str]) -> None:
    """Refuse names of columns that a DataFrame does not have.

    Raises:
        DataError: naming those that it has.
    """
    lacking = [name for name in names if name not in header]
    if lacking:
        do = did_you_mean(lacking[0], header)
        raise DataError(f"the DataFrame has no column '{lacking[0]}'", expected=f"among {listing(header)}", do=do)


def check_known(genes: Sequence[str], vocabulary: Vocabulary, where: str = "") -> None:
    """Refuse genes that a cell graph lacks.

    Raises:
        GenotypeError: naming the first, and close names.
    """
    for name in genes:
        if name not in vocabulary:
            raise GenotypeError(f"{where}{': ' if where else ''}unknown gene '{name}'{vocabulary.suggestion(name)}")


# Kinds of labels.


REGRESSION, CLASSIFICATION = "regression", "classification"
