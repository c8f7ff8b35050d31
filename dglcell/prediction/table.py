"""Read strains of a table and write the same rows with predictions, in order, as CSV or Parquet."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.spreadsheet import SUFFIXES, read_sheet
from dglcell.data.strains import Strains
from dglcell.data.table import GENES, NUMBERED, check_known, gene_columns
from dglcell.errors import DataError, GenotypeError, GraphError, did_you_mean, listing
from dglcell.files.atomic import (
    CONTROL,
    DAMAGE,
    atomic_file,
    canonical_hash,
    no_formula,
    open_text,
    shortest,
)
from dglcell.files.parquet import import_pyarrow
from dglcell.graph.names import named_aliases
from dglcell.graph.vocabulary import AliasTable, Vocabulary
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.prediction.parts import write_tables
from dglcell.training.checkpoint import Trained

MAX_REPORTED = 10

UNKNOWN = ("refuse", "empty")
"""These are the ways to treat rows with genes that the cell graph lacks."""


@dataclass(frozen=True)
class GenotypeTable:
    """This is a table of genotypes as read from a file.

    Attributes:
        header: column names.
        rows: cells as read, one list per strain.
        strains: strains of the rows, with genes of the cell graph; without a deletion where it lacks one of them.
    """

    header: list[str]
    rows: list[list[str]]
    strains: Strains

    def __len__(self) -> int:
        return len(self.strains)

    @property
    def known(self) -> int:
        """Return the number of strains whose genes are all in the cell graph."""
        return int((self.strains.num_deletions > 0).sum())

    def part(self, first: int, last: int) -> GenotypeTable:
        """Return the rows from ``first`` to before ``last``."""
        return replace(self, rows=self.rows[first:last], strains=self.strains.slice(first, last))

    def describe(self) -> dict[str, Any]:
        """Describe the rows as plain containers."""
        return {"table_sha256": canonical_hash([self.header, self.rows])}

    def record(self, names: tuple[str, ...]) -> Strains:
        """Return all strains, whose targets have these names; those with genes that the cell lacks delete nothing."""
        assert names == self.strains.names
        return self.strains

    def batches(self, size: int, worth_sharing: int | None = None) -> Iterator[GenotypeBatch]:
        """Yield the known strains in order, ``size`` at a time. Shared deletions are not looked for."""
        known = self.strains.take(np.flatnonzero(self.strains.num_deletions)).to("cpu")
        for first in range(0, len(known), size):
            batch = known.slice(first, min(first + size, len(known)))
            yield replace(batch.perturbations, max_deletions=known.max_deletions)

    def heaviest(self, number: int) -> GenotypeBatch:
        """Return so many strains that take the most memory, which are those with the most deletions."""
        rows = np.argsort(-self.strains.num_deletions, kind="stable")[:number]
        return self.strains.take(rows).to("cpu").perturbations


@dataclass(frozen=True)
class GenotypeColumns:
    """These settings say how the genes of a table are read.

    Attributes:
        names: names of the gene columns; a single column may hold several genes, separated by ``;``. Where empty, the
            columns ``gene_1, gene_2, …`` or ``genes``, or else those of ``trained_on``.
        trained_on: gene columns of the table that the model was trained on.
        aliases: other names of genes.
        unknown: ``refuse`` rows with genes that the cell graph lacks, or leave their predictions ``empty``.
    """

    names: Sequence[str] = ()
    trained_on: Sequence[str] = ()
    aliases: AliasTable = field(default_factory=AliasTable.empty)
    unknown: str = "refuse"

    def find(self, header: Sequence[str], where: str) -> list[int]:
        """Return the positions of the gene columns.

        Raises:
            GenotypeError: there is no gene column, or a column that was named is not there.
        """
        stripped = [name.strip() for name in header]
        names = list(self.names)
        if not names and not any(NUMBERED.fullmatch(name) or name == GENES for name in stripped):
            names = [name for name in self.trained_on if name in stripped]
        for name in names:
            if name not in stripped:
                do = did_you_mean(name, stripped, "see `--columns`")
                raise GenotypeError(f"{where}: no column '{name}'", got=", ".join(header), do=do)
        return [stripped.index(name) for name in names] or gene_columns(header, where)

    def genotype(self, written: Sequence[str], vocabulary: Vocabulary) -> tuple[list[int], list[str]]:
        """Return the numbers of a strain's deleted genes, and those of its names that the cell graph lacks.

        There are no numbers where it lacks some and ``unknown`` is ``empty``.

        Raises:
            GenotypeError: a name stands for several genes, or as for `gene_indices`.
        """
        names, ambiguous = self.aliases.resolve(written, vocabulary, spelled=True)
        if ambiguous:
            raise GenotypeError(f"'{ambiguous[0]}' stands for several genes", do="give the systematic name")
        found = zip(written, names, strict=True)
        lacking = [name for name, meant in found if vocabulary.find(meant) not in vocabulary]
        return ([] if lacking and self.unknown == "empty" else gene_indices(names, vocabulary)), lacking


def aliases_of(trained: Trained, asked: str | None = None) -> AliasTable:
    """Read other names of genes: those asked for, or else those of the training where their file is here.

    Raises:
        DataError: the file that is asked for does not exist.
        GraphError: the names cannot be read.
    """
    source = trained.config.data.source
    known: str | None = asked or (source.csv.aliases if source.name == "csv" else None)
    if known is None:
        return AliasTable.empty()
    try:
        return named_aliases(known, trained.config.paths.raw)[0]
    except (DataError, GraphError):
        if asked:
            raise
        return AliasTable.empty()


def read_genotypes(
    path: Path,
    vocabulary: Vocabulary,
    phenotypes: Sequence[str] = (),
    columns: GenotypeColumns | None = None,
    *,
    with_spread: bool = False,
) -> GenotypeTable:
    """Read and check every row before anything is predicted.

    Empty cells of gene columns are left out. Other columns are kept as they are.

    Args:
        path: the table: text with commas, tabs or semicolons, plain or ``.gz``, ``.parquet`` or a spreadsheet; with a
            header.
        vocabulary: gene vocabulary of the model's cell graph.
        phenotypes: phenotypes that will be predicted; their columns must not be there yet.
        columns: how genes are read; the defaults of `GenotypeColumns` where None.
        with_spread: whether several models predict, so that their standard deviation has a column too.

    Raises:
        GenotypeError: the file is missing, has no gene column or no row, or rows are wrong: unknown gene, no gene,
            a gene twice, a wrong number of cells. Every wrong row is named by its line number.
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
    twice = [name for name, times in Counter(name.strip() for name in header).items() if times > 1 and name]
    if twice:
        raise GenotypeError(f"'{path}': two columns are called '{twice[0]}'", do="give every column a name of its own")
    at = how.find(header, f"'{path}'")
    made = [*map(predicted_column, phenotypes), *(map(spread_column, phenotypes) if with_spread else ())]
    taken = [name for name in made if name in header]
    if taken:
        raise GenotypeError(f"'{path}': column '{taken[0]}' is there already", do="rename or remove it")
    if not rows:
        raise GenotypeError(f"genotype file '{path}' has no row after its header")
    strains, problems = [], []
    for number, row in rows:
        try:
            strains.append(_genotype(row, at, header, vocabulary, how))
        except GenotypeError as error:
            problems.append(f"line {number}: {error}")
    refuse_rows(problems, len(rows), f"'{path}'")
    found = Strains.from_indices(vocabulary.names, strains)
    return _with_systematic(GenotypeTable(header, [row for _, row in rows], found), at)


