"""Read strains of a table, and write rows with predictions as CSV, Parquet, or a folder of Parquet parts."""

from __future__ import annotations

import csv
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.text_table import read_rows
from dglcell.errors import DataError, GenotypeError
from dglcell.files.atomic import atomic_file, no_formula, only_writer, shortest, six_digits, write_json
from dglcell.files.parquet import import_pyarrow, open_writer
from dglcell.files.untrusted import read_json
from dglcell.graph.vocabulary import Vocabulary
from dglcell.prediction.columns import GenotypeColumns, GenotypeTable
from dglcell.prediction.covariates import ANOTHER, added_column, check_covariates, covariate_number
from dglcell.training.checkpoint import Trained


def read_genotypes(
    path: Path,
    vocabulary: Vocabulary,
    phenotypes: Sequence[str] = (),
    columns: GenotypeColumns | None = None,
    *,
    covariates: Mapping[str, str] | None = None,
    with_spread: bool = False,
    more: Sequence[str] = (),
) -> GenotypeTable:
    """Read and check every row before anything is predicted. Other columns than those of strains are kept as they are.

    Args:
        path: the table, as `read_rows` takes it.
        vocabulary: gene vocabulary of the model's cell graph.
        phenotypes: phenotypes that will be predicted; their columns must not be there yet.
        columns: how strains are read; the defaults of `GenotypeColumns` where None.
        covariates: covariate → a value for all rows, in place of a column; it becomes a column ``covariate_NAME``.
        with_spread: whether several models predict, so that their standard deviation has a column too.
        more: other columns that will be added, such as those of intervals.

    Raises:
        DataError: the file is no table.
        GenotypeError: the table has no gene column, or lacks a covariate that the model sees. Or rows have an unknown
            gene, none, one twice, no activity, or no value of a covariate. Every wrong row is named by its line.
        MissingDependencyError: the table is Parquet and pyarrow is not installed.
    """
    how, rows, given = columns or GenotypeColumns(), read_rows(path, keep_blank=True), dict(covariates or {})
    check_covariates(how.seen, given)
    for name, value in given.items():
        covariate_number(how.seen, name, value, ANOTHER)  # the same for all rows, so that it is refused once
    rows = replace(rows, frame=rows.frame.assign(**{added_column(name): value for name, value in given.items()}))
    made = [*map(predicted_column, phenotypes), *(map(spread_column, phenotypes) if with_spread else ()), *more]
    taken = [name for name in made if name in rows.frame]
    if taken:
        raise GenotypeError(f"{rows.title}: column '{taken[0]}' is there already", do="rename or remove it")
    table = replace(how.read(rows, vocabulary), frame=rows.frame)
    meant = {} if table.changes is None else table.changes.meant
    other = (name for name, gene in meant.items() if gene in vocabulary and name.replace(" ", "") != gene)
    if SYSTEMATIC in rows.frame or next(other, None) is None:
        return table
    return table.with_column(SYSTEMATIC, [";".join(genes) for genes in table.strains.genotypes])


SYSTEMATIC = "systematic_names"
"""This column is added where a table calls genes by other names."""


def predicted_column(phenotype: str) -> str:
    """Return the name of the column with predictions of a phenotype."""
    return f"predicted_{phenotype}"


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


def spread_column(phenotype: str) -> str:
    """Return the name of the column with the standard deviation over several models."""
    return f"sd_{phenotype}"


def write_table(path: Path | None, table: GenotypeTable, predicted: Mapping[str, NDArray[Any]]) -> None:
    """Write the rows as they came, with the columns of ``predicted`` (`prediction_columns`), whole or not at all.

    In ``.parquet``, predictions keep their float type and all else is text; gene columns are dictionary-encoded, and
    empty cells are missing values.
    Where there is no path, CSV is written to the standard output.
    """
    assert table.frame is not None
    if path is None or path.suffix != ".parquet":
        texts = table.frame.map(no_formula).assign(**{name: six_digits(values) for name, values in predicted.items()})
        with nullcontext(sys.stdout) if path is None else atomic_file(path) as file:
            texts.rename(columns=no_formula).to_csv(file, index=False, lineterminator="\n")
        return
    columns: dict[str, Any] = {name: table.frame[name].tolist() for name in map(str, table.frame)}
    pa, _ = import_pyarrow()
    for name in [name for name in columns if name.startswith("gene_")]:
        names = [text.strip() or None for text in columns[name]]
        columns[name] = pa.array(names, pa.string()).dictionary_encode()
    with atomic_file(path) as partial:
        write_tables(partial, path.suffix, iter([pa.table({**columns, **predicted})]))


