"""Name the columns of predictions, and write rows with them as CSV, Parquet, or a folder of Parquet parts."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import DataError
from dglcell.files.atomic import (
    atomic_file,
    import_pyarrow,
    no_formula,
    only_writer,
    open_writer,
    shortest,
    six_digits,
    write_json,
)
from dglcell.files.untrusted import UnreadableError, check_fields, read_json
from dglcell.training.checkpoint import Trained
from dglcell.uncertainty import predicted_column, spread_column

if TYPE_CHECKING:
    import pandas as pd


PREDICTED_BY = "predicted_by"
"""This column says what predicted a row."""


def predicted_by(members: Sequence[Trained], phenotype: str | None = None) -> str:
    """Return the names of what predicts a phenotype, or all of them, of one model or several."""
    phenotypes = members[0].phenotypes if phenotype is None else (phenotype,)
    names = {name: "; ".join(dict.fromkeys(one.predicts(name).name for one in members)) for name in phenotypes}
    if len({*names.values()}) == 1:
        return next(iter(names.values()))
    return ", ".join(f"{name}: {by}" for name, by in names.items())


def prediction_columns(phenotypes: Sequence[str], predicted_RST: NDArray[np.floating]) -> dict[str, NDArray[Any]]:
    """Return columns of what R models predict of T phenotypes, in original units.

    They are ``predicted_<phenotype>``, the mean over the models, and of several models ``sd_<phenotype>``, the standard
    deviation over them.
    """
    columns: dict[str, NDArray[Any]] = {}
    for t, name in enumerate(phenotypes):
        columns[predicted_column(name)] = predicted_RST[:, :, t].mean(0, dtype=np.float64).astype(np.float32)
        if len(predicted_RST) > 1:
            columns[spread_column(name)] = predicted_RST[:, :, t].std(0, ddof=1, dtype=np.float64).astype(np.float32)
    return columns


def write_table(path: Path | None, frame: pd.DataFrame) -> None:
    """Write rows with predictions, which are its floats, whole or not at all; all else is text.

    In ``.parquet``, gene columns are dictionary-encoded, and their empty cells are missing values.
    Where there is no path, CSV is written to the standard output.
    """
    if path is None or path.suffix != ".parquet":
        with nullcontext(sys.stdout) if path is None else atomic_file(path) as file:
            _write_csv(file, frame)
        return
    pa, _ = import_pyarrow()
    columns: dict[str, Any] = {
        str(name): column.to_numpy() if column.dtype.kind == "f" else column.tolist() for name, column in frame.items()
    }
    for name in [name for name in columns if name.startswith("gene_")]:
        names = [text.strip() or None for text in columns[name]]
        columns[name] = pa.array(names, pa.string()).dictionary_encode()
    with atomic_file(path) as partial:
        write_tables(partial, path.suffix, iter([pa.table(columns)]))


ROWS = "rows_of_a_part"


def rows_of_parts(folder: Path, about: Mapping[str, Any], size: int, *, overwrite: bool = False) -> int:
    """Return how many rows each part of a folder has: ``size`` of one that is made now, since there was none.

    A part appears whole or not at all. Its number says which rows it has, so any number of processes may write parts,
    and a command that was stopped goes on with those that are missing. ``about`` says what the predictions are of; the
    record of an earlier folder has to agree, or its parts are removed with ``overwrite``.
    """
    record = folder / "_predictions.json"  # readers of such folders skip names with `_` in front
    found: dict[str, Any] = {}
    with only_writer(folder):
        with suppress(UnreadableError):
            content = read_json(record)
            check_fields(content, {"": dict[str, Any]})
            found = content
        differ = [key for key, value in about.items() if found.get(key) != value]
        if isinstance(rows := found.get(ROWS), int) and rows > 0 and not differ:
            return rows
        if not record.exists() and os.path.lexists(folder):
            ours = folder.is_dir() and all(path.name.startswith(".") for path in folder.iterdir())
            if not ours:
                what = f"'{folder}' is in the way: it holds no {record.name}"
                raise DataError(what, do="remove it, or choose another output")
        if overwrite or not record.exists():
            for path in folder.glob("part-*.parquet"):
                path.unlink()  # before the record says that parts are of these predictions
            write_json(record, {**about, ROWS: size})
            return size
    differ = differ or [ROWS]
    what = f"'{folder}' holds parts of other predictions: {', '.join(differ)} differ"
    got, expected = (", ".join(f"{key} {_short(of.get(key))}" for key in differ) for of in (about, found))
    do = "remove the folder to begin anew, replace its parts with `--overwrite`, or choose another output"
    raise DataError(what, got=got, expected=expected, do=do)


def _part(number: int) -> str:
    return f"part-{number:05d}.parquet"


def missing_parts(folder: Path, numbers: Iterable[int]) -> list[int]:
    """Return the parts among these that are not finished, and refuse finished ones that are damaged."""
    pa, pq = import_pyarrow()
    there, missing = set(os.listdir(folder)), []
    for number in numbers:
        path = folder / _part(number)
        if path.name not in there:
            missing.append(number)
            continue
        try:
            pq.read_metadata(path)
        except (pa.ArrowInvalid, OSError) as error:
            do = "remove it; the same command predicts it again"
            raise DataError(f"'{path}' is damaged", got=str(error).splitlines()[0], do=do) from error
    return missing


def write_part(folder: Path, number: int, table: Any) -> None:
    """Write the rows of a part, a pyarrow table; where there is no room, finished parts are kept."""
    try:
        with atomic_file(folder / _part(number)) as partial:
            write_tables(partial, ".parquet", iter([table]))
    except OSError as error:
        what = f"predictions cannot be written; finished parts are kept in '{folder}'"
        do = "make room; the same command goes on from here"
        raise DataError(what, got=error.strerror or error, do=do) from error


def write_tables(path: Path, suffix: str, tables: Iterator[Any], about: Mapping[str, Any] | None = None) -> None:
    """Write one or more pyarrow tables one after the other, as ``.csv``, or as row groups of ``.parquet``.

    A Parquet file has the record ``about`` in its footer.
    """
    first = next(tables)
    if suffix == ".csv":
        with open(path, "w", newline="", encoding="utf-8") as file:
            for table in itertools.chain([first], tables):
                _write_csv(file, table.to_pandas(), header=table is first)
        return
    with open_writer(path, first.schema.with_metadata(about and {"dglcell": json.dumps(dict(about))})) as parquet:
        for table in itertools.chain([first], tables):
            parquet.write_table(table)


def _write_csv(file: Path | TextIO, frame: pd.DataFrame, *, header: bool = True) -> None:
    """Write rows as CSV: floats that are the user's in full, those that are predicted with six digits."""
    texts = frame.copy(deep=False)
    for name, column in frame.items():
        if column.dtype.kind == "f":
            is_given = str(name).startswith(("activity_", "covariate_"))
            texts[name] = (shortest if is_given else six_digits)(column.to_numpy())
        else:
            texts[name] = column.map(no_formula)
    texts.rename(columns=no_formula).to_csv(file, index=False, header=header, lineterminator="\n")


def _short(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_short, value))
    return value[:12] if isinstance(value, str) and len(value) == 64 else str(value)
