"""Read strains to predict from Python: lists of genes, DataFrames and records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dglcell.data.strains import Strains
from dglcell.data.table import frame_genotypes, list_genotypes, row_names
from dglcell.errors import GenotypeError, count
from dglcell.graph.vocabulary import Vocabulary
from dglcell.prediction.columns import GenotypeColumns, Row
from dglcell.prediction.conditions import added_column, check_conditions, find_conditions, guide_columns
from dglcell.prediction.table import GenotypeTable, refuse_rows

if TYPE_CHECKING:
    import pandas as pd

Genotypes = Iterable[Sequence[str] | Mapping[str, float]]
"""These are strains as lists of deleted genes, or as gene → strength."""


def read_strains(
    strains: Genotypes | pd.DataFrame | Strains,
    conditions: Mapping[str, Any],
    how: GenotypeColumns,
    vocabulary: Vocabulary,
) -> tuple[pd.DataFrame, list[Row], GenotypeTable]:
    """Read strains to predict.

    Args:
        strains: lists, a DataFrame, in whose index texts are names of strains for messages, or a record.
        conditions: condition → a value for all strains, or one for each.
        vocabulary: gene vocabulary of the model's cell graph.

    Returns:
        The strains as a DataFrame, the rows that were read, and a table to predict.

    Raises:
        GenotypeError: strains cannot be predicted.
    """
    frame, changes = _as_frame(strains, how)
    check_conditions(how.seen, conditions)
    for name, values in conditions.items():
        if added_column(name) in frame.columns:
            raise GenotypeError(f"condition '{name}' is given twice", expected="with the strains, or beside them")
        frame = frame.assign(**{added_column(name): _one_each(name, values, len(frame))})
    header = [str(name) for name in frame.columns]
    cells = frame.astype(object).where(frame.notna(), None).to_numpy().tolist() if how.guides else []
    guided = guide_columns(how.seen, how.guides, header, cells, "the strains")
    columns = [*(frame.iloc[:, i].tolist() for i in range(len(header))), *guided.values()]
    found = [columns[i] for i in find_conditions(how.seen, [*header, *guided], how.conditions, "the strains")]
    values = zip(*found, strict=True) if found else [()] * len(changes)
    rows, problems = [], []
    for name, changed, seen in zip(row_names(frame), changes, values, strict=True):
        try:
            rows.append(how.read(changed, seen, vocabulary))
        except GenotypeError as error:
            problems.append(f"{name}: {error}")
    refuse_rows(problems, count(len(changes), "strain"))
    is_known = np.array([not row.lacking for row in rows], bool)
    return frame, rows, GenotypeTable([], [], how.strains(rows, vocabulary), is_known)


def measured_strains(frame: pd.DataFrame, how: GenotypeColumns, phenotypes: Sequence[str]) -> Strains:
    """Return the strains of a DataFrame with the phenotypes that are measured and the conditions that a model sees.

    Raises:
        DataError: a column of phenotypes holds no numbers.
        GenotypeError: a column is missing, or a strength is no amount.
    """
    header = [str(name) for name in frame.columns]
    genes, strengths = _find(frame, how)
    found = find_conditions(how.seen, header, how.conditions, "the DataFrame")
    named = frame.rename(columns={frame.columns[i]: name for name, i in zip(how.seen, found, strict=True)})
    labels = [name for name in phenotypes if name in header]
    return Strains.from_dataframe(named, genes=genes, strengths=strengths, phenotypes=labels, conditions=list(how.seen))


def _one_each(condition: str, given: Any, number: int) -> list[Any]:
    """Return a value of a condition for each strain, given one for all or one for each."""
    values = [given] * number if isinstance(given, str) or not np.iterable(given) else list(given)
    if len(values) != number:
        raise GenotypeError(
            f"condition '{condition}' does not fit the strains",
            got=f"{len(values):,} values",
            expected=f"one for each of {number:,} strains, or one for all",
        )
    return values


def _find(frame: pd.DataFrame, how: GenotypeColumns) -> tuple[list[str], list[str]]:
    """Return the gene columns of a DataFrame, and those of strengths."""
    header = [str(name) for name in frame.columns]
    genes = [header[i] for i in how.find(header, "the DataFrame")]
    return genes, how.find_strengths(header, genes, "the DataFrame")


def _as_frame(
    strains: Genotypes | pd.DataFrame | Strains, how: GenotypeColumns
) -> tuple[pd.DataFrame, Sequence[Sequence[str] | Mapping[str, float]]]:
    """Return strains as a DataFrame with columns of genes, strengths and conditions, and what each one changes."""
    import pandas as pd

    given: Any = strains
    if isinstance(given, pd.DataFrame):
        genes, strengths = _find(given, how)
        return given, frame_genotypes(given, genes, strengths)
    changes = given.changes if isinstance(given, Strains) else list(given)
    genotypes = list_genotypes(changes)
    width = max([1, *map(len, genotypes)])
    columns: dict[str, Any] = {
        f"gene_{k + 1}": [genes[k] if k < len(genes) else "" for genes in genotypes] for k in range(width)
    }
    if any(isinstance(changed, Mapping) for changed in changes):
        left = [list(one.values()) if isinstance(one, Mapping) else [0.0] * len(one) for one in changes]
        columns |= {f"strength_{k + 1}": [of[k] if k < len(of) else None for of in left] for k in range(width)}
    if isinstance(given, Strains):
        columns |= {added_column(name): given.shown(name) for name in how.seen if name in given.conditions}
    return pd.DataFrame(columns), changes
