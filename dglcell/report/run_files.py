"""Read a finished run from its directory alone: neither its store nor a model is needed."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from dglcell.config.read import read_yaml
from dglcell.data.changes import GENES, LEARNED_STRENGTHS, STRENGTHS
from dglcell.data.columns import MEDIUM
from dglcell.errors import CheckpointError, ConfigError, DglcellError, count, listing
from dglcell.files.untrusted import (
    COUNT,
    FLAG,
    MAPPING,
    NUMBER,
    TEXT,
    Kind,
    UnreadableError,
    Wrong,
    damaged,
    find_wrong,
    list_of,
    mapping_of,
    optional,
    read_json,
    record,
)
from dglcell.metrics import COLUMNS, ResultRow
from dglcell.plots.data import Doses, History, Predictions, ReportData
from dglcell.runs.directory import MEND, EpochLog, RunDirectory

if TYPE_CHECKING:
    import pandas as pd

CONFIG = {
    "seed": COUNT,
    "experiment.name": TEXT,
    "experiment.description": TEXT,
    "experiment.tags": list_of(TEXT),
    "data.source.name": TEXT,
    "split.kind": TEXT,
    "loss.name": TEXT,
    "optimizer.name": TEXT,
    "optimizer.lr": NUMBER,
    "scheduler.name": TEXT,
    "trainer.epochs": COUNT,
    "trainer.devices": COUNT,
    "trainer.num_nodes": COUNT,
    "trainer.precision": TEXT,
    "trainer.checkpoint": TEXT,
    "plot_points": COUNT,
}
"""These are fields of ``config.yaml``."""

ENVIRONMENT = {
    "dglcell": TEXT,
    "command": TEXT,
    "python": TEXT,
    "platform": TEXT,
    "threads": COUNT,
    "devices": Kind("a list of devices", lambda v: isinstance(v, list) and bool(v) and all(map(TEXT.fits, v))),
    "packages": mapping_of(optional(TEXT)),
    "git": optional(record({"commit": TEXT, "dirty": FLAG})),
    "hashes": mapping_of(TEXT),
    "hashes.split": TEXT,
    "strains": mapping_of(COUNT),
    "cell.genes": COUNT,
    "cell.edges": COUNT,
    "split.kind": TEXT,
    "split.counts": mapping_of(COUNT),
    "split.parameters": MAPPING,
    "model": TEXT,
    "parameters": COUNT,
}
"""These are fields of ``environment.json``."""

ROW = {
    "model": TEXT,
    "part": TEXT,
    "phenotype": TEXT,
    "kind": Kind(" or ".join(COLUMNS), lambda v: isinstance(v, str) and v in COLUMNS),
    "is_null": FLAG,
    "metrics": mapping_of(optional(NUMBER)),
}

RESULTS = {"checkpoint": TEXT, "epoch": COUNT, "epochs": COUNT, "units": mapping_of(TEXT), "rows": list_of(record(ROW))}
"""These are fields of ``results.json``."""


PARTS = ("test", "validation")


def result_rows(rows: Iterable[dict[str, Any]]) -> list[ResultRow]:
    """Return the rows of ``results.json`` as they are shown."""
    return [
        ResultRow(
            row["model"],
            row["part"],
            row["phenotype"],
            {name: math.nan if value is None else value for name, value in row["metrics"].items()},
            row["is_null"],
            row["kind"],
        )
        for row in rows
    ]


@dataclass(frozen=True)
class RunFiles:
    """Hold what a finished run wrote.

    Attributes:
        environment: versions, git state, hashes, sizes.
        results: the table of results, and the checkpoint that it is of.
        predictions: part → phenotype → predictions.
    """

    directory: RunDirectory
    config: dict[str, Any]
    environment: dict[str, Any]
    results: dict[str, Any]
    history: History
    predictions: dict[str, dict[str, Predictions]]

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

    @property
    def rows(self) -> list[ResultRow]:
        """Return metrics of the model and of the null models."""
        return result_rows(self.results["rows"])

    @property
    def size_line(self) -> str:
        """Return numbers of strains and sizes of the cell graph in a line."""
        about = self.environment
        sizes = ", ".join(f"{count:,} {name}" for name, count in about["strains"].items())
        return (
            f"strains: {sizes} ({self.config['split']['kind']} split) · "
            f"cell: {about['cell']['genes']:,} genes, {about['cell']['edges']:,} edges"
        )

    @property
    def training_line(self) -> str:
        """Return parameters, model, seed and time in a line."""
        about = self.environment
        return (
            f"{about['parameters']:,} parameters · {about['model']} · seed {self.seed} · "
            f"{count(len(self.history), 'epoch')} in {self.history.duration} on {about['devices'][0]}"
        )

    def report_data(self) -> ReportData:
        """Return the data in the form that the plots take."""
        return ReportData(
            title=self.name,
            rows=self.rows,
            predictions=self.predictions,
            subtitle=(self.size_line, self.training_line),
            history=self.history,
            units=self.results["units"],
            best_epoch=self.best_epoch if self.rows else None,  # the last one, where nothing says which is best
            points=self.config["plot_points"],
            doses={part: found for part in self.predictions if (found := read_doses(self.directory, part))},
            predicts={name: of["name"] for name, of in self.results.get("predicts", {}).items()},
        )


def read_run(path: Path, parts: Iterable[str] = PARTS) -> RunFiles:
    """Read a run directory.

    Args:
        parts: parts of the split whose predictions are read.

    Raises:
        CheckpointError: it is no run directory, the run is not finished, or a file of it is missing or damaged.
    """
    directory = RunDirectory(Path(path))
    if not directory.path.is_dir():
        raise CheckpointError(f"run directory '{directory.path}' not found", do="give the path that `train` printed")
    config: Any = OmegaConf.to_container(read_run_config(directory))
    epochs = config["trainer"]["epochs"]
    rows = EpochLog(directory.metrics, epochs).read()
    results = _read_results(directory, len(rows), epochs)
    environment = _read_fields(directory.environment, ENVIRONMENT)
    # Where all strains are in the training part, the other parts are empty.
    filled = [part for part in parts if environment["strains"].get(part, 1)]
    predictions = {part: read_predictions(directory, part) for part in filled}
    for part, found in predictions.items():
        if not {row["phenotype"] for row in results["rows"]} <= set(found):
            raise damaged_file(directory.predictions(part), f"phenotypes {', '.join(found)}")
    return RunFiles(directory, config, environment, results, History(rows), predictions)


def read_run_config(directory: RunDirectory) -> DictConfig:
    """Read the configuration in a run directory, as it stands there.

    Raises:
        CheckpointError: there is no configuration, or it is damaged.
    """
    if not directory.config.is_file():
        seeds = sorted(path.parent.name for path in directory.path.glob("seed-*/config.yaml"))
        raise CheckpointError(
            f"'{directory.path}' is not a run directory",
            expected="a directory with config.yaml",
            do=f"give one of its runs: {listing(seeds)}" if seeds else "give the folder that `dglcell train` printed",
        )
    remedy = "put it back; a checkpoint of the run holds it too"
    try:
        content = read_yaml(directory.config)
    except ConfigError as error:
        raise CheckpointError(str(error), do=remedy) from error
    wrong = find_wrong(OmegaConf.to_container(content), CONFIG)
    if wrong is not None:
        raise damaged(directory.config, wrong, CheckpointError, expected="", do=remedy)
    return content


def _read_results(directory: RunDirectory, epochs: int, planned: int) -> dict[str, Any]:
    """Read the table of results.

    Raises:
        CheckpointError: there is no table, the model is missing in it, or training has gone on since it was written.
    """
    results = _read_fields(directory.results, RESULTS) if directory.results.is_file() else None
    if results is not None:
        rows = results["rows"]
        tested = {row["phenotype"] for row in rows if row["part"] == "test" and not row["is_null"]}
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


def _read_fields(path: Path, fields: dict[str, Kind]) -> dict[str, Any]:
    """Read a JSON object with these fields."""
    content = _read_json(path)
    wrong = find_wrong(content, fields)
    if wrong is not None:
        raise damaged_file(path, wrong)
    return content


def _read_json(path: Path) -> dict[str, Any]:
    if not os.path.lexists(path):
        raise CheckpointError(f"'{path.parent}' is not a complete run directory", expected=path.name)
    try:
        content = read_json(path)
    except UnreadableError as error:
        raise damaged_file(path, error) from error
    if not isinstance(content, dict):
        raise damaged_file(path, f"a {type(content).__name__}")
    return content


MEASURED, PREDICTED, NETWORK = "measured_", "predicted_", "network_"
"""Names of columns of the predictions begin with these texts."""


def read_table(directory: RunDirectory, part: str) -> pd.DataFrame:
    """Return ``predictions_<part>.csv`` as a run wrote it, with a text in every cell.

    Raises:
        CheckpointError: the file is missing or not as a run wrote it.
    """
    import pandas as pd

    path = directory.predictions(part)
    if not path.is_file():
        raise CheckpointError(
            f"the run '{directory.path}' has no predictions of the {part} part",
            expected=path.name,
            do="run its `dglcell train` command again: a finished run is evaluated anew",
        )
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


def _numbers(path: Path, column: pd.Series) -> Any:
    """Return the numbers of a column, [S], NaN for empty cells."""
    try:
        return column.replace("", "nan").to_numpy(dtype=float)
    except ValueError as error:
        raise damaged_file(path, error) from error


def read_predictions(directory: RunDirectory, part: str, *, of_network: bool = False) -> dict[str, Predictions]:
    """Return phenotype → predictions, from ``predictions_<part>.csv``.

    Args:
        of_network: those of the network, also where something else predicts.

    Raises:
        CheckpointError: the file is missing or not as a run wrote it.
    """
    table, path, found = read_table(directory, part), directory.predictions(part), {}
    for name in (column.removeprefix(MEASURED) for column in map(str, table) if column.startswith(MEASURED)):
        with_network = of_network and NETWORK + name in table
        predicted = table[(NETWORK if with_network else PREDICTED) + name]
        found[name] = Predictions(_numbers(path, table[MEASURED + name]), _numbers(path, predicted))
    return found


def read_doses(directory: RunDirectory, part: str) -> Doses | None:
    """Return what is left of the gene of each strain, from ``predictions_<part>.csv``; None where genes are deleted.

    What the model has learned comes before what the table gave.

    Raises:
        CheckpointError: the file is missing or not as a run wrote it.
    """
    table = read_table(directory, part)
    given = next((name for name in (LEARNED_STRENGTHS, STRENGTHS) if name in table), None)
    if given is None:
        return None
    single = (table[GENES] != "") & ~table[GENES].str.contains(";")
    left = _numbers(directory.predictions(part), table[given].where(single, ""))
    genes = table["names" if "names" in table else GENES].where(single, "").to_numpy(dtype=str)
    media = table[MEDIUM].to_numpy(dtype=str) if MEDIUM in table else np.full(len(table), "")
    return Doses(genes, left, media, LEARNED_STRENGTHS in table)


def damaged_file(path: Path, reason: Wrong | Exception | str) -> DglcellError:
    """Return an error about a file of a run that is not as the run wrote it."""
    return damaged(path, reason, CheckpointError, expected="the file as `dglcell train` wrote it", do=MEND)
