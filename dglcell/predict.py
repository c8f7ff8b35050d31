"""Predict phenotypes of strains in a CSV: the same rows out, in order, as CSV or Parquet."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dglcell.data.dataset import StrainDataset
from dglcell.errors import GenotypeError
from dglcell.files import atomic_file
from dglcell.graph.vocabulary import NameReport, Vocabulary
from dglcell.parquet import make_table, open_writer
from dglcell.training.checkpoint import Trained
from dglcell.training.evaluate import predict_strains

MAX_REPORTED = 10


@dataclass(frozen=True)
class GenotypeTable:
    """A CSV of genotypes.

    Attributes:
        header: column names.
        rows: cells as read, one list per strain.
        strains: gene indices of each row.
    """

    header: list[str]
    rows: list[list[str]]
    strains: list[list[int]]


def read_genotypes(path: Path, vocabulary: Vocabulary, phenotypes: Sequence[str] = ()) -> GenotypeTable:
    """Read and check every row before anything is predicted.

    Genes stand in columns ``gene_1, gene_2, …`` (empty cells are left out) or in one column ``genes``, separated by
    ``;``. Other columns are kept as they are.

    Args:
        path: the CSV file, with a header.
        vocabulary: gene vocabulary of the model's cell graph.
        phenotypes: that will be predicted; their columns must not be there yet.

    Raises:
        GenotypeError: the file is missing, has no gene column or no row, or rows are wrong: unknown gene, no gene,
            a gene twice, a wrong number of cells. Every wrong row is named by its line number.
    """
    lines = _read_lines(path)
    if not lines:
        raise GenotypeError(f"genotype file '{path}' is empty", expected="a header and one row per strain")
    header, rows = lines[0][1], lines[1:]
    columns = gene_columns(header, path)
    taken = [name for name in map(predicted_column, phenotypes) if name in header]
    if taken:
        raise GenotypeError(f"'{path}': column '{taken[0]}' is there already", do="rename or remove it")
    if not rows:
        raise GenotypeError(f"genotype file '{path}' has no row after its header")
    strains, problems = [], []
    for number, row in rows:
        try:
            strains.append(_genotype(row, columns, header, vocabulary))
        except GenotypeError as error:
            problems.append(f"line {number}: {error}")
    if problems:
        more = f"\n  … and {len(problems) - MAX_REPORTED:,} more" if len(problems) > MAX_REPORTED else ""
        raise GenotypeError(
            f"'{path}': {len(problems):,} of {len(rows):,} rows cannot be predicted\n  "
            + "\n  ".join(problems[:MAX_REPORTED])
            + more,
            do="mend or remove these rows; `dglcell graph describe RUN --names` lists the genes of the model",
        )
    return GenotypeTable(header, [row for _, row in rows], strains)


def _read_lines(path: Path) -> list[tuple[int, list[str]]]:
    """(line number, cells) of every row that is not blank; a row with quoted line ends counts by its first line."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader, lines, number = csv.reader(file, strict=True), [], 1
            for row in reader:
                if row:
                    lines.append((number, row))
                number = reader.line_num + 1
    except (FileNotFoundError, IsADirectoryError) as error:
        raise GenotypeError(f"genotype file '{path}' not found", expected="a CSV file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise GenotypeError(f"genotype file '{path}' is not a CSV text file", got=error) from error
    return lines


def predicted_column(phenotype: str) -> str:
    """Name of the column with predictions of a phenotype."""
    return f"predicted_{phenotype}"


def gene_columns(header: Sequence[str], path: Path) -> list[int]:
    """Positions of the gene columns, in order.

    Raises:
        GenotypeError: there is none, or both forms are used.
    """
    names = [name.strip() for name in header]
    numbered = [i for i, name in enumerate(names) if name.startswith("gene_") and name[5:].isdecimal()]
    single = [i for i, name in enumerate(names) if name == "genes"]
    if bool(numbered) == bool(single):
        raise GenotypeError(
            f"'{path}': {'two kinds of' if numbered else 'no'} gene columns",
            got=", ".join(header),
            expected="either `gene_1, gene_2, …` or one column `genes` separated by `;`",
        )
    if len(single) > 1:
        raise GenotypeError(f"'{path}': {len(single)} columns are called `genes`", expected="one")
    return sorted(numbered, key=lambda i: int(names[i][5:])) or single


def _genotype(row: Sequence[str], columns: Sequence[int], header: Sequence[str], vocabulary: Vocabulary) -> list[int]:
    if len(row) != len(header):
        raise GenotypeError(f"{len(row)} cells where the header has {len(header)}")
    cells = [row[i] for i in columns]
    if header[columns[0]].strip() == "genes":
        cells = cells[0].split(";")
    names = [cell.strip() for cell in cells if cell.strip()]
    if not names:
        raise GenotypeError("no gene is deleted")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise GenotypeError(f"gene '{twice[0]}' is deleted twice")
    unknown = [name for name in names if name not in vocabulary]
    if unknown:
        raise GenotypeError(f"unknown gene '{unknown[0]}'{vocabulary.suggestion(unknown[0])}")
    return [vocabulary.index(name) for name in names]


def predict_table(trained: Trained, table: GenotypeTable, *, batch_size: int) -> np.ndarray:
    """[S, T] predictions in original units, one per row."""
    counts = np.array([len(strain) for strain in table.strains])
    dataset = StrainDataset(
        genes=torch.tensor([gene for strain in table.strains for gene in strain], dtype=torch.int32),
        offsets=torch.as_tensor(np.concatenate([[0], np.cumsum(counts)])),
        labels=torch.full((len(counts), len(trained.phenotypes)), torch.nan),
        phenotypes=trained.phenotypes,
        units=trained.units,
        max_deletions=int(counts.max()),
        rows=torch.arange(len(counts)),
        names=NameReport(len(trained.cell.genes)),
    )
    strains = torch.arange(len(counts))
    return predict_strains(trained.model, trained.normaliser, dataset, strains, batch_size=batch_size)


def write_table(path: Path, trained: Trained, table: GenotypeTable, predicted_ST: np.ndarray) -> None:
    """The rows as they came, with a column ``predicted_<phenotype>`` each, written whole or not at all.

    In ``.parquet`` predictions are float32, all else text: gene columns by dictionary, empty cells missing.

    Raises:
        GenotypeError: two columns have one name, which Parquet does not allow.
    """
    with atomic_file(path) as partial:
        (_write_parquet if path.suffix == ".parquet" else _write_csv)(partial, trained, table, predicted_ST)


def _write_csv(path: Path, trained: Trained, table: GenotypeTable, predicted_ST: np.ndarray) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.header + [predicted_column(name) for name in trained.phenotypes])
        for row, predicted in zip(table.rows, predicted_ST.tolist(), strict=True):
            writer.writerow(row + [f"{value:.6g}" for value in predicted])


def _write_parquet(path: Path, trained: Trained, table: GenotypeTable, predicted_ST: np.ndarray) -> None:
    twice = [name for name, times in Counter(table.header).items() if times > 1]
    if twice:
        raise GenotypeError(
            f"{len(twice)} names stand above several columns", got=", ".join(twice), do="rename them, or write .csv"
        )
    columns = dict(zip(table.header, zip(*table.rows, strict=True), strict=True))
    predicted = {predicted_column(name): predicted_ST[:, t] for t, name in enumerate(trained.phenotypes)}
    written = make_table(
        columns, predicted, dictionaries=[name for name in columns if name.strip().startswith("gene_")]
    )
    with open_writer(path, written.schema) as writer:
        writer.write_table(written)
