"""Networks that are not written pair by pair: matrices, and members of groups."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import GraphError
from dglcell.files import DAMAGE
from dglcell.graph.network_config import MATRIX_COLUMNS
from dglcell.graph.network_table import Codes, EdgeTable, first_line, import_pandas, separator_pattern, unreadable


def read_matrix(path: Path, separator: str, *, quotes: bool = True) -> EdgeTable:
    """Read a matrix of numbers, plain or ``.gz``: the first line names the columns, the first field each row.

    Args:
        path: the file.
        separator: one of `SEPARATORS`; ``auto`` looks at the first line.
        quotes: whether fields may stand in double quotes.

    Returns:
        A table with the columns `MATRIX_COLUMNS` and a row for every cell that is not zero.

    Raises:
        GraphError: the file is damaged or empty, or a cell holds no number.
        MissingDependencyError: pandas is not installed.
    """
    pd = import_pandas()

    try:
        frame = pd.read_csv(
            path,
            sep=separator_pattern(first_line(path), separator),
            header=0,
            index_col=0,
            keep_default_na=False,
            quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
        )
    except (*DAMAGE, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise unreadable(path, error) from error
    for column in frame:
        values = frame[column]
        if not pd.api.types.is_numeric_dtype(values) or not np.isfinite(values).all():
            raise GraphError(
                f"network file '{path.name}': the cells below '{column}' are not all numbers",
                expected="a matrix with names in its first line and its first column",
                do="check `separator`, or whether the file is a table of pairs (`layout: pairs`)",
            )
    left, above = np.nonzero(frame.to_numpy(dtype=np.float64))
    columns = dict(zip(MATRIX_COLUMNS, (Codes.of(left, frame.index), Codes.of(above, frame.columns)), strict=True))
    return EdgeTable(path, columns, {name: name for name in MATRIX_COLUMNS}, left + 2)


def pairs_within_groups(members: NDArray[np.int64], groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """All pairs of different members of a group, each once per group.

    Args:
        members: [rows] a member's index.
        groups: [rows] the group it belongs to.

    Returns:
        Two arrays, [pairs] each; the first of a pair is the smaller index.
    """
    first, second = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for group in np.unique(groups):
        group_members = np.unique(members[groups == group])
        above = np.triu_indices(len(group_members), k=1)
        first.append(group_members[above[0]])
        second.append(group_members[above[1]])
    return np.concatenate(first), np.concatenate(second)
