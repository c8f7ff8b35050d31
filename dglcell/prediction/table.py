"""Read strains of a table and write the same rows with predictions, in order, as CSV or Parquet."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.text_table import read_rows
from dglcell.errors import GenotypeError
from dglcell.files.atomic import atomic_file, no_formula, six_digits
from dglcell.files.parquet import import_pyarrow
from dglcell.graph.vocabulary import Vocabulary
from dglcell.prediction.columns import GenotypeColumns, GenotypeTable
from dglcell.prediction.conditions import ANOTHER, added_column, check_conditions, condition_number
from dglcell.prediction.parts import write_tables
from dglcell.training.checkpoint import Trained


def read_genotypes(
    path: Path,
    vocabulary: Vocabulary,
    phenotypes: Sequence[str] = (),
    columns: GenotypeColumns | None = None,
    *,
    conditions: Mapping[str, str] | None = None,
    with_spread: bool = False,
    more: Sequence[str] = (),
) -> GenotypeTable:
    """Read and check every row before anything is predicted.

    Empty cells of gene columns are left out. Other columns are kept as they are.

    Args:
        path: the table, as `read_rows` takes it.
        vocabulary: gene vocabulary of the model's cell graph.
        phenotypes: phenotypes that will be predicted; their columns must not be there yet.
        columns: how strains are read; the defaults of `GenotypeColumns` where None.
        conditions: condition → a value for all rows, in place of a column; it becomes a column ``condition_NAME``.
        with_spread: whether several models predict, so that their standard deviation has a column too.
        more: other columns that will be added, such as those of intervals.

    Raises:
        DataError: the file is no table.
        GenotypeError: the table has no gene column, lacks a condition that the model sees, or rows are wrong: unknown
            gene, no gene, a gene twice, no strength, no value of a condition. Every wrong row is named by its line.
        MissingDependencyError: the table is Parquet and pyarrow is not installed.
    """
    how, rows, given = columns or GenotypeColumns(), read_rows(path, keep_blank=True), dict(conditions or {})
    check_conditions(how.seen, given)
    for name, value in given.items():
        condition_number(how.seen, name, value, ANOTHER)  # the same for all rows, so that it is refused once
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
    """Return columns of what one or several models predict, in original units.

    Args:
        phenotypes: T names.
        predicted_RST: predictions of R models.

    Returns:
        ``predicted_<phenotype>``, the mean over the models; of several models also ``sd_<phenotype>``, the standard
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
    if path is None:
        _write_csv(sys.stdout, table, predicted)
        return
    with atomic_file(path) as partial:
        write_rows(partial, path.suffix, table, predicted)


def write_rows(path: Path, suffix: str, table: GenotypeTable, predicted: Mapping[str, NDArray[Any]]) -> None:
    """Write rows as `write_table` does, into a file of any name in the format of a suffix."""
    if suffix != ".parquet":
        return _write_csv(path, table, predicted)
    assert table.frame is not None
    columns: dict[str, Any] = {name: table.frame[name].tolist() for name in map(str, table.frame)}
    pa, _ = import_pyarrow()
    for name in [name for name in columns if name.startswith("gene_")]:
        names = [text.strip() or None for text in columns[name]]
        columns[name] = pa.array(names, pa.string()).dictionary_encode()
    write_tables(path, suffix, iter([pa.table({**columns, **predicted})]))
    return None


def _write_csv(file: Path | TextIO, table: GenotypeTable, predicted: Mapping[str, NDArray[Any]]) -> None:
    assert table.frame is not None
    texts = table.frame.map(no_formula).assign(**{name: six_digits(values) for name, values in predicted.items()})
    texts.rename(columns=no_formula).to_csv(file, index=False, lineterminator="\n")