RECORD = "_predictions.json"
"""This file records what the predictions in a folder are of. Readers of such folders skip names with ``_`` in front."""

ROWS = "rows_of_a_part"


class PartFiles:
    """These files are ``part-00000.parquet``, ``part-00001.parquet`` and so on, of the same number of rows each.

    They are in one folder. A part appears whole or not at all. Which rows it has follows from its number, so any number
    of processes may write parts, and a command that was stopped goes on with those that are missing.

    Args:
        folder: where the parts are.
        about: what the predictions are of; the record of an earlier folder has to agree.
        rows: rows of all parts.
        choose: function that returns how many rows a part shall have. It is called where there is no folder yet.

    Raises:
        DataError: the folder holds something else, or other predictions.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any], rows: int, choose: Callable[[], int]) -> None:
        self.folder, self.rows = folder, rows
        with only_writer(folder):
            if not (folder / RECORD).exists():
                folder.mkdir(parents=True, exist_ok=True)
                if any(not path.name.startswith(".") for path in folder.iterdir()):
                    what = f"'{folder}' is in the way: it holds no {RECORD}"
                    raise DataError(what, do="remove it, or choose another output")
                write_json(folder / RECORD, {**about, ROWS: choose()})
        try:
            found = read_json(folder / RECORD)
        except ValueError:
            found = {}
        found = found if isinstance(found, dict) else {}
        self._size: Any = found.get(ROWS)
        differ = [key for key, value in about.items() if found.get(key) != value]
        if not differ and not (isinstance(self._size, int) and self._size > 0):
            differ = [ROWS]
        if differ:
            what = f"'{folder}' holds parts of other predictions: {', '.join(differ)} differ"
            got, expected = (", ".join(f"{key} {_short(of.get(key))}" for key in differ) for of in (about, found))
            do = "remove the folder to begin anew, or choose another output"
            raise DataError(what, got=got, expected=expected, do=do)

    def __len__(self) -> int:
        return -(-self.rows // self._size)

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the first row of a part, and the row behind its last."""
        return number * self._size, min((number + 1) * self._size, self.rows)

    def missing(self, numbers: Iterable[int]) -> list[int]:
        """Return the parts among these that are not finished, and refuse finished ones that are damaged."""
        pa, pq = import_pyarrow()
        there, missing = set(os.listdir(self.folder)), []
        for number in numbers:
            path = self._path(number)
            if path.name not in there:
                missing.append(number)
                continue
            try:
                pq.read_metadata(path)
            except (pa.ArrowInvalid, OSError) as error:
                do = "remove it; the same command predicts it again"
                raise DataError(f"'{path}' is damaged", got=str(error).splitlines()[0], do=do) from error
        return missing

    def write(self, number: int, table: Any) -> None:
        """Write the rows of a part, a pyarrow table; where there is no room, finished parts are kept."""
        try:
            with atomic_file(self._path(number)) as partial:
                write_tables(partial, ".parquet", iter([table]))
        except OSError as error:
            what = f"predictions cannot be written; finished parts are kept in '{self.folder}'"
            do = "make room; the same command goes on from here"
            raise DataError(what, got=error.strerror or error, do=do) from error

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:05d}.parquet"


def write_tables(path: Path, suffix: str, tables: Iterator[Any], about: Mapping[str, Any] | None = None) -> None:
    """Write one or more pyarrow tables one after the other, as ``.csv``, or as row groups of ``.parquet``.

    A Parquet file has the record ``about`` in its footer.
    """
    first = next(tables)
    if suffix == ".csv":
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(map(no_formula, first.column_names))
            for table in itertools.chain([first], tables):
                writer.writerows(zip(*map(_texts, table.column_names, table.columns), strict=True))
        return
    with open_writer(path, first.schema.with_metadata(about and {"dglcell": json.dumps(dict(about))})) as parquet:
        for table in itertools.chain([first], tables):
            parquet.write_table(table)


def _texts(name: str, column: Any) -> list[str]:
    """Return the cells of a column of texts or numbers as a CSV has them."""
    if str(column.type) == "float":
        is_given = name.startswith(("activity_", "covariate_"))  # by the user; others are predicted
        return (shortest if is_given else six_digits)(column.to_numpy())
    cells: list[Any] = column.to_pylist()
    written = {cell: no_formula(cell) if isinstance(cell, str) else cell for cell in {*cells}}
    return [written[cell] for cell in cells]


def _short(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_short, value))
    return value[:12] if isinstance(value, str) and len(value) == 64 else str(value)
