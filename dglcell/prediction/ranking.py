"""Rank the strains of a design: choose which of them come first."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dglcell.errors import ConfigError, did_you_mean
from dglcell.files.parquet import import_pyarrow
from dglcell.graph.vocabulary import Vocabulary
from dglcell.prediction import EFFECT, UNCERTAIN
from dglcell.prediction.table import predicted_column, spread_column
from dglcell.training.checkpoint import Trained
from dglcell.uncertainty.calibration import interval_columns


@dataclass(frozen=True)
class Ranking:
    """A ranking says which strains of a design are written, and in which order.

    Attributes:
        by: ``effect``, by the distance from the wild type, or ``uncertain``, by the width of an interval, or else the
            standard deviation over seeds; the largest come first.
        phenotype: phenotype whose predictions are compared.
        wild_type: what is predicted for the wild type in the conditions of the design.
    """

    by: str
    top: int
    phenotype: str
    wild_type: float = 0.0

    @classmethod
    def of(
        cls, by: str, top: int, phenotype: str | None, members: Sequence[Trained], *, with_intervals: bool = False
    ) -> Ranking:
        """Make a ranking of what models predict, whose ``wild_type`` is 0.

        Args:
            phenotype: phenotype to compare; may be None where the models predict only one.

        Raises:
            ConfigError: the models do not predict the phenotype, or the ranking requires several seeds or intervals.
        """
        chosen = phenotype_of(members[0].phenotypes, phenotype)
        if by == UNCERTAIN and len(members) == 1 and not with_intervals:
            raise ConfigError(
                f"`--by {by}` requires several seeds or intervals",
                got="one run",
                do="give the folder of an experiment with several, or add `--interval 0.9`",
            )
        return cls(by, top, chosen)

    def describe(self) -> dict[str, Any]:
        """Describe what the order depends on beside the predictions, as plain containers."""
        return {"by": self.by, "top": self.top, "phenotype": self.phenotype}

    def first(self, table: Any) -> Any:
        """Return the first ``top`` rows of a pyarrow table, in order; of equal rows the earlier comes first."""
        predicted = table[predicted_column(self.phenotype)].to_numpy().astype(float)
        low, high = interval_columns(self.phenotype)
        if self.by == EFFECT:
            key = np.abs(predicted - self.wild_type)
        elif low in table.column_names:
            key = table[high].to_numpy().astype(float) - table[low].to_numpy()
        else:
            key = table[spread_column(self.phenotype)].to_numpy().astype(float)
        return table.take(np.argsort(-key, kind="stable")[: self.top])

    def merge(self, tables: Iterator[Any], genes: Vocabulary) -> Iterator[Any]:
        """Merge tables that `first` has made into one table of the first rows, with standard names of genes.

        Args:
            tables: tables in the order of the design.
            genes: vocabulary of the cell graph. Columns ``name_1`` and so on come behind those of genes, if it has any
                names.
        """
        pa, _ = import_pyarrow()
        merged = functools.reduce(
            lambda best, more: self.first(pa.concat_tables([best, more]).unify_dictionaries()), tables
        ).combine_chunks()
        columns = [name for name in merged.column_names if name.startswith("gene_") and genes.others.standard]
        for k, column in enumerate(columns):
            names = pa.array([genes.standard(gene) for gene in merged[column].to_pylist()], pa.string())
            merged = merged.add_column(len(columns) + k, column.replace("gene_", "name_"), names)
        yield merged


def phenotype_of(known: Sequence[str], asked: str | None) -> str:
    """Return the phenotype that counts: the one that is asked for, or the only one.

    Args:
        known: phenotypes that the models predict.
        asked: name of one of them; None if none is asked for.

    Raises:
        ConfigError: there is no such phenotype, or there are several and none is asked for.
    """
    if (asked not in known) if asked else len(known) > 1:
        raise ConfigError(
            "strains are ranked by one phenotype",
            got=asked or f"a model of {len(known)}",
            expected=" or ".join(known),
            do=did_you_mean(asked or "", known, "name one with `--phenotype`"),
        )
    return asked or known[0]
