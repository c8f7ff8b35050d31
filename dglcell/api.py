"""Train, load, predict and evaluate in a few lines of Python: the functions that ``import dglcell`` offers."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dglcell.config.read import experiment_file, load_config, override
from dglcell.data.strains import Strains
from dglcell.data.table import numbers_of
from dglcell.errors import CheckpointError, ConfigError, DataError, listing
from dglcell.explain import explain, split
from dglcell.graph.cell import build_cell, read_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.machine import check_device
from dglcell.metrics import ResultRow
from dglcell.prediction import UNKNOWN
from dglcell.prediction.columns import GenotypeColumns, Genotypes, GenotypeTable, seen_by
from dglcell.prediction.measured import measured_rows, rows_on
from dglcell.prediction.predict import Intervals, predict_table
from dglcell.prediction.table import PREDICTED_BY
from dglcell.report.run_files import read_run
from dglcell.runs import CHECKPOINTS, RunDirectory
from dglcell.trained_models import cell_of_run, find_model, runs_in
from dglcell.training.checkpoint import Trained, load_trained
from dglcell.training.predicting import BEST, NETWORK, predicting_with

if TYPE_CHECKING:
    import pandas as pd
    from pytorch_lightning.callbacks import Callback
    from pytorch_lightning.loggers import Logger

    from dglcell.models.model import StrainModel

log = logging.getLogger("dglcell")

_PREDICTING = threading.Lock()
"""One thread predicts at a time, because models keep what they have computed of the wild type."""


@dataclass(frozen=True)
class Predictor:
    """A predictor is a trained model, or the models of several seeds, which predict together.

    >>> import dglcell
    >>> predictor = dglcell.load("runs/quickstart/seed-0")
    >>> predictor.phenotypes
    ('fitness',)
    """

    members: tuple[Trained, ...] = field(repr=False)  #: the models

    @property
    def directories(self) -> tuple[Path, ...]:
        """Return the run directories of the models."""
        return tuple(member.run.path for member in self.members)

    @property
    def directory(self) -> Path:
        """Return the run directory; of several runs, the folder that they are in."""
        return Path(os.path.commonpath(self.directories))

    @property
    def cell(self) -> CellGraph:
        """Return the cell graph."""
        return self.members[0].cell

    @property
    def model(self) -> StrainModel:
        """Return the trained model as a module of torch, in evaluation mode; several seeds are refused.

        >>> import dglcell
        >>> type(dglcell.load("ecoli-core").model).__name__
        'HeteroCell'
        """
        if len(self.members) > 1:
            got, do = f"{len(self.members)} runs", "take `members[0].model` and so on, or load one run"
            raise CheckpointError("several seeds have a model each", got=got, expected="one run", do=do)
        return self.members[0].model

    @property
    def phenotypes(self) -> tuple[str, ...]:
        """Return the names of the predicted phenotypes."""
        return self.members[0].phenotypes

    @property
    def units(self) -> dict[str, str]:
        """Return the unit of each phenotype."""
        return dict(zip(self.phenotypes, self.members[0].units, strict=True))

    @property
    def results(self) -> pd.DataFrame:
        """Return the tables of results that the runs wrote: a row for each seed, model, part and phenotype.

        There is no row where every strain trained (`split.kind: none`). An unfinished run is refused.

        >>> results = dglcell.load("runs/quickstart/seed-0").results
        >>> results[results.part == "test"].model.iloc[0]
        'hetero_cell'
        """
        runs = [read_run(path, parts=()) for path in self.directories]
        return _results([(run.seed, row) for run in runs for row in run.rows])

    def predict(
        self,
        strains: Genotypes | pd.DataFrame | Strains,
        *,
        covariates: Mapping[str, Any] | None = None,
        unknown: str = "refuse",
        batch_size: int | None = None,
        interval: float | None = None,
    ) -> pd.DataFrame:
        """Predict the phenotypes of strains.

        >>> predictor = dglcell.load("runs/quickstart/seed-0")
        >>> predictor.predict([["b0008", "b2464"], ["b0727"]]).columns.tolist()
        ['gene_1', 'gene_2', 'predicted_fitness', 'predicted_by', 'unknown']

        An activity is what is left of a gene: 0 of a deleted one, 0.3 after a knock-down, 1 in the wild type.

        >>> found = dglcell.load("ecoli").predict([{"b0720": 0.3, "b0008": 0}, {"b0720": 0.3}])
        >>> found[["gene_1", "activity_1", "gene_2", "activity_2"]].values.tolist()[0]
        ['b0720', 0.3, 'b0008', 0.0]

        Args:
            strains: lists of deleted genes, or gene → activity; ``Strains``; or a DataFrame, whose other columns are
                kept, with columns ``gene_1, gene_2, …``, one column ``genes``, separated by ``;``, or the gene columns
                of the training. Activities are behind genes, ``b0008:0.3``, or in columns ``activity_1, …`` or
                ``activities``, and covariates in columns of their name, or of their name in training.
            covariates: covariate that the model sees → a value for all strains, or one for each of them; it becomes a
                column ``covariate_NAME``.
            unknown: ``refuse`` genes that the cell graph lacks, or leave the predictions of their strains ``empty``.
            batch_size: strains per forward pass; 256 where None, or fewer that fit into memory.
            interval: share of measured values that intervals shall hold, e.g. 0.9; there are none where None.

        Returns:
            The strains in order, with ``predicted_PHENOTYPE`` in original units: for several seeds their mean, with
            ``sd_PHENOTYPE``. ``low_PHENOTYPE`` and ``high_PHENOTYPE`` are the ends of the interval; a class has a
            calibrated ``probability_PHENOTYPE``. ``predicted_by`` names the network, a baseline, or an ensemble of
            both, and ``unknown`` the genes that the cell graph lacks, separated by ``;``.

        Raises:
            GenotypeError: strains cannot be predicted, each of which is named by its number, from 0; or they lack a
                covariate that the model sees.
            ConfigError: ``unknown`` has another value, or the models have no intervals with this coverage.
            CheckpointError: intervals are wanted, and the run has no calibration.
        """
        if unknown not in UNKNOWN:
            raise ConfigError("`unknown` has an unknown value", got=unknown, expected=" or ".join(UNKNOWN))
        intervals = None if interval is None else Intervals.of(self.members, interval)
        table = self._read(strains, covariates, unknown)
        table.refuse_columns(["unknown"])
        with _PREDICTING:
            found = predict_table(self.members, table, batch_size=batch_size, intervals=intervals)
        by = found.pop(PREDICTED_BY)
        return table.frame.assign(**found, **{PREDICTED_BY: by, "unknown": list(table.lacking)})

    def explain(
        self,
        strains: Genotypes | pd.DataFrame | Strains,
        *,
        covariates: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
    ) -> pd.DataFrame:
        """Say which changes of strains the predicted changes come from: predict every subset of them.

        >>> found = dglcell.load("runs/quickstart/seed-0").explain([["b0008", "b2464"]])
        >>> found.subset.tolist()
        ['', 'b0008', 'b2464', 'b0008;b2464']
        >>> bool(abs(found.interaction.sum() - found.change.iloc[-1]) < 1e-6)
        True

        Args:
            strains, covariates, batch_size: as for `predict`.

        Returns:
            For each strain (its number), its genes and phenotype the subsets of its changes, small ones first: what is
            predicted, its change from the wild type, and the part of the whole change. ``interaction`` is what a subset
            does beyond all smaller ones inside it, and ``responsible`` is one of the smallest with nine tenths of the
            whole change. For several seeds their mean is explained.

        Raises:
            GenotypeError: as for `predict`; or a strain changes more than six genes.
        """
        read = self._read(strains, covariates).strains
        with _PREDICTING:
            return explain(self.members, read, batch_size)

    def attribute(
        self,
        strains: Genotypes | pd.DataFrame | Strains,
        *,
        covariates: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
    ) -> pd.DataFrame:
        """Split what the network predicts over its terms, relations, genes, nodes and messages, in one pass.

        >>> found = dglcell.load("ecoli-core").attribute([["b0008", "b2464"]])
        >>> sorted(found.kind.unique())
        ['gene', 'lost', 'message', 'node', 'relation', 'term']
        >>> found[found.kind == "term"].name.tolist()
        ['graph', 'link']

        Args:
            strains, covariates, batch_size: as for `predict`.

        Returns:
            A row for each strain, phenotype, kind and name, with the change from the wild type with the same covariates
            that this gives, in original units, and its part of the whole change. Terms and genes sum to the whole
            change; relations, lost nodes, messages and nodes to what the term `graph` gives. Weak nodes and messages
            are one row. For several seeds their mean is split.

        Raises:
            GenotypeError: as for `predict`.
            ConfigError: the model computes whole states, as attention over edges does.
        """
        read = self._read(strains, covariates).strains
        with _PREDICTING:
            return split(self.members, read, batch_size)

    @cached_property
    def _columns(self) -> GenotypeColumns:
        return GenotypeColumns.of(self.members[0])

    def _read(self, strains: Any, covariates: Any = None, unknown: str = UNKNOWN[0]) -> GenotypeTable:
        return replace(self._columns, unknown=unknown).read(strains, self.cell.genes, covariates)


def _results(rows: Iterable[tuple[int, ResultRow]]) -> pd.DataFrame:
    import pandas as pd

    about = ("model", "part", "phenotype", "is_baseline")
    found = [{"seed": seed, **{k: getattr(row, k) for k in about}, **row.metrics} for seed, row in rows]
    return pd.DataFrame(found, columns=None if found else ["seed", *about])


def _on_others(rows: Iterable[ResultRow]) -> pd.DataFrame:
    """Return results on other strains than those of a split."""
    return _results((0, row) for row in rows).drop(columns=["seed", "part", "is_baseline"])


def load(
    runs: str | Path | Sequence[str | Path],
    *,
    checkpoint: str | None = None,
    device: str = "cpu",
    predict_with: str = BEST,
) -> Predictor:
    """Load a trained model, or the models of several seeds.

    >>> import dglcell
    >>> dglcell.load("ecoli-core").phenotypes
    ('fitness',)
    >>> predictor = dglcell.load("runs/quickstart")
    >>> [path.name for path in predictor.directories]
    ['seed-0', 'seed-1']
    >>> network = dglcell.load("runs/quickstart/seed-0", predict_with="network")
    >>> network.predict([["b0008"]]).predicted_by[0]
    'hetero_cell'

    Args:
        runs: a run directory; an experiment's folder, for all of its seeds; the name of a trained model, or the path of
            its file; or a list of these.
        checkpoint: ``best_loss``, ``best_pearson``, ``best_average_precision``, ``last`` or a path; None: as
            configured in each run.
        device: ``cpu`` or ``cuda``.
        predict_with: ``network``; ``baseline``, the best of each run on the validation part; ``ensemble``, both
            together; or ``best``, the best of these three on the validation part.

    Raises:
        CheckpointError: a run or checkpoint is missing or damaged, the runs predict different things, or a run lacks
            its baselines.
        ConfigError: ``predict_with`` is none of these, or a run has no such baseline or ensemble.
        MissingDependencyError: this machine does not have the device.
    """
    check_device(device)
    given = [runs] if isinstance(runs, str | Path) else list(runs)
    # A trained model is called by its name, and not by the folder in which it lies.
    names = {found: found if Path(path).exists() else path for path in given for found in runs_in(Path(path))}
    if not names:
        raise CheckpointError("no run to load", got=f"{given}", expected="a run directory, or several")
    if len(names) > 1 and checkpoint is not None and checkpoint not in CHECKPOINTS:
        what, expected = "several runs have no checkpoint in common", f"one of {listing(CHECKPOINTS)}"
        raise CheckpointError(what, got=checkpoint, expected=expected, do="name one of these, or load one run")
    members = [load_trained(RunDirectory(path), checkpoint) for path in names]
    first = members[0]
    for member in members:
        if not member.run.results.is_file():
            log.warning("the run '%s' is not finished", member.run.path)
        member.model.to(device)
        of_both = [(one.cell.sha256, one.phenotypes, seen_by(one)) for one in (first, member)]
        if of_both[0] != of_both[1]:
            got = f"'{first.run.path}' and '{member.run.path}'"
            expected = "runs on one cell graph that predict the same phenotypes and see the same covariates"
            raise CheckpointError("these runs cannot predict together", got=got, expected=expected)
    members = [predicting_with(predict_with, member) for member in members]
    for member in members:
        for phenotype, one in member.chosen.items():
            if predict_with != NETWORK or not one.is_best:
                by = one.name + ("" if one.is_best else ", which is not the best") + (one.why and f" ({one.why})")
                log.info("%s: %s is predicted by %s", names[member.run.path], phenotype, by)
    return Predictor(tuple(members))


def train(
    experiment: str | Path,
    *overrides: str,
    callbacks: Sequence[Callback] = (),
    logger: Logger | Sequence[Logger] = (),
    **keys: Any,
) -> Predictor:
    """Train an experiment, or continue it where it stopped, as `dglcell train` does.

    >>> import dglcell
    >>> run = dglcell.train("quickstart", epochs=1, baselines=False)
    >>> run.directory.as_posix()
    'runs/quickstart/seed-0'

    Args:
        experiment: a YAML file, or its name in the folder ``conf``.
        overrides: texts ``dotted.key=value``, as on the command line.
        callbacks: callbacks of Lightning, which are called beside those of the package. What they keep in checkpoints
            must be numbers, texts and containers of these.
        logger: one or several loggers of Lightning. They get the figures of each epoch, as W&B does with
            `tracking.wandb`.
        keys: key → value. A key needs no section if only one section has it: ``epochs=3`` is
            `trainer.epochs`, ``lr=0.01`` is `optimizer.lr`. ``**{"split.seed": 1}`` always works.

    Returns:
        The trained model, with the ``directory`` and the ``results`` of the run.

    Raises:
        DglcellError: anything the user can mend.
        StoppedError: a signal came, and what is needed to continue is on disk.
    """
    path = experiment_file(experiment)
    config = load_config(path, [*overrides, *(override(key, value) for key, value in keys.items())])
    from dglcell.training.run import train as run

    loggers = tuple(logger) if isinstance(logger, Sequence) else (logger,)
    command = f"dglcell.train({str(experiment)!r})"
    return load(run(config, command, callbacks=callbacks, loggers=loggers).directory.path)


def evaluate(run: str | Path | Predictor, strains: Strains | pd.DataFrame | None = None) -> pd.DataFrame:
    """Evaluate a trained model on its own split with the baselines, or on strains that you have measured.

    >>> import dglcell
    >>> strains = dglcell.Strains.from_names([["b0008"], ["b0727"], ["b2464"]], phenotypes={"fitness": [1.0, 0.9, 1.0]})
    >>> int(dglcell.evaluate("runs/quickstart/seed-0", strains).n[0])
    3

    Args:
        run: what `load` takes, or what `load` and `train` return.
        strains: with measured phenotypes in original units, in a DataFrame in columns that are named like the
            phenotypes of the model, and with activities and covariates as `Predictor.predict` reads them. Where None:
            the validation and test part of the run. A run whose strains all trained (`split.kind: none`) has neither,
            and the table has no row.

    Returns:
        A row for each model, part and phenotype, with metrics in original units. Several seeds are
        evaluated on their own splits. For measured strains, the mean of their predictions is evaluated.

    Raises:
        DglcellError: the run or a checkpoint is missing or damaged, no phenotype that the model predicts is measured,
            or strains cannot be predicted.
    """
    predictor = run if isinstance(run, Predictor) else load(run)
    if strains is None:
        from dglcell.training.evaluate import evaluate_run

        found = ((one.config.seed, evaluate_run(one.run.path, str(one.path))) for one in predictor.members)
        return _results((seed, row) for seed, rows in found for row in rows)
    given: Any = strains.phenotypes if isinstance(strains, Strains) else strains
    measured = numbers_of(given, [name for name in predictor.phenotypes if name in given])
    if not measured:
        what, got = "these strains have no phenotype that the model predicts", listing(given) or "no phenotype"
        raise DataError(what, got=got, expected=" or ".join(predictor.phenotypes))
    read = predictor._read(strains).strains
    with _PREDICTING:
        return _on_others(measured_rows(predictor.members, read, measured))


def evaluate_on(
    run: str | Path | Predictor, experiment: str | Path, *overrides: str, phenotypes: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Evaluate a trained model on the strains of another experiment, e.g. a screen that it has not seen.

    Strains are left out that the run was trained on, with the same activities and the same of the covariates that it
    sees, and those with a gene that its cell graph lacks. The log reports their numbers. By a model that sees no
    covariates, the wild type is left out, too.

    >>> import dglcell
    >>> dglcell.evaluate_on("runs/quickstart/seed-0", "quickstart").phenotype.tolist()
    ['fitness']

    Args:
        run: as in `evaluate`. The store that it was trained on must exist.
        experiment: a YAML file, or its name in the folder ``conf``. Its store is built if it does not exist.
        overrides: keys of the experiment, ``dotted.key=value``.
        phenotypes: phenotype of the model → phenotype of the experiment that it is compared with. None: phenotypes
            with the same name.

    Returns:
        A row for each phenotype and model: the network, its ensemble with a baseline, and the baselines. For several
        seeds, the mean prediction is evaluated. The baselines are those that the first seed kept, if it fitted any.

    Raises:
        DglcellError: the run, its store, the experiment or a phenotype is missing, or no measured strain is left.
    """
    predictor = run if isinstance(run, Predictor) else load(run)
    with _PREDICTING:
        return _on_others(rows_on(predictor.members, experiment, overrides, phenotypes))


def load_cell(source: str | Path) -> CellGraph:
    """Return the cell graph of a run, a trained model or an experiment.

    >>> import dglcell
    >>> cell = dglcell.load_cell("quickstart")
    >>> len(cell.genes), cell.genes.names[0]
    (137, 'b0008')

    Args:
        source: a run directory, a folder with a saved cell graph, the name of a trained model, an experiment's YAML
            file, or its name in the folder ``conf``, whose cell graph is built.

    Raises:
        DglcellError: there is no such experiment, a file is missing or unusable, or the folder has no cell graph.
    """
    path = Path(source) if Path(source).exists() else find_model(str(source))
    if path is not None and path.is_dir():
        run = RunDirectory(path)
        return cell_of_run(run) if run.config.is_file() else read_cell(path)
    config = load_config(experiment_file(source))
    return build_cell(config.cell, config.paths.raw)
