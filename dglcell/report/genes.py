"""Find the strongest and the worst missed strains of a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dglcell.config.experiment import Config
from dglcell.config.read import parse_inputs
from dglcell.data.sources.csv_table import find_aliases
from dglcell.data.sources.faults import Written
from dglcell.data.sources.text_table import read_rows
from dglcell.data.table import CLASSIFICATION
from dglcell.errors import DglcellError
from dglcell.files.atomic import find_raw
from dglcell.graph.cell_files import read_cell
from dglcell.graph.vocabulary import Vocabulary
from dglcell.report.page import Grid, number
from dglcell.report.run_files import RunFiles, read_run_config, read_table
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


@dataclass(frozen=True)
class GenesOfRun:
    """Hold the names of genes and the test strains of a run.

    Attributes:
        genes: names of the cell graph's genes.
        strains: deleted genes of the test strains, in the order of the predictions.
        own_names: systematic name → another name in the user's table.
    """

    genes: Vocabulary
    strains: Sequence[tuple[str, ...]]
    own_names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: RunDirectory) -> GenesOfRun:
        """Read a run directory; common names are left out where its cell graph is missing or damaged."""
        strains = [tuple(genes.split(";")) for genes in read_table(directory, "test")["genes"]]
        listed = Vocabulary.of(gene for genes in strains for gene in genes)
        if not directory.cell.is_dir():
            return cls(listed, strains)
        try:
            cell = read_cell(directory.cell)
            config = parse_inputs(read_run_config(directory), where=str(directory.config))
            return cls(cell.genes, strains, own_names(config, cell.genes))
        except DglcellError as error:
            log.warning("the report has systematic names of genes alone: %s", error)
            return cls(listed, strains)

    def shown(self, gene: str) -> str:
        """Return the name in the user's table, or else the common name, with the systematic one beside it."""
        name = self.own_names.get(gene) or self.genes.standard(gene)
        return f"{name} ({gene})" if name and name != gene else gene

    def strain(self, genes: Sequence[str]) -> str:
        """Return the names of deleted genes."""
        return ", ".join(map(self.shown, genes)) or "none deleted"


def own_names(config: Config, genes: Vocabulary) -> dict[str, str]:
    """Return systematic name → the first other name that the user's table has for the gene.

    There are none where the table no longer exists.
    """
    source = config.data.source
    if source.name != "csv":
        return {}
    try:
        rows = read_rows(find_raw(source.csv.path, config.paths.raw))
        aliases, _ = find_aliases(source.csv.aliases, config.paths.raw)
        written = Written.of(rows, source.csv.genes, genes, aliases)
    except DglcellError as error:
        log.info("standard names of genes are used: %s", str(error).partition("\n")[0])
        return {}
    return {gene: name for name, gene in reversed(written.meant.items()) if name != gene}


def strain_tables(run: RunFiles) -> dict[str, list[StrainTable]]:
    """Return phenotype → tables of strains; none where no strain is tested.

    Args:
        run: a run with predictions of its test part, if there is one.
    """
    if "test" not in run.predictions:
        return {}
    about = GenesOfRun.read(run.directory)
    kinds = {row.phenotype: row.kind for row in run.rows}
    found = {
        phenotype: list(_strain_tables(run, about, phenotype, is_class=kinds.get(phenotype) == CLASSIFICATION))
        for phenotype in [*run.predictions["test"]][:MOST_PHENOTYPES]
    }
    return {phenotype: tables for phenotype, tables in found.items() if tables}


def _strain_tables(run: RunFiles, about: GenesOfRun, phenotype: str, *, is_class: bool) -> Iterator[StrainTable]:
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
            [about.strain(about.strains[i]), number(float(predicted[i])), number(float(measured[i]))]
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
