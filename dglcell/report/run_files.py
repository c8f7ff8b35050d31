"""Read a finished run from its directory alone: neither its store nor a model is needed.

Where a file is missing, damaged or of an unfinished run, functions raise a CheckpointError.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, Field

from dglcell.config.read import read_yaml
from dglcell.data.table import GENES, REGRESSION
from dglcell.errors import CheckpointError, ConfigError, DglcellError, count, listing
from dglcell.files.untrusted import Fields, Number, UnreadableError, Whole, check_fields, damaged, read_fields
from dglcell.metrics import ResultRow
from dglcell.runs import MEND, EpochLog, RunDirectory

if TYPE_CHECKING:
    import pandas as pd

# The fields that are read of each file, and their types.


class Commit(BaseModel):
    """The commit of the code of a run."""

    commit: str


class Row(BaseModel):
    """A row of ``results.json``."""

    model: str
    part: str
    phenotype: str
    kind: Literal["regression", "classification"]
    is_baseline: bool
    metrics: dict[str, Number | None]


CONFIG = {
    **dict.fromkeys(("experiment.name", "experiment.description", "data.source.name", "split.kind"), str),
    **dict.fromkeys(("seed", "trainer.epochs", "plot_points"), Whole),
    "experiment.tags": list[str],
    "trainer.checkpoint": str,
}
ENVIRONMENT = {
    **dict.fromkeys(("dglcell", "command", "hashes.split", "hashes.cell", "split.kind", "model"), str),
    **dict.fromkeys(("cell.genes", "cell.edges", "parameters"), Whole),
    "devices": Annotated[list[str], Field(min_length=1)],
    "git": Commit | None,
    "hashes": dict[str, str],
    "strains": dict[str, Whole],
}
RESULTS = {"checkpoint": str, "epoch": Whole, "epochs": Whole, "units": dict[str, str], "rows": list[Row]}

PARTS = ("test", "validation")
AS_WRITTEN = "the file as `dglcell train` wrote it"
MEASURED, PREDICTED = "measured_", "predicted_"
"""Names of columns of the predictions begin with these texts."""


def result_rows(rows: Iterable[dict[str, Any]]) -> list[ResultRow]:
    """Return the rows of ``results.json`` as they are shown."""
    return [
        ResultRow(
            **{key: row[key] for key in Row.model_fields if key != "metrics"},
            metrics={name: math.nan if value is None else value for name, value in row["metrics"].items()},
        )
        for row in rows
    ]


@dataclass(frozen=True)
class Predictions:
    """Hold predictions for one part of the split and one phenotype, in original units."""

    measured: NDArray[np.floating]  #: [S], NaN where not measured
    predicted: NDArray[np.floating]  #: [S]

    def __len__(self) -> int:
        return len(self.measured)

    @cached_property
    def usable(self) -> Predictions:
        """Return the strains with a measurement and a finite prediction, in float64."""
        measured, predicted = np.asarray(self.measured, float), np.asarray(self.predicted, float)
        keep = np.isfinite(measured) & np.isfinite(predicted)
        return Predictions(measured[keep], predicted[keep])


@dataclass(frozen=True)
class RunFiles:
    """Hold what a finished run wrote."""

    directory: RunDirectory
    config: dict[str, Any]
    environment: dict[str, Any]  #: versions, git state, hashes, sizes
    results: dict[str, Any]  #: the table of results, and the checkpoint that it is of
    history: Sequence[Mapping[str, float | None]]  #: a row an epoch; None stands for undefined values
    predictions: dict[str, dict[str, Predictions]]  #: part → phenotype → predictions

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
        return str(self.config["experiment"]["name"])

    @property
    def seed(self) -> int:
        """Return the seed of the run."""
        return int(self.config["seed"])

    @property
    def best_epoch(self) -> int:
        """Return the epoch of the checkpoint that was evaluated, counted from 1."""
        return int(self.results["epoch"]) + 1

    @cached_property
    def rows(self) -> list[ResultRow]:
        """Return metrics of the model and of the baselines."""
        return result_rows(self.results["rows"])

    @property
    def phenotypes(self) -> list[str]:
        """Return all phenotypes that have predictions or metrics, in the order of their first appearance."""
        predicted = [name for part in self.predictions.values() for name in part]
        return list(dict.fromkeys([*predicted, *(row.phenotype for row in self.rows)]))

    def kind(self, phenotype: str) -> str:
        """Return the kind of a phenotype's labels, as its metrics say; regression where it has none."""
        return next((row.kind for row in self.rows if row.phenotype == phenotype), REGRESSION)

    @property
    def epochs(self) -> NDArray[np.int64]:
        """Return the epochs of the history, counted from 1, as the log prints them."""
        return np.array([int(row["epoch"] or 0) + 1 for row in self.history], dtype=np.int64)

    def curve(self, key: str) -> NDArray[np.float64]:
        """Return one value an epoch, NaN where there is none."""
        return np.array([row.get(key) for row in self.history], dtype=np.float64)  # None becomes NaN

    @property
    def minutes(self) -> float:
        """Return how many minutes all epochs took together."""
        return float(np.nansum(self.curve("seconds"))) / 60

    @property
    def lines(self) -> list[str]:
        """Return sizes of strains and cell graph in a line, and parameters, model, seed and time in another."""
        about, cell = self.environment, self.environment["cell"]
        sizes = ", ".join(f"{n:,} {name}" for name, n in about["strains"].items())
        time = f"{60 * self.minutes:.1f} s" if self.minutes < 2 else f"{self.minutes:.1f} min"
        return [
            f"strains: {sizes} ({self.config['split']['kind']} split) · cell: {cell['genes']:,} genes, "
            f"{cell['edges']:,} edges",
            f"{about['parameters']:,} parameters · {about['model']} · seed {self.seed} · "
            f"{count(len(self.history), 'epoch')} in {time} on {about['devices'][0]}",
        ]


