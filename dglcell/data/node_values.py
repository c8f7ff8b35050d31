"""Hold values of nodes in strains, such as fluxes of reactions: vectors beside the strains, which are never read whole.

A strain is one record, and a vector of thousands of numbers would not fit into a column of it. Its column has the row
of the vector instead, so that strains with the same vector share it. Vectors lie beside the store as one array that is
mapped into memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import DataError, did_you_mean, listing
from dglcell.files.atomic import parse_json, sha256_file, write_json
from dglcell.graph.metabolism import whole_reactions
from dglcell.graph.schema import REACTION

if TYPE_CHECKING:
    from dglcell.graph.cell_graph import CellGraph

NOT_MEASURED = -1
"""A strain without a vector has this in place of a row."""

WILD_TYPE_ROW = 0
"""The first row is the wild type's."""

NAME = re.compile(r"[A-Za-z0-9]\w*", re.ASCII)
"""Names of values of nodes are names of files and of keys."""

PREFIX = "nodes."
"""Names of files of values of nodes begin with this text."""


@dataclass(frozen=True, eq=False)
class NodeValues:
    """Hold values of V nodes of one type: R vectors, of which strains have one each.

    Attributes:
        type: the node type.
        names: V distinct names of genes or metabolites, or reactions of the metabolic model.
        values: [R, V] float32, the wild type first, NaN where not measured; it may be mapped into memory.
        unit: unit of the values; empty without one.

    Raises:
        DataError: the values do not fit the names, a name comes twice, or a value of the wild type is not a number.
    """

    type: str
    names: tuple[str, ...]
    values: NDArray[Any]
    unit: str = ""

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names) or not len(self.values):
            raise DataError(
                f"values of the node type '{self.type}' have the wrong shape",
                got=list(self.values.shape),
                expected=f"vectors of {len(self.names):,} values, one for each name, the wild type first",
            )
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise DataError(f"values of the node type '{self.type}' name '{twice}' twice", expected="distinct names")
        if not np.isfinite(self.values[WILD_TYPE_ROW]).all():
            name = self.names[int(np.argmin(np.isfinite(self.values[WILD_TYPE_ROW])))]
            raise DataError(f"the wild type has no value of '{name}'", expected="a finite number for every node")

    @property
    def wild_type(self) -> NDArray[np.float32]:
        """Return the values of the wild type, [V]."""
        return np.asarray(self.values[WILD_TYPE_ROW])

    def write(self, directory: Path, name: str, rows_S: NDArray[np.integer]) -> None:
        """Write the values, and which row each strain has, as files beside a store."""
        files = {"values": self.values, "rows": rows_S.astype(np.int32)}
        for kind, array in files.items():
            np.save(directory / f"{PREFIX}{name}.{kind}.npy", array)
        hashes = {kind: sha256_file(directory / f"{PREFIX}{name}.{kind}.npy") for kind in files}
        about = {"type": self.type, "names": list(self.names), "unit": self.unit, "sha256": hashes}
        write_json(directory / f"{PREFIX}{name}.json", about)


def read_node_values(directory: Path, strains: int) -> dict[str, tuple[NodeValues, NDArray[np.int32]]]:
    """Return name → the values beside a store, mapped into memory, and the row of each of its strains.

    Args:
        directory: directory of the store.
        strains: number of its strains.

    Raises:
        DataError: a file is missing or damaged.
    """
    found = {}
    for path in sorted(directory.glob(f"{PREFIX}*.json")):
        name = path.name.removeprefix(PREFIX).removesuffix(".json")
        try:
            about = parse_json(path.read_bytes())
            arrays = [np.load(_file(path, kind), mmap_mode="r", allow_pickle=False) for kind in ("values", "rows")]
            values = NodeValues(about["type"], tuple(about["names"]), arrays[0], about["unit"])
            rows = np.array(arrays[1])
            if rows.shape != (strains,) or (strains and not NOT_MEASURED <= rows.min() <= rows.max() < len(arrays[0])):
                raise ValueError(f"rows of {len(rows):,} strains")
        except (OSError, ValueError, KeyError, TypeError, DataError) as error:
            raise _damaged(path, str(error).partition("\n")[0]) from error
        found[name] = (values, rows)
    return found


