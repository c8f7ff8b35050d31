"""Screens published as a square matrix of scores between genes: R data, or a text table with a gene in each header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from lzma import LZMAError
from typing import TYPE_CHECKING

import numpy as np

from dglcell.data.sources.csv_file import read_rows
from dglcell.data.sources.genotypes import Genotypes
from dglcell.data.sources.laboratory_config import LaboratoryConfig
from dglcell.data.sources.measurements import Measurements
from dglcell.data.sources.raw_tables import FoundTable
from dglcell.data.table import Provenance
from dglcell.errors import DataError, MissingDependencyError
from dglcell.files import DAMAGE

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class MatrixScreen:
    """How such a matrix is read.

    A pair stands in it twice, as row × column and as column × row; the same number in both counts once. The diagonal
    does not count.

    Attributes:
        phenotype: what the numbers are.
        variable: name of the matrix in a file of R data.
        options: keys of the laboratory section that apply.
    """

    phenotype: str
    variable: str
    options: tuple[str, ...] = ()

    def read(
        self, tables: Sequence[FoundTable], config: LaboratoryConfig, provenance: Provenance, raw: str | None
    ) -> Measurements:
        """The scored pairs."""
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
        return Measurements(
            genotypes=Genotypes(tuple(names), pairs.astype(np.int32)),
            phenotypes={self.phenotype: scores[pairs[:, 0], pairs[:, 1]]},
            provenance=replace(provenance, counts={"rows": len(pairs)}),
            crosses=low * len(names) + high,
        )


def _read_r(found: FoundTable, variable: str) -> pd.DataFrame:
    try:
        import rdata
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"reading '{found.name}' needs rdata",
            do=f"pip install 'dglcell[data]', or write it as text in R: load('{found.name}'); write.table({variable}, "
            f"'{found.path.stem}.tsv', sep='\\t', quote=FALSE, col.names=NA)",
        ) from error
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
        raise DataError(f"'{found.name}' holds something that is no number", got=error) from None
