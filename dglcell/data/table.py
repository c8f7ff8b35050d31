"""Read tables of strains: find which of their columns name deleted genes, and what their labels ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dglcell.errors import DataError, GenotypeError, did_you_mean, listing
from dglcell.graph.vocabulary import Vocabulary

if TYPE_CHECKING:
    import pandas as pd


GENES = "genes"
"""The column of this name holds all deleted genes, separated by ``;``."""

NUMBERED = re.compile(r"gene_[0-9]{1,9}")
"""A column with such a name holds one deleted gene."""


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


def frame_genotypes(frame: pd.DataFrame, genes: Sequence[str] | None = None) -> list[list[str]]:
    """Return the deleted genes of each row of a DataFrame; empty cells delete nothing.

    Args:
        frame: a row per strain.
        genes: its gene columns; one column may hold several genes, separated by ``;``. The columns ``gene_1, gene_2,
            …`` or ``genes`` where None.

    Raises:
        DataError: a column is not there.
        GenotypeError: there is no gene column.
    """
    header = [str(name) for name in frame.columns]
    check_columns(header, genes or ())
    chosen = [header.index(name) for name in genes] if genes else gene_columns(header, "the DataFrame")
    columns = [frame.iloc[:, i].astype(object).where(frame.iloc[:, i].notna(), "") for i in chosen]
    rows = zip(*columns, strict=True)
    if len(columns) == 1:
        return [[gene.strip() for gene in str(cell).split(";") if gene.strip()] for (cell,) in rows]
    return [[str(cell).strip() for cell in row if str(cell).strip()] for row in rows]


def list_genotypes(strains: Iterable[Sequence[str]]) -> list[list[str]]:
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
