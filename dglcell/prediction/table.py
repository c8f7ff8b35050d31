"""Read strains of a table and write the same rows with predictions, in order, as CSV or Parquet."""

from __future__ import annotations

import csv
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from dglcell.checks import STRONGEST
from dglcell.data.sources.spreadsheet import SUFFIXES, read_sheet
from dglcell.data.strains import Strains
from dglcell.data.table import NUMBERED, with_strengths
from dglcell.errors import GenotypeError
from dglcell.files.atomic import CONTROL, DAMAGE, atomic_file, canonical_hash, no_formula, open_text, six_digits
from dglcell.files.parquet import import_pyarrow
from dglcell.graph.vocabulary import Vocabulary
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.prediction.columns import GenotypeColumns, Row
from dglcell.prediction.conditions import (
    ANOTHER,
    added_column,
    check_conditions,
    condition_number,
    find_conditions,
    guide_columns,
)
from dglcell.prediction.parts import write_tables
from dglcell.training.checkpoint import Trained

log = logging.getLogger("dglcell")

MAX_REPORTED = 10


@dataclass(frozen=True)
class GenotypeTable:
    """This is a table of genotypes as read from a file.

    Attributes:
        rows: cells as read, one list per strain.
        strains: strains of the rows, with genes of the cell graph and the conditions that the model sees; without a
            changed gene where the cell graph lacks one of them.
        is_known: [S] whether the cell graph has all genes of the strain.
    """

    header: list[str]
    rows: list[list[str]]
    strains: Strains
    is_known: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.strains)

    @property
    def known(self) -> int:
        """Return the number of strains whose genes are all in the cell graph."""
        return int(self.is_known.sum())

    def part(self, first: int, last: int) -> GenotypeTable:
        """Return the rows from ``first`` to before ``last``."""
        strains = self.strains.slice(first, last)
        return replace(self, rows=self.rows[first:last], strains=strains, is_known=self.is_known[first:last])

    def describe(self) -> dict[str, Any]:
        """Describe the rows as plain containers."""
        return {"table_sha256": canonical_hash([self.header, self.rows])}

    def record(self, names: tuple[str, ...]) -> Strains:
        """Return all strains, whose targets have these names; those with genes that the cell lacks change nothing."""
        assert names == self.strains.names
        return self.strains

    def batches(self, size: int, worth_sharing: int | None = None) -> Iterator[GenotypeBatch]:
        """Yield the known strains in order, ``size`` at a time. Shared deletions are not looked for."""
        known = self.strains.take(np.flatnonzero(self.is_known)).to("cpu")
        for first in range(0, len(known), size):
            batch = known.slice(first, min(first + size, len(known)))
            yield replace(batch.perturbations, max_deletions=known.max_deletions)


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
        path: the table: text with commas, tabs or semicolons, plain or ``.gz``, ``.parquet`` or a spreadsheet; with a
            header.
        vocabulary: gene vocabulary of the model's cell graph.
        phenotypes: phenotypes that will be predicted; their columns must not be there yet.
        columns: how strains are read; the defaults of `GenotypeColumns` where None.
        conditions: condition → a value for all rows, in place of a column; it becomes a column ``condition_NAME``.
        with_spread: whether several models predict, so that their standard deviation has a column too.
        more: other columns that will be added, such as those of intervals.

    Raises:
        GenotypeError: the file is missing, has no gene column or no row, lacks a condition that the model sees, or
            rows are wrong: unknown gene, no gene, a gene twice, no strength, no value of a condition, a wrong number
            of cells. Every wrong row is named by its line number.
        MissingDependencyError: the table is Parquet and pyarrow is not installed.
    """
    how = columns or GenotypeColumns()
    lines = READERS.get(path.suffix.lower(), _read_lines)(path)
    if not lines:
        raise GenotypeError(f"genotype file '{path}' is empty", expected="a header and one row per strain")
    for number, row in lines:
        if CONTROL.search("".join(row)):
            raise GenotypeError(f"'{path}', line {number}: a control character", do="mend or remove the row")
    header, rows = lines[0][1], lines[1:]
    given = dict(conditions or {})
    check_conditions(how.seen, given)
    for name, value in given.items():
        condition_number(how.seen, name, value, ANOTHER)  # the same for all rows, so that it is refused once
    width, cells = len(header), list(given.values())
    header = [*header, *map(added_column, given)]
    twice = [name for name, times in Counter(name.strip() for name in header).items() if times > 1 and name]
    if twice:
        raise GenotypeError(f"'{path}': two columns are called '{twice[0]}'", do="give every column a name of its own")
    guided = guide_columns(how.seen, how.guides, [*map(str.strip, header)], [row for _, row in rows], f"'{path}'")
    described = list(zip(*guided.values(), strict=True)) if guided else [()] * len(rows)
    strain = _reader(how, [*header, *guided], f"'{path}'", vocabulary)
    made = [*map(predicted_column, phenotypes), *(map(spread_column, phenotypes) if with_spread else ()), *more]
    taken = [name for name in made if name in header]
    if taken:
        raise GenotypeError(f"'{path}': column '{taken[0]}' is there already", do="rename or remove it")
    if not rows:
        raise GenotypeError(f"genotype file '{path}' has no row after its header", do="give a row for each strain")
    found, problems = [], []
    for (number, row), guide in zip(rows, described, strict=True):
        try:
            if len(row) != width:
                raise GenotypeError(f"{len(row)} cells where the header has {width}")
            found.append(strain([*row, *cells, *guide]))
        except GenotypeError as error:
            problems.append(f"line {number}: {error}")
    refuse_rows(problems, f"{len(rows):,} rows", f"'{path}': ")
    strains = how.strains(found, vocabulary)
    strongest = 0.0 if strains.strengths is None else float(strains.strengths.max(initial=0))
    if strongest > STRONGEST:
        log.warning(
            "'%s': strengths up to %g look like percent: 1 is the wild type, and 0.3 a knock-down to 30 %%",
            path,
            strongest,
        )
    known = np.array([not row.lacking for row in found])
    table = GenotypeTable(header, [[*row, *cells] for _, row in rows], strains, known)
    return _with_systematic(table, [row.written for row in found])


def _reader(
    how: GenotypeColumns, header: Sequence[str], where: str, vocabulary: Vocabulary
) -> Callable[[Sequence[Any]], Row]:
    """Return a function that reads the cells of a row.

    Raises:
        GenotypeError: columns are missing.
    """
    names = [name.strip() for name in header]
    genes = how.find(header, where)
    strengths = [names.index(name) for name in how.find_strengths(names, [names[i] for i in genes], where)]
    conditions = find_conditions(how.seen, names, how.conditions, where)
    holds_several = len(genes) == 1 and not NUMBERED.fullmatch(names[genes[0]])

    def cells(row: Sequence[Any], columns: Sequence[int]) -> list[str]:
        parts = [row[i] for i in columns]
        return [part.strip() for part in (parts[0].split(";") if holds_several and parts else parts)]

    def read(row: Sequence[Any]) -> Row:
        changed = with_strengths(cells(row, genes), cells(row, strengths))
        return how.read(changed, [row[i] for i in conditions], vocabulary)

    return read


SYSTEMATIC = "systematic_names"
"""This column is added where a table calls genes by other names."""


def _with_systematic(table: GenotypeTable, written: Sequence[Sequence[str]]) -> GenotypeTable:
    """Add the systematic names of changed genes to the table, where the user's names differ from them."""
    found = [";".join(genes) for genes in table.strains.genotypes]
    names = [";".join(genes).replace(" ", "") for genes in written]
    if SYSTEMATIC in table.header or all(a in ("", b) for a, b in zip(found, names, strict=True)):
        return table
    rows = [[*row, names] for row, names in zip(table.rows, found, strict=True)]
    return replace(table, header=[*table.header, SYSTEMATIC], rows=rows)