def read_run(path: Path, parts: Iterable[str] = PARTS) -> RunFiles:
    """Read the directory of a finished run, with the predictions of some parts of its split."""
    directory = RunDirectory(Path(path))
    if not directory.path.is_dir():
        raise CheckpointError(f"run directory '{directory.path}' not found", do="give the path that `train` printed")
    config: Any = OmegaConf.to_container(read_run_config(directory))
    epochs = config["trainer"]["epochs"]
    rows = EpochLog(directory.metrics, epochs).read()
    results = _read_results(directory, len(rows), epochs)
    environment = _read_fields(directory.environment, ENVIRONMENT)
    # Where all strains are in the training part, the other parts are empty.
    predictions = {part: read_predictions(directory, part) for part in parts if environment["strains"].get(part, 1)}
    for part, of_part in predictions.items():
        if not {row["phenotype"] for row in results["rows"]} <= set(of_part):
            raise damaged_file(directory.predictions(part), f"phenotypes {', '.join(of_part)}")
    return RunFiles(directory, config, environment, results, rows, predictions)


def read_run_config(directory: RunDirectory) -> DictConfig:
    """Read the configuration in a run directory, as it stands there."""
    if not directory.config.is_file():
        seeds = sorted(path.parent.name for path in directory.path.glob("seed-*/config.yaml"))
        what, expected = f"'{directory.path}' is not a run directory", "a directory with config.yaml"
        do = f"give one of its runs: {listing(seeds)}" if seeds else "give the folder that `dglcell train` printed"
        raise CheckpointError(what, expected=expected, do=do)
    remedy = "put it back; a checkpoint of the run holds it too"
    try:
        content = read_yaml(directory.config)
        check_fields(OmegaConf.to_container(content), CONFIG)
    except ConfigError as error:
        raise CheckpointError(str(error), do=remedy) from error
    except UnreadableError as wrong:
        raise damaged(directory.config, wrong, CheckpointError, expected="", do=remedy) from wrong
    return content


def _read_results(directory: RunDirectory, epochs: int, planned: int) -> dict[str, Any]:
    """Read the table of results, which must have the model, and be of the last epoch."""
    results = _read_fields(directory.results, RESULTS) if directory.results.is_file() else None
    if results is not None:
        rows = results["rows"]
        tested = {row["phenotype"] for row in rows if row["part"] == "test" and not row["is_baseline"]}
        if untested := {row["phenotype"] for row in rows} - tested:
            missing = f"no row of the model for the test part of {listing(sorted(untested))}"
            raise damaged_file(directory.results, missing)
        if results["epochs"] == epochs:
            return results
    since = "" if results is None else f"; its results are those after epoch {results['epochs']}"
    raise CheckpointError(
        f"the run '{directory.path}' is not finished",
        got=f"{epochs} of {planned} epochs{since}",
        expected="a run that was trained and evaluated to its end",
        do="continue it with the `dglcell train` command that started it",
    )


def _read_fields(path: Path, fields: Fields) -> dict[str, Any]:
    if not os.path.lexists(path):
        raise CheckpointError(f"'{path.parent}' is not a complete run directory", expected=path.name)
    return read_fields(path, fields, CheckpointError, expected=AS_WRITTEN, do=MEND)


def read_table(directory: RunDirectory, part: str) -> pd.DataFrame:
    """Return ``predictions_<part>.csv`` as a run wrote it, with a text in every cell."""
    import pandas as pd

    path = directory.predictions(part)
    if not path.is_file():
        do = "run its `dglcell train` command again: a finished run is evaluated anew"
        raise CheckpointError(f"'{directory.path}' has no predictions of the {part} part", expected=path.name, do=do)
    try:
        with open(path, newline="", encoding="utf-8") as file:
            header, *lines = csv.reader(file, strict=True)  # pandas would fill up short lines
        table = pd.DataFrame(lines, columns=header)
    except (ValueError, csv.Error) as error:
        raise damaged_file(path, error if path.stat().st_size else "an empty file") from error
    phenotypes = [name.removeprefix(MEASURED) for name in map(str, table) if name.startswith(MEASURED)]
    if GENES not in table or table.isna().any(axis=None) or not {PREDICTED + name for name in phenotypes} <= {*table}:
        raise damaged_file(path, "other columns, or too few cells in a line")
    return table


def read_predictions(directory: RunDirectory, part: str) -> dict[str, Predictions]:
    """Return phenotype → predictions, from ``predictions_<part>.csv``."""
    table, found = read_table(directory, part), {}
    for name in (column.removeprefix(MEASURED) for column in map(str, table) if column.startswith(MEASURED)):
        try:
            columns = table[[MEASURED + name, PREDICTED + name]]
            found[name] = Predictions(*columns.replace("", "nan").to_numpy(dtype=float).T)
        except ValueError as error:
            raise damaged_file(directory.predictions(part), error) from error
    return found


def damaged_file(path: Path, reason: Exception | str) -> DglcellError:
    """Return an error about a file of a run that is not as the run wrote it."""
    return damaged(path, reason, CheckpointError, expected=AS_WRITTEN, do=MEND)