SYSTEMATIC = "systematic_names"
"""This column is added where a table calls genes by other names."""


def _with_systematic(table: GenotypeTable, columns: Sequence[int]) -> GenotypeTable:
    """Add the systematic names of deleted genes to the table, where the user's names differ from them."""
    found = [";".join(genes) for genes in table.strains.genotypes]
    written = [";".join(filter(None, (row[i].strip() for i in columns))) for row in table.rows]
    if SYSTEMATIC in table.header or all(a in ("", b.replace(" ", "")) for a, b in zip(found, written, strict=True)):
        return table
    rows = [[*row, names] for row, names in zip(table.rows, found, strict=True)]
    return replace(table, header=[*table.header, SYSTEMATIC], rows=rows)


def refuse_rows(problems: Sequence[str], rows: int, where: str) -> None:
    """Refuse a table with rows that cannot be predicted, where there are any.

    Args:
        problems: a text for each such row, beginning with its number.
        rows: number of rows of the table.
        where: name of the table for the message.

    Raises:
        GenotypeError: there are problems; the message has the first ``MAX_REPORTED`` of them.
    """
    if problems:
        more = f"\n  … and {len(problems) - MAX_REPORTED:,} more" if len(problems) > MAX_REPORTED else ""
        raise GenotypeError(
            f"{where}: {len(problems):,} of {rows:,} rows cannot be predicted\n  "
            + "\n  ".join(problems[:MAX_REPORTED])
            + more,
            do="mend or remove these rows; `dglcell graph describe RUN --names` lists the genes of the model",
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
        raise GenotypeError(f"genotype file '{path}' is not a CSV text file", got=error) from error
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


def _genotype(
    row: Sequence[str], columns: Sequence[int], header: Sequence[str], vocabulary: Vocabulary, how: GenotypeColumns
) -> list[int]:
    if len(row) != len(header):
        raise GenotypeError(f"{len(row)} cells where the header has {len(header)}")
    cells = [row[i] for i in columns]
    if len(cells) == 1 and not NUMBERED.fullmatch(header[columns[0]].strip()):
        cells = cells[0].split(";")
    written = [cell.strip() for cell in cells if cell.strip()]
    return how.genotype(written, vocabulary)[0]


def gene_indices(names: Sequence[str], vocabulary: Vocabulary) -> list[int]:
    """Return the numbers of a strain's deleted genes in the cell graph, which may also know other names of genes.

    Raises:
        GenotypeError: no gene is deleted, a gene is deleted twice, or the cell lacks one.
    """
    if not names:
        raise GenotypeError("no gene is deleted")
    found = [vocabulary.find(name) for name in names]
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        written = listing(sorted({name for name, gene in zip(names, found, strict=True) if gene == twice[0]}))
        also = f" (written {written})" if written != twice[0] else ""
        raise GenotypeError(f"gene '{twice[0]}' is deleted twice{also}")
    check_known(found, vocabulary)
    return [vocabulary.index(name) for name in found]


def chosen_columns(members: Sequence[Trained]) -> dict[str, str]:
    """Return ``model_<phenotype>`` → the names of what predicts it; nothing where nobody asked for this column."""
    names: dict[str, dict[str, None]] = {}
    for member in members:
        for phenotype, chosen in member.chosen.items():
            names.setdefault(f"model_{phenotype}", {})[chosen.name] = None
    return {column: "; ".join(found) for column, found in names.items()}


def name_models(table: GenotypeTable, members: Sequence[Trained]) -> GenotypeTable:
    """Add a column for each phenotype that says what predicts it, where that was asked for.

    Raises:
        GenotypeError: the table has such a column already.
    """
    columns = chosen_columns(members)
    for column in columns:
        if column in table.header:
            raise GenotypeError(f"column '{column}' is there already", do="rename or remove it")
    rows = [[*row, *columns.values()] for row in table.rows]
    return replace(table, header=[*table.header, *columns], rows=rows)


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
    for row, *values in zip(table.rows, *map(shortest, predicted.values()), strict=True):
        writer.writerow([*map(no_formula, row), *values])