def refuse_rows(problems: Sequence[str], of: str, where: str = "") -> None:
    """Refuse strains that cannot be predicted, where there are any.

    Args:
        problems: a text for each of them, beginning with its line or its name.
        of: how many strains there are, e.g. ``8 rows``.
        where: beginning of the message, such as the name of the table.

    Raises:
        GenotypeError: there are problems; the message has the first ``MAX_REPORTED`` of them.
    """
    if problems:
        more = f"\n  … and {len(problems) - MAX_REPORTED:,} more" if len(problems) > MAX_REPORTED else ""
        shown = [re.sub(r"\n  (got|expected|do): +", r"; \1: ", problem) for problem in problems[:MAX_REPORTED]]
        genes = "`dglcell graph describe RUN --names` lists the genes of the model"
        advice = {"unknown gene": genes, "expected: one of": ANOTHER}
        do = [text for kind, text in advice.items() if any(kind in problem for problem in problems)]
        raise GenotypeError(
            f"{where}{len(problems):,} of {of} cannot be predicted\n  " + "\n  ".join(shown) + more,
            do="; ".join(["mend or remove them", *do]),
        )


def _read_lines(path: Path) -> list[tuple[int, list[str]]]:
    """Return (line number, cells) of every row that is not blank; quoted line ends count for the row's first line."""
    try:
        with open_text(path) as file:
            separator = max(",\t;", key=file.readline().count)
            file.seek(0)
            reader, lines, number = csv.reader(file, strict=True, delimiter=separator), [], 1
            for row in reader:
                if row:
                    lines.append((number, row))
                number = reader.line_num + 1
    except (FileNotFoundError, IsADirectoryError) as error:
        raise GenotypeError(f"genotype file '{path}' not found", expected="a CSV file") from error
    except (*DAMAGE, csv.Error) as error:
        raise GenotypeError(
            f"genotype file '{path}' is not a CSV text file",
            got=error,
            expected="a text table in UTF-8 with a header, plain or .gz",
        ) from error
    return lines


