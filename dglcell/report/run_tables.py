"""Read the tables of a finished run: predictions of strains, and what is left of their genes."""

from __future__ import annotations

import csv
import itertools
import math
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dglcell.data.columns import MEDIUM
from dglcell.data.table import GENES, LEARNED_STRENGTHS, STRENGTHS
from dglcell.errors import CheckpointError, DataError, DglcellError
from dglcell.files.untrusted import Wrong, damaged
from dglcell.plots.data import Doses, Predictions
from dglcell.runs.directory import MEND, RunDirectory

MEASURED, PREDICTED, NETWORK = "measured_", "predicted_", "network_"
"""Names of columns of the predictions begin with these texts."""


def read_predictions(directory: RunDirectory, part: str, *, of_network: bool = False) -> dict[str, Predictions]:
    """Return phenotype → predictions, from ``predictions_<part>.csv``.

    Args:
        of_network: those of the network, also where something else predicts.

    Raises:
        CheckpointError: the file is missing or not as a run wrote it.
    """
    with _predictions_table(directory, part) as (header, lines):
        places = {name: i for i, name in enumerate(header) if i and name.startswith((MEASURED, PREDICTED, NETWORK))}
        columns = {name: array("d") for name in places}
        for line in lines:
            for name, i in places.items():
                columns[name].append(float(line[i]) if line[i] else math.nan)
        names = [name.removeprefix(MEASURED) for name in columns if name.startswith(MEASURED)]
        found = {}
        for name in names:
            with_network = of_network and NETWORK + name in columns
            predicted = columns[(NETWORK if with_network else PREDICTED) + name]
            found[name] = Predictions(np.array(columns[MEASURED + name]), np.array(predicted))
        return found


def read_doses(directory: RunDirectory, part: str) -> Doses | None:
    """Return what is left of the gene of each strain, from ``predictions_<part>.csv``; None where genes are deleted.

    What the model has learned comes before what the table gave.

    Raises:
        CheckpointError: the file is missing or not as a run wrote it.
    """
    with _predictions_table(directory, part) as (header, lines):
        place = {name: i for i, name in enumerate(header)}
        given = place.get(LEARNED_STRENGTHS, place.get(STRENGTHS))
        if given is None:
            return None
        called, medium, of_strain = place.get("names", place[GENES]), place.get(MEDIUM), []
        for line in lines:
            is_single = bool(line[place[GENES]]) and ";" not in line[place[GENES]]
            strain = (line[called], float(line[given])) if is_single else ("", math.nan)
            of_strain.append((*strain, "" if medium is None else line[medium]))
        genes, strengths, media = zip(*of_strain, strict=True) if of_strain else ((), (), ())
        names, shown = (np.array(texts, dtype=str) for texts in (genes, media))
        return Doses(names, np.array(strengths, dtype=float), shown, LEARNED_STRENGTHS in place)


def check_predictions(directory: RunDirectory, part: str) -> Path:
    """Return the file with the predictions of a part.

    Raises:
        CheckpointError: it is missing.
    """
    path = directory.predictions(part)
    if not path.is_file():
        raise CheckpointError(
            f"the run '{directory.path}' has no predictions of the {part} part",
            expected=path.name,
            do="run its `dglcell train` command again: a finished run is evaluated anew",
        )
    return path


@contextmanager
def _predictions_table(directory: RunDirectory, part: str) -> Iterator[tuple[list[str], Iterator[list[str]]]]:
    """Open the predictions of a part as header and lines; while it is read, faults are those of a damaged file."""
    with _table(check_predictions(directory, part)) as found:
        yield found


@contextmanager
def _table(path: Path) -> Iterator[tuple[list[str], Iterator[list[str]]]]:
    """Open a table as header and lines; while it is read, faults are those of a damaged file."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = csv.reader(file, strict=True)
            [header] = itertools.islice(lines, 1)
            yield header, lines
    except (ValueError, IndexError, KeyError, DataError, UnicodeDecodeError, csv.Error) as error:
        raise damaged_file(path, error if path.stat().st_size else "an empty file") from error


def damaged_file(path: Path, reason: Wrong | Exception | str) -> DglcellError:
    """Return an error about a file of a run that is not as the run wrote it."""
    return damaged(path, reason, CheckpointError, expected="the file as `dglcell train` wrote it", do=MEND)
