"""Find the strongest and the worst missed strains of a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dglcell.data.changes import GENES
from dglcell.data.table import CLASSIFICATION
from dglcell.errors import DglcellError
from dglcell.graph.cell_files import read_cell
from dglcell.report.page import Grid, number
from dglcell.report.run_files import RunFiles, read_table
from dglcell.runs.directory import RunDirectory

log = logging.getLogger("dglcell")

SHOWN = 10
"""A table shows at most so many strains."""

MOST_PHENOTYPES = 3


@dataclass(frozen=True)
class StrainTable:
    """Hold a table about strains, and a note on which they are."""

    title: str
    note: str
    grid: Grid


def strain_names(directory: RunDirectory) -> list[str]:
    """Return the names of the deleted genes of each test strain.

    A gene has the name in the user's table, or else the common one, with the systematic one beside it. Common names are
    left out where the cell graph of the run is missing or damaged.
    """
    table = read_table(directory, "test")
    standard: Callable[[str], str] = str  # a gene without a common name has its own
    if directory.cell.is_dir():
        try:
            standard = read_cell(directory.cell).genes.standard
        except DglcellError as error:
            log.warning("the report has systematic names of genes alone: %s", error)

    def shown(gene: str, own: str) -> str:
        name = own if own != gene else standard(gene)
        return f"{name} ({gene})" if name and name != gene else gene

    pairs = zip(table[GENES], table["names" if "names" in table else GENES], strict=True)
    of_strains = ([*zip(genes.split(";"), names.split(";"), strict=False)] for genes, names in pairs)
    return [", ".join(shown(*gene) for gene in strain) or "none deleted" for strain in of_strains]


def strain_tables(run: RunFiles) -> dict[str, list[StrainTable]]:
    """Return phenotype → tables of strains; none where no strain is tested.

    Args:
        run: a run with predictions of its test part, if there is one.
    """
    if "test" not in run.predictions:
        return {}
    strains = strain_names(run.directory)
    kinds = {row.phenotype: row.kind for row in run.rows}
    found = {
        phenotype: list(_strain_tables(run, strains, phenotype, is_class=kinds.get(phenotype) == CLASSIFICATION))
        for phenotype in [*run.predictions["test"]][:MOST_PHENOTYPES]
    }
    return {phenotype: tables for phenotype, tables in found.items() if tables}


def _strain_tables(run: RunFiles, strains: Sequence[str], phenotype: str, *, is_class: bool) -> Iterator[StrainTable]:
    """Make tables of the strongest predictions and the largest errors of the test part."""
    predictions = run.predictions["test"][phenotype]
    predicted, measured = (np.asarray(v, np.float64) for v in (predictions.predicted, predictions.measured))
    if not np.isfinite(predicted).any():
        return
    unit = run.results["units"].get(phenotype, "")
    heads = ["deleted genes", *(f"{name} [{unit}]" if unit else name for name in ("predicted", "measured"))]

    def rows(key: NDArray[np.float64]) -> list[list[str]]:
        order = np.argsort(-np.where(np.isfinite(key), key, -np.inf), kind="stable")[:SHOWN]
        return [
            [strains[i], number(float(predicted[i])), number(float(measured[i]))]
            for i in order.tolist()
            if np.isfinite(key[i])
        ]

    middle = float(np.nanmedian(predicted))
    strength = predicted if is_class else np.abs(predicted - middle)
    by = "predicted most surely" if is_class else f"farthest from the median prediction, {number(middle)}"
    yield StrainTable("Strongest predicted strains", f"Test strains {by}.", Grid(heads, rows(strength)))
    error = np.abs(predicted - measured)
    if np.isfinite(error).any():
        yield StrainTable("Worst missed strains", "Test strains with the largest errors.", Grid(heads, rows(error)))