def _read_parquet(path: Path) -> list[tuple[int, list[str]]]:
    """Return (row number, cells) of every row of a Parquet file; numbers start at 2, as if below a header."""
    pa, pq = import_pyarrow()
    if not path.is_file():
        raise GenotypeError(f"genotype file '{path}' not found", expected="a Parquet file")
    try:
        table = pq.read_table(path)
        columns = [["" if cell is None else str(cell) for cell in _cells(column)] for column in table.columns]
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise GenotypeError(
            f"genotype file '{path}' is no whole Parquet file, or a column of it cannot be written as text",
            got=(str(error).splitlines() or [type(error).__name__])[0],
            expected="columns of UTF-8 texts and numbers",
            do="leave such columns out of the file",
        ) from error
    rows = zip(*columns, strict=True)
    return [(1, table.column_names), *((number, list(row)) for number, row in enumerate(rows, start=2))]


def _read_spreadsheet(path: Path) -> list[tuple[int, list[str]]]:
    """Return (row number, cells) of every row in the first sheet of a spreadsheet."""
    if not path.is_file():
        raise GenotypeError(f"genotype file '{path}' not found", expected="a spreadsheet")
    return [(number, row) for number, row in enumerate(read_sheet(path), start=1) if any(row)]


READERS = {".parquet": _read_parquet, **dict.fromkeys(SUFFIXES, _read_spreadsheet)}
"""This maps the suffix of files that are no text to functions that read them."""


def _cells(column: Any) -> Any:
    """Return Python values; dates and times are Arrow's text, because Arrow knows more years and zones than Python."""
    pa, _ = import_pyarrow()
    is_time = pa.types.is_temporal(column.type)
    return column.cast(pa.string()).to_pylist() if is_time else column.to_pylist()


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


def name_models(table: GenotypeTable, members: Sequence[Trained]) -> GenotypeTable:
    """Add the column that says what predicts the rows.

    Raises:
        GenotypeError: the table has such a column already.
    """
    if PREDICTED_BY in table.header:
        raise GenotypeError(f"column '{PREDICTED_BY}' is there already", do="rename or remove it")
    name = predicted_by(members)
    return replace(table, header=[*table.header, PREDICTED_BY], rows=[[*row, name] for row in table.rows])


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
    if suffix == ".parquet":
        columns: dict[str, Any] = dict(zip(table.header, zip(*table.rows, strict=True), strict=True))
        pa, _ = import_pyarrow()
        for name in [name for name in columns if name.strip().startswith("gene_")]:
            names = [text.strip() or None for text in columns[name]]
            columns[name] = pa.array(names, pa.string()).dictionary_encode()
        write_tables(path, suffix, iter([pa.table({**columns, **predicted})]))
    else:
        with open(path, "w", newline="", encoding="utf-8") as file:
            _write_csv(file, table, predicted)


def _write_csv(file: TextIO, table: GenotypeTable, predicted: Mapping[str, NDArray[Any]]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(no_formula, [*table.header, *predicted]))
    for row, *values in zip(table.rows, *map(six_digits, predicted.values()), strict=True):
        writer.writerow([*map(no_formula, row), *values])
