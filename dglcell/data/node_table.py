"""Read a user's own table of values of nodes, such as the expression of genes, by strain and node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dglcell.data.config import NodesConfig
from dglcell.data.node_values import NOT_MEASURED, WILD_TYPE_ROW, NodeValues
from dglcell.data.sources.text_table import read_rows
from dglcell.data.strains import Strains
from dglcell.data.table import frame_genotypes
from dglcell.errors import DataError, listing

if TYPE_CHECKING:
    import pandas as pd

Strain = frozenset[tuple[str, float]]
"""A strain is known by its genes and what is left of each."""


def read_node_table(
    path: Path, config: NodesConfig, strains: Strains, key: str
) -> tuple[NodeValues, NDArray[np.int64]]:
    """Read values of nodes of strains.

    A row without genes is the wild type. Without such a row the values are differences, and the wild type's are 0.
    Empty cells and NaN were not measured. Strains of the table that the store lacks are refused.

    Args:
        path: the table, wide or long, as `NodesConfig` says.
        config: which columns have what.
        strains: strains of the store.
        key: the key of the configuration, for messages.

    Returns:
        The values, and the row of each strain, −1 for strains that the table lacks.

    Raises:
        DataError: a column is not there, a cell is no number, a strain or node comes twice, strains have conditions,
            which such a table cannot tell apart, or the store lacks a strain.
        GenotypeError: a strength is no amount.
    """
    if strains.conditions:
        raise DataError(
            f"`{key}.path`: a table of values of nodes cannot tell conditions of strains apart",
            got=listing(strains.conditions),
            expected="strains that differ by their genes",
            do="leave the conditions out of the table of strains",
        )
    wide = _wide(read_rows(path).frame, config, path, key)
    known = [_identity(of) for of in frame_genotypes(wide, config.genes, ())]
    if len(set(known)) < len(known):
        twice = next(strain for strain in known if known.count(strain) > 1)
        raise DataError(f"'{path.name}' has a strain twice", got=_words(twice), expected="each strain once")
    nodes = [name for name in wide.columns if name not in config.genes]
    values = np.stack([_numbers(wide[name], name, path) for name in nodes], axis=1)
    row_of = {strain: row + 1 for row, strain in enumerate(known)}
    wild_type = values[row_of[frozenset()] - 1] if frozenset() in row_of else np.zeros(len(nodes), np.float32)
    rows = np.array([row_of.get(_identity(of), NOT_MEASURED) for of in strains.changes], np.int64)
    there = set(rows.tolist())
    lacking = [strain for strain, row in row_of.items() if strain and row not in there]
    if lacking:
        raise DataError(
            f"'{path.name}' has strains that the store lacks",
            got=f"{len(lacking):,} strains, e.g. {_words(lacking[0])}",
            expected=f"strains such as {_words(_identity(strains.slice(0, 1).changes[0]))}",
            do="give them a phenotype in the table of strains, or leave their rows out",
        )
    assert WILD_TYPE_ROW == 0
    return NodeValues(config.type, tuple(nodes), np.vstack([wild_type[None], values]), config.unit), rows


def _wide(frame: pd.DataFrame, config: NodesConfig, path: Path, key: str) -> pd.DataFrame:
    """Return the table with a row for each strain: columns of genes, then a column for each node."""
    long = [] if config.node is None else [config.node, config.value]
    lacking = [name for name in (*config.genes, *long) if name not in frame.columns]
    if lacking:
        raise DataError(
            f"'{path.name}' lacks a column that `{key}` names",
            got=listing(frame.columns, 10),
            expected=listing(lacking),
            do=f"set `{key}.genes`, `{key}.node` and `{key}.value`",
        )
    if not long:
        if len(frame.columns) == len(config.genes):
            raise DataError(
                f"'{path.name}' has no column of a node", expected="a column for each node beside the genes"
            )
        return frame
    again = frame.duplicated([*config.genes, long[0]])
    if again.any():
        first = frame[again].iloc[0]
        got = f"{first[long[0]]} of {';'.join(first[name] for name in config.genes)}"
        raise DataError(f"'{path.name}' has a value twice", got=got, expected="one row for each strain and node")
    wide = frame.pivot(index=config.genes, columns=long[0], values=long[1]).fillna("")
    return wide.reset_index().rename_axis(columns=None)


def _numbers(cells: pd.Series, name: str, path: Path) -> NDArray[np.float32]:
    """Return a column of numbers, NaN where a cell is empty."""
    import pandas as pd

    empty = cells.isin(["", "NA", "N/A", "NaN", "nan"])
    found = pd.to_numeric(cells.mask(empty), errors="coerce").to_numpy(np.float32)
    wrong = (np.isnan(found) & ~empty.to_numpy()) | np.isinf(found)
    if wrong.any():
        raise DataError(
            f"'{path.name}': a value of node '{name}' is no number",
            got=cells.iloc[int(np.argmax(wrong))],
            expected="a number, or an empty cell where nothing was measured",
        )
    return found


def _identity(of: list[str] | dict[str, float]) -> Strain:
    return frozenset(of.items() if isinstance(of, dict) else ((gene, 0.0) for gene in of))


def _words(strain: Strain) -> str:
    """Return a strain as a table has it."""
    return ";".join(gene if left == 0 else f"{gene}:{left:g}" for gene, left in sorted(strain)) or "the wild type"