def verify_node_values(directory: Path) -> None:
    """Compare the files of values of nodes beside a store with their hashes.

    Raises:
        DataError: a file differs.
    """
    for path in sorted(directory.glob(f"{PREFIX}*.json")):
        for kind, expected in parse_json(path.read_bytes())["sha256"].items():
            if sha256_file(_file(path, kind)) != expected:
                raise _damaged(_file(path, kind), "another sha256")


def is_node_file(name: str) -> bool:
    """Return whether a file beside a store has values of nodes."""
    return name.startswith(PREFIX)


def _file(description: Path, kind: str) -> Path:
    return description.with_suffix(f".{kind}.npy")


def _damaged(path: Path, got: str) -> DataError:
    return DataError(
        f"'{path}' does not hold the values of nodes that were written beside the store",
        got=got,
        do="copy the store again, or build it anew with `dglcell data build --overwrite`",
    )


# Values of nodes as a cell graph has them.


def measured_names(cell: CellGraph, node_type: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the names that values of a node type have in a cell graph, and which of them each node belongs to.

    Genes and metabolites have a value each. A reaction has one flux, however many enzyme complexes and directions it
    has, so that its nodes belong to one name.

    Returns:
        M names, and [N] numbers of names.
    """
    names = cell.vocabularies[node_type].names
    if node_type != REACTION:
        return tuple(names), np.arange(len(names))
    return whole_reactions(names)


@dataclass(frozen=True, eq=False)
class CellValues:
    """Hold values of the nodes of a cell graph.

    Attributes:
        values: as they lie beside the store.
        columns: [M] the column of each of the cell graph's names, −1 where it has no values.
        rows: [S] the row of each strain of a data set, −1 where it was not measured.
    """

    values: NodeValues
    columns: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(
        cls, name: str, values: NodeValues, rows_S: NDArray[np.integer], cell: CellGraph, unknown: str
    ) -> CellValues:
        """Match values with a cell graph.

        Args:
            name: what the configuration calls them.
            values: as they lie beside the store.
            rows_S: row of each strain of the data set.
            cell: the cell graph.
            unknown: ``refuse`` or ``drop`` nodes that the cell graph lacks.

        Raises:
            DataError: the cell graph has no such node type, lacks a node, or no strain has a value.
        """
        key = f"data.nodes.{name}"
        if values.type not in cell.vocabularies:
            raise DataError(
                f"`{key}`: the cell graph has no nodes of the type '{values.type}'",
                expected="among " + listing(cell.vocabularies),
                do="set `cell.model` for reactions and metabolites",
            )
        known, _ = measured_names(cell, values.type)
        place = {node: column for column, node in enumerate(values.names)}
        there = set(known)
        lacking = [node for node in values.names if node not in there]
        drop = f"leave them out with `{key}.unknown: drop`"
        if lacking and (unknown == "refuse" or len(lacking) == len(values.names)):
            raise DataError(
                f"`{key}` has values of {len(lacking):,} nodes that the cell graph lacks",
                got=listing(lacking),
                expected=f"names of the type '{values.type}', e.g. {listing(known, 3)}",
                do=f"{did_you_mean(lacking[0], known, 'rename them')}; or {drop}",
            )
        found = cls(values, np.array([place.get(node, -1) for node in known]), np.asarray(rows_S, np.int64))
        if not (found.rows >= 0).any():
            raise DataError(
                f"`{key}`: no strain has values of nodes",
                got=f"{len(found.rows):,} strains without any",
                expected="vectors of some of the strains",
                do="look whether strains are written as in the table of the experiment",
            )
        return found

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def wild_type(self) -> NDArray[np.float32]:
        """Return the values of the wild type, [M], 0 where there are none."""
        return np.where(self.columns >= 0, self.values.wild_type[self.columns], 0).astype(np.float32)

    def of_strains(self, strains: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the values of strains of the data set by their numbers, [B, M], NaN where not measured."""
        rows = self.rows[strains]
        found = self.values.values[np.maximum(rows, 0)][:, self.columns]
        found[rows < 0] = np.nan
        found[:, self.columns < 0] = np.nan
        return found
