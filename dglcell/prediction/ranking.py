"""Rank the strains of a design: choose which of them come first."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dglcell.baselines.fit import NULL_MODELS, best_of
from dglcell.baselines.simple import AdditiveRidge
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, did_you_mean
from dglcell.files.parquet import import_pyarrow
from dglcell.graph.vocabulary import Vocabulary
from dglcell.prediction.table import predicted_column, spread_column
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import Trained
from dglcell.training.null_problems import null_problems
from dglcell.training.prepare import prepare_run
from dglcell.uncertainty.calibration import interval_columns

Values = NDArray[np.floating]

SEEDS, ADDITIVE = "several seeds or intervals", "an additive null model"


class Order(NamedTuple):
    """An order is a way to rank strains.

    Attributes:
        key: function of predictions, their uncertainty and predictions of the additive null model, whose value is
            largest for the strain that comes first. The uncertainty is half the width of an interval, or else the
            standard deviation over seeds.
        requires: what it needs beside predictions: ``SEEDS``, ``ADDITIVE`` or nothing.
    """

    key: Callable[[Values, Values, Values], Values]
    requires: str = ""


RANKINGS = {
    "lowest": Order(lambda value, sd, expected: -value),
    "highest": Order(lambda value, sd, expected: value),
    "largest": Order(lambda value, sd, expected: np.abs(value)),
    "certain": Order(lambda value, sd, expected: np.abs(value) / np.maximum(sd, np.finfo(np.float32).tiny), SEEDS),
    "uncertain": Order(lambda value, sd, expected: sd, SEEDS),
    "unexpected": Order(lambda value, sd, expected: np.abs(value - expected), ADDITIVE),
}


@dataclass(frozen=True)
class Ranking:
    """A ranking says which strains of a design are written, and in which order.

    Attributes:
        by: key of ``RANKINGS``.
        phenotype: phenotype whose predictions are compared.
        additive: the additive null model, where ``by`` requires it.
    """

    by: str
    top: int
    phenotype: str
    additive: AdditiveRidge | None = None

    @classmethod
    def of(
        cls,
        by: str,
        top: int,
        phenotype: str | None,
        members: Sequence[Trained],
        run: Path,
        *,
        with_intervals: bool = False,
    ) -> Ranking:
        """Make a ranking of what models predict.

        Args:
            by: key of ``RANKINGS``.
            phenotype: phenotype to compare; may be None where the models predict only one.
            run: directory of the first model's run, to whose training part the additive null model is fitted.

        Raises:
            CheckpointError: the null model is required, and the store of the run is gone.
            ConfigError: the models do not predict the phenotype, or the ranking requires several seeds or
                intervals, or a training part that is in memory.
        """
        chosen = phenotype_of(members[0].phenotypes, phenotype, "strains are ranked by one phenotype")
        requires = RANKINGS[by].requires
        if requires == SEEDS and len(members) == 1 and not with_intervals:
            raise ConfigError(
                f"`--rank {by}` requires {SEEDS}",
                got="one run",
                do="give the folder of an experiment with several, or add `--interval 0.9`",
            )
        return cls(by, top, chosen, _fit_additive(members[0], run, chosen) if requires == ADDITIVE else None)

    def describe(self) -> dict[str, Any]:
        """Describe what the order depends on beside the predictions, as plain containers."""
        return {"rank": self.by, "top": self.top, "phenotype": self.phenotype}

    def columns(self, strains: Strains) -> dict[str, Values]:
        """Return what strains are compared with, as a column of the output; none where predictions suffice."""
        if self.additive is None:
            return {}
        return {f"additive_{self.phenotype}": self.additive.predict(strains).astype(np.float32)}

    def first(self, table: Any) -> Any:
        """Return the first ``top`` rows of a pyarrow table, in order; of equal rows the earlier comes first."""
        names = (predicted_column(self.phenotype), spread_column(self.phenotype), f"additive_{self.phenotype}")
        none = np.full(len(table), np.nan)
        known = [table[name].to_numpy().astype(float) if name in table.column_names else none for name in names]
        low, high = interval_columns(self.phenotype)
        if low in table.column_names:
            known[1] = (table[high].to_numpy().astype(float) - table[low].to_numpy()) / 2
        return table.take(np.argsort(-RANKINGS[self.by].key(*known), kind="stable")[: self.top])

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


def phenotype_of(known: Sequence[str], asked: str | None, why: str) -> str:
    """Return the phenotype that counts: the one that is asked for, or the only one.

    Args:
        known: phenotypes that the models predict.
        asked: name of one of them; None if none is asked for.
        why: the sentence that says for what one is needed.

    Raises:
        ConfigError: there is no such phenotype, or there are several and none is asked for.
    """
    if (asked not in known) if asked else len(known) > 1:
        raise ConfigError(
            why,
            got=asked or f"a model of {len(known)}",
            expected=" or ".join(known),
            do=did_you_mean(asked or "", known, "name one with `--phenotype`"),
        )
    return asked or known[0]


def _fit_additive(trained: Trained, run: Path, phenotype: str) -> AdditiveRidge:
    """Fit the additive null model of a run to its training part and choose it on its validation part.

    Raises:
        CheckpointError: the store of the run is gone, or another one has its place.
    """
    prepared = prepare_run(replace(trained.config, plot=False), RunDirectory(run), "dglcell predict", continued=True)
    problem = null_problems(prepared)[trained.phenotypes.index(phenotype)]
    model = best_of(NULL_MODELS["additive ridge"], problem)[1]
    assert isinstance(model, AdditiveRidge)
    return model
