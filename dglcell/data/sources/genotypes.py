"""Genotypes of rows: deleted genes as a padded matrix, and how they are read from the cells of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.csv_file import Rows, refuse_rows
from dglcell.errors import DataError, listing
from dglcell.graph.vocabulary import AliasTable, Vocabulary

WITHIN_CELL = ";"


@dataclass(frozen=True)
class Genotypes:
    """Deleted genes row by row.

    Attributes:
        names: distinct gene names.
        genes: [R, k] int32 indices into ``names`` in the order of the columns, filled up with −1 at the end.
    """

    names: tuple[str, ...]
    genes: NDArray[np.int32]

    @property
    def keys(self) -> NDArray[np.int64]:
        """[R] equal for rows that delete the same genes in whatever order; numbered by first appearance."""
        import pandas as pd

        ascending = np.sort(self.genes, axis=1)
        keys = np.zeros(len(ascending), dtype=np.int64)
        for column in ascending.T:
            keys = pd.factorize(keys * (len(self.names) + 1) + column + 1)[0].astype(np.int64, copy=False)
        return keys

    def last(self, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """The last gene of each of the ``rows``: that of the array strain."""
        genes = self.genes[rows]
        at = np.maximum((genes >= 0).sum(axis=1) - 1, 0)
        return np.take_along_axis(genes, at[:, None], axis=1)[:, 0]

    def describe(self, row: int) -> str:
        """The genes of a row, for a message."""
        return ", ".join(self.names[gene] for gene in self.genes[row] if gene >= 0)

    @staticmethod
    def concatenate(parts: Sequence[Genotypes]) -> Genotypes:
        """The rows of ``parts``, one part after the other, with genes matched by name."""
        names = tuple(dict.fromkeys(name for part in parts for name in part.names))
        index = {name: i for i, name in enumerate(names)}
        width = max(part.genes.shape[1] for part in parts)
        genes = np.full((sum(len(part.genes) for part in parts), width), -1, dtype=np.int32)
        start = 0
        for part in parts:
            own = np.array([*(index[name] for name in part.names), -1], dtype=np.int32)
            genes[start : start + len(part.genes), : part.genes.shape[1]] = own[part.genes]
            start += len(part.genes)
        return Genotypes(names, genes)

    def pack(self, rows: NDArray[np.int64]) -> tuple[tuple[str, ...], NDArray[np.int32], NDArray[np.int64]]:
        """Names that the chosen rows have, and their concatenated genes and offsets."""
        chosen = self.genes[rows]
        present = chosen >= 0
        offsets = np.concatenate([[0], np.cumsum(present.sum(axis=1))]).astype(np.int64)
        used, genes = np.unique(chosen[present], return_inverse=True)
        return tuple(self.names[gene] for gene in used), genes.astype(np.int32), offsets


def read_genotypes(rows: Rows, columns: Sequence[str], aliases: AliasTable, ignored: Sequence[str]) -> Genotypes:
    """Genotypes of a table.

    Args:
        rows: the table.
        columns: the columns of genes; a single one may hold several genes, separated by ``;``.
        aliases: other names of genes.
        ignored: systematic names of genes that do not count as deleted.

    Raises:
        DataError: a column is missing, a name is ambiguous, or a row deletes nothing or a gene twice.
    """
    import pandas as pd

    cells = [rows.column(column, "genes") for column in columns]
    if len(cells) == 1 and cells[0].str.contains(WITHIN_CELL, regex=False).any():
        parts = cells[0].str.split(WITHIN_CELL, expand=True).fillna("")
        cells = [parts[i] for i in parts.columns]
    written, found = pd.factorize(np.concatenate([cell.to_numpy(dtype=object) for cell in cells]))
    stripped = [str(name).strip() for name in found]
    systematic = Vocabulary.of(gene for genes in aliases.systematic.values() for gene in genes)
    resolved, ambiguous = aliases.resolve(stripped, systematic)
    if ambiguous:
        raise DataError(
            f"'{rows.file}': names that stand for several genes",
            got=listing(ambiguous),
            expected="systematic names, or aliases of one gene",
            do="replace them by systematic names",
        )
    names = tuple(dict.fromkeys(name for name in resolved if name and name not in ignored))
    index = {name: i for i, name in enumerate(names)}
    codes = np.array([index.get(name, -1) for name in resolved], dtype=np.int32)
    genes = codes[written].reshape(len(cells), len(rows)).T
    genes = present_first(genes)
    _check(rows, columns, genes)
    return Genotypes(names, genes)


def present_first(genes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Rows of genes with −1 for those that do not count, moved to the end."""
    if (genes >= 0).all():
        return genes
    return np.take_along_axis(genes, np.argsort(genes < 0, axis=1, kind="stable"), axis=1)


def deletes_twice(genes: NDArray[np.int32]) -> NDArray[np.bool_]:
    """[R] whether a row names a gene twice."""
    ascending = np.sort(genes, axis=1)
    twice: NDArray[np.bool_] = np.any((ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0), axis=1)
    return twice


def _check(rows: Rows, columns: Sequence[str], genes: NDArray[np.int32]) -> None:
    empty: NDArray[np.bool_] = np.all(genes < 0, axis=1)
    refuse_rows(
        rows,
        empty,
        "the strain deletes no gene",
        columns,
        expected="at least one gene that counts",
        do="remove the row, or check `genes` and `ignore_genes`",
    )
    refuse_rows(
        rows,
        deletes_twice(genes),
        "a gene is deleted twice",
        columns,
        expected="distinct genes",
        do="remove the row or the repeated gene; two alleles of one gene are one gene here",
    )
