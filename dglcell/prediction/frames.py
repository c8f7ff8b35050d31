"""Read strains to predict from Python: lists of genes, DataFrames and records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dglcell.data.changes import list_genotypes
from dglcell.data.strains import Strains
from dglcell.errors import GenotypeError
from dglcell.graph.vocabulary import Vocabulary
from dglcell.prediction.columns import GenotypeColumns, Read
from dglcell.prediction.conditions import added_column, check_conditions

if TYPE_CHECKING:
    import pandas as pd

Genotypes = Iterable[Sequence[str] | Mapping[str, float]]
"""These are strains as lists of deleted genes, or as gene → strength."""


def read_strains(
    strains: Genotypes | pd.DataFrame | Strains,
    conditions: Mapping[str, Any],
    how: GenotypeColumns,
    vocabulary: Vocabulary,
) -> tuple[pd.DataFrame, Read]:
    """Read strains to predict.

    Args:
        strains: lists, a DataFrame, in whose index texts are names of strains for messages, or a record.
        conditions: condition → a value for all strains, or one for each.
        vocabulary: gene vocabulary of the model's cell graph.

    Returns:
        The strains as a DataFrame, and what was read.

    Raises:
        GenotypeError: strains cannot be predicted.
    """
    frame = _as_frame(strains, how)
    check_conditions(how.seen, conditions)
    for name, values in conditions.items():
        if added_column(name) in frame.columns:
            raise GenotypeError(f"condition '{name}' is given twice", expected="with the strains, or beside them")
        frame = frame.assign(**{added_column(name): _one_each(name, values, len(frame))})
    return frame, how.read(how.rows_of(frame), vocabulary)


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


def _as_frame(strains: Genotypes | pd.DataFrame | Strains, how: GenotypeColumns) -> pd.DataFrame:
    """Return strains as a DataFrame with columns of genes, strengths and conditions."""
    import pandas as pd

    given: Any = strains
    if isinstance(given, pd.DataFrame):
        return given
    changes = given.changes if isinstance(given, Strains) else list(given)
    genotypes = list_genotypes(changes)
    width = max([1, *map(len, genotypes)])
    columns: dict[str, Any] = {
        f"gene_{k + 1}": [genes[k] if k < len(genes) else "" for genes in genotypes] for k in range(width)
    }
    if any(isinstance(changed, Mapping) for changed in changes):
        # What is missing is no strength here, where a DataFrame has it for a deletion.
        left = [
            [of if of == of and of is not None else str(of) for of in one.values()]
            if isinstance(one, Mapping)
            else [0.0] * len(one)
            for one in changes
        ]
        columns |= {f"strength_{k + 1}": [of[k] if k < len(of) else None for of in left] for k in range(width)}
    if isinstance(given, Strains):
        columns |= {added_column(name): given.shown(name) for name in how.seen if name in given.conditions}
    return pd.DataFrame(columns)
