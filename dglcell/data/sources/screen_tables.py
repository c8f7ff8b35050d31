"""Find raw tables of published screens, and read those with a row or a column for each gene."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, cast

import numpy as np

from dglcell.data.columns import CROSS, PHENOTYPE, Column, Provenance
from dglcell.data.sources.config import CsvConfig, LaboratoryConfig
from dglcell.data.sources.csv_table import measure_rows
from dglcell.data.sources.text_table import Rows, read_rows
from dglcell.data.strains import Strains
from dglcell.errors import DataError
from dglcell.files.atomic import DAMAGE
from dglcell.published.file import DECLARED, Found, PublishedFile, open_member, read_record

if TYPE_CHECKING:
    import pandas as pd


GZIP_MAGIC, ZIP_SUFFIX = b"\x1f\x8b", ".zip"


@dataclass(frozen=True)
class RawTable:
    """Describe a table of a publication.

    Attributes:
        file: the table itself, or an archive that holds it, with its copies.
        member: name of the table inside an archive, without folders.
        rows: number of its rows, without the header; None where unknown.
    """

    file: PublishedFile
    member: str = ""
    rows: int | None = None


@dataclass(frozen=True)
class FoundTable:
    """Locate a table that is here.

    Attributes:
        table: the table's description.
        found: the file, or the archive that holds it.
    """

    table: RawTable
    found: Found

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        return self.found.path

    @property
    def name(self) -> str:
        """Return what the table is called, with the archive it is in."""
        return f"{self.path.name}/{self.table.member}" if self.path.suffix == ZIP_SUFFIX else self.path.name

    @property
    def is_sheet(self) -> bool:
        """Return whether the table is a spreadsheet."""
        return PurePosixPath(self.name).suffix == ".xlsx"

    def open(self) -> AbstractContextManager[IO[bytes]]:
        """Open its bytes, unpacked.

        Raises:
            DataError: the archive is damaged or lacks the table.
        """
        if self.path.suffix == ZIP_SUFFIX:
            return open_member(self.path, self.table.member)
        with open(self.path, "rb") as file:
            packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        return cast(IO[bytes], gzip.open(self.path, "rb")) if packed else open(self.path, "rb")


def trust_in_words(found: Found) -> str:
    """Say how it is known that a raw file is the right one."""
    if found.trust == DECLARED:
        return "the hash is the declared one"
    record = read_record(found.path)
    if record is not None:
        return f"no hash is declared; this is the file first downloaded from {record.url} on {record.fetched}"
    return "no hash is declared, and the file was put there by hand"


# Screens that were brought into a CSV table with a column for each gene.


KIND = "kind"


@dataclass(frozen=True)
class CsvScreen:
    """Read a CSV table with a column for each gene.

    Attributes:
        columns: genes, phenotypes and what belongs to them; its ``path`` is not used.
        prepare: adds columns that ``columns`` names, computed from those of the file, or removes copies of rows.
        count: column whose values are counted in the provenance.
    """

    columns: CsvConfig
    prepare: Callable[[Rows], Rows] | None = None
    count: str | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """Return the keys of the laboratory section that apply."""
        return ("where", "kind") if self.count == KIND else ("where",)

    def read(
        self, tables: Sequence[FoundTable], config: LaboratoryConfig, provenance: Provenance, raw: str | None
    ) -> Strains:
        """Return the rows of the only table."""
        rows = read_rows(tables[0].path)
        counts = {}
        if self.count:
            values = rows.frame[self.count].value_counts().sort_index()
            counts = {f"rows_{self.count}_{value}": int(n) for value, n in values.items()}
        if self.prepare:
            prepared = self.prepare(rows)
            counts["rows_listed_before"] = len(rows) - len(prepared)
            rows = prepared
        columns = replace(
            self.columns,
            where={**config.where, **({KIND: config.kind} if config.kind else {})},
            missing=config.missing,
            replicates=config.replicates,
        )
        return measure_rows(rows, columns, replace(provenance, counts=counts))


def score_by_kind(rows: Rows) -> Rows:
    """Divide ``score`` and ``p`` into columns by kind.

    They are those of epsilon in digenic rows and of tau in trigenic rows.
    """
    frame = rows.frame.copy()
    for kind in ("digenic", "trigenic"):
        chosen = frame[KIND] == kind
        frame[f"{kind}_score"] = frame["score"].where(chosen, "")
        frame[f"{kind}_p"] = frame["p"].where(chosen, "")
    return replace(rows, frame=frame)


def share_negative(rows: Rows) -> Rows:
    """Add the share of a genotype's significant interactions that are negative: 1, 0, or between for mixed ones."""
    negative, other = (rows.frame[column].astype(int) for column in ("n_negative", "n_not_negative"))
    return replace(rows, frame=rows.frame.assign(share_negative=(negative / (negative + other)).astype(str)))


