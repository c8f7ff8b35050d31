"""Screens that were brought into a CSV table with a column for each gene."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dglcell.data.sources.csv_config import CsvConfig
from dglcell.data.sources.csv_file import Rows, read_rows
from dglcell.data.sources.csv_table import measure_rows
from dglcell.data.sources.laboratory_config import LaboratoryConfig
from dglcell.data.sources.measurements import Measurements
from dglcell.data.sources.raw_tables import FoundTable
from dglcell.data.table import Provenance

KIND = "kind"


@dataclass(frozen=True)
class CsvScreen:
    """How such a table is read.

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
        """Keys of the laboratory section that apply."""
        return ("where", "kind") if self.count == KIND else ("where",)

    def read(
        self, tables: Sequence[FoundTable], config: LaboratoryConfig, provenance: Provenance, raw: str | None
    ) -> Measurements:
        """The rows of the only table."""
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
            ignore_genes=[] if config.keep_marker_locus else self.columns.ignore_genes,
        )
        return measure_rows(rows, columns, replace(provenance, counts=counts))


def score_by_kind(rows: Rows) -> Rows:
    """``score`` and ``p`` are those of epsilon in digenic rows and of tau in trigenic rows."""
    frame = rows.frame.copy()
    for kind in ("digenic", "trigenic"):
        chosen = frame[KIND] == kind
        frame[f"{kind}_score"] = frame["score"].where(chosen, "")
        frame[f"{kind}_p"] = frame["p"].where(chosen, "")
    return replace(rows, frame=frame)


def share_negative(rows: Rows) -> Rows:
    """The share of a genotype's significant interactions that are negative: 1, 0, or between for mixed ones."""
    negative, other = (rows.frame[column].astype(int) for column in ("n_negative", "n_not_negative"))
    return replace(rows, frame=rows.frame.assign(share_negative=(negative / (negative + other)).astype(str)))


def either_direction(rows: Rows) -> Rows:
    """``interact`` counts the directions, query × array, in which the pair interacted: 0, 1 or 2."""
    rows = without_copies(rows, "query", "array", "interact")
    return replace(rows, frame=rows.frame.assign(any_direction=rows.frame["interact"].replace("2", "1")))


def without_copies(rows: Rows, gene_a: str, gene_b: str, value: str) -> Rows:
    """Leave out rows that repeat a pair, in either order, with the same value: one measurement listed twice."""
    ordered = np.sort(rows.frame[[gene_a, gene_b]].to_numpy(dtype=str), axis=1)
    copies = rows.frame.assign(first=ordered[:, 0], second=ordered[:, 1]).duplicated(["first", "second", value])
    return rows.keep(~copies.to_numpy())