def either_direction(rows: Rows) -> Rows:
    """Add ``any_direction``: 1 where the pair interacted in some direction, query × array, else 0.

    ``interact`` counts these directions: 0, 1 or 2.
    """
    rows = without_copies(rows, "query", "array", "interact")
    return replace(rows, frame=rows.frame.assign(any_direction=rows.frame["interact"].replace("2", "1")))


def each_pair_once(rows: Rows) -> Rows:
    """Keep each pair once, because pairs within both GO terms are listed twice."""
    return without_copies(rows, "gene_a", "gene_b", "epsilon")


def without_copies(rows: Rows, gene_a: str, gene_b: str, value: str) -> Rows:
    """Leave out rows that repeat a pair, in either order, with the same value: they list one measurement twice."""
    ordered = np.sort(rows.frame[[gene_a, gene_b]].to_numpy(dtype=str), axis=1)
    copies = rows.frame.assign(first=ordered[:, 0], second=ordered[:, 1]).duplicated(["first", "second", value])
    return rows.keep(~copies.to_numpy())


PREPARATIONS = {
    function.__name__: function for function in (score_by_kind, share_negative, either_direction, each_pair_once)
}
"""A declaration can name these functions as `CsvScreen.prepare`."""


# Screens published as a square matrix of scores between genes: R data, or a text table with a gene in each header.


@dataclass(frozen=True)
class MatrixScreen:
    """Read a square matrix of scores between genes.

    A pair stands in it twice, as row × column and as column × row; the same number in both counts once. The diagonal
    does not count.

    Attributes:
        phenotype: the phenotype that the numbers measure.
        variable: name of the matrix in a file of R data.
        options: keys of the laboratory section that apply.
    """

    phenotype: str
    variable: str
    options: tuple[str, ...] = ()

    def read(
        self, tables: Sequence[FoundTable], config: LaboratoryConfig, provenance: Provenance, raw: str | None
    ) -> Strains:
        """Return the scored pairs."""
        found = tables[0]
        matrix = _read_r(found, self.variable) if found.path.suffix == ".rda" else _read_text(found)
        names = [str(name).strip() for name in matrix.index]
        if names != [str(name).strip() for name in matrix.columns] or len(set(names)) < len(names):
            raise DataError(
                f"'{found.name}' is no matrix between genes",
                got=f"{matrix.shape[0]:,} rows and {matrix.shape[1]:,} columns",
                expected="the same distinct genes, in the same order, above and beside it",
                do="use the table as it was published",
            )
        scores = matrix.to_numpy(dtype=np.float64)
        pairs = np.argwhere(~np.isnan(scores) & ~np.eye(len(names), dtype=bool))
        low, high = pairs.min(axis=1), pairs.max(axis=1)
        # Lower and upper triangle are one cross, so that equal numbers in both are one measurement.
        columns = {
            Column(PHENOTYPE, self.phenotype): scores[pairs[:, 0], pairs[:, 1]],
            Column(CROSS): low * len(names) + high,
        }
        provenance = replace(provenance, counts={"rows": len(pairs)})
        return Strains.from_matrix(tuple(names), pairs.astype(np.int32), columns=columns, provenance=provenance)


def _read_r(found: FoundTable, variable: str) -> pd.DataFrame:
    import rdata

    try:
        content = rdata.read_rda(found.path)
    except (*DAMAGE, LZMAError, ValueError, NotImplementedError) as error:
        raise DataError(
            f"'{found.name}' cannot be read as R data", got=error, do="copy or download the file again"
        ) from error
    if variable not in content or not hasattr(content[variable], "to_pandas"):
        raise DataError(
            f"'{found.name}' holds no matrix '{variable}' with names",
            got=", ".join(content) or "nothing",
            do="use the file as it was published",
        )
    return content[variable].to_pandas()


def _read_text(found: FoundTable) -> pd.DataFrame:
    import pandas as pd

    cells = read_rows(found.path, "auto").frame
    # R leaves the cell above the row names empty.
    scores = cells.set_index(cells.columns[0])
    scores.columns = [str(name) for name in scores.columns]
    scores = scores.mask(scores.isin(["", "NA", "NaN", "nan"]))
    try:
        return scores.apply(pd.to_numeric)
    except ValueError as error:
        raise DataError(
            f"'{found.name}' holds something that is no number",
            got=error,
            expected="a matrix of scores with names of genes in the first row and the first column",
        ) from None
