"""Tables of values of nodes of a user's own, and how values are matched with a cell graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dglcell.data.config import NodesConfig
from dglcell.data.node_table import read_node_table
from dglcell.data.node_values import CellValues, NodeValues, measured_names
from dglcell.data.strains import Strains
from dglcell.errors import DataError
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.cell_graph import CellGraph

WIDE = "genes,b0008,b0114\n,2.0,3.0\nb0008;b2464,0.0,3.5\nb0727,2.5,\nb2464:0.5,1,1\n"
LONG = "strain,gene,tpm\n,b0008,2.0\n,b0114,3.0\nb2464;b0008,b0008,0.0\nb2464;b0008,b0114,3.5\nb0727,b0008,2.5\n"


@pytest.fixture(scope="module")
def cell() -> CellGraph:
    """The E. coli core model."""
    return build_cell(CellConfig(model="textbook"))


@pytest.fixture
def strains() -> Strains:
    """Four strains, one of them weakened and one that no table has."""
    names: list[Any] = [["b2464", "b0008"], ["b0727"], {"b2464": 0.5}, ["b0114"]]
    return Strains.from_names(names, phenotypes={"fitness": [0.1, 0.2, 0.3, 0.4]})


def read(folder: Path, text: str, strains: Strains, **config: Any) -> tuple[NodeValues, np.ndarray]:
    """Read a table of values of genes."""
    path = folder / "table.csv"
    path.write_text(text)
    return read_node_table(path, NodesConfig(type="gene", **config), strains, "data.nodes.expression")


def test_a_wide_table_has_a_column_for_each_node(tmp_path: Path, strains: Strains) -> None:
    values, rows = read(tmp_path, WIDE, strains, unit="TPM")
    assert (values.names, values.unit) == (("b0008", "b0114"), "TPM")
    np.testing.assert_array_equal(values.wild_type, [2, 3])
    found = np.where(rows[:, None] >= 0, values.values[rows], np.nan)
    np.testing.assert_array_equal(found, [[0, 3.5], [2.5, np.nan], [1, 1], [np.nan, np.nan]])


def test_a_long_table_is_the_same(tmp_path: Path, strains: Strains) -> None:
    values, rows = read(tmp_path, LONG, strains, genes=["strain"], node="gene", value="tpm")
    wide, rows_of_wide = read(tmp_path, WIDE, strains)
    np.testing.assert_array_equal(values.values[rows[:2]], wide.values[rows_of_wide[:2]])
    np.testing.assert_array_equal(values.wild_type, wide.wild_type)
    assert rows[2] == -1


def test_without_a_wild_type_values_are_differences(tmp_path: Path, strains: Strains) -> None:
    values, _ = read(tmp_path, "genes,b0008\nb0727,-1.5\n", strains)
    assert values.wild_type.tolist() == [0]


@pytest.mark.parametrize(
    ("text", "config", "said"),
    [
        ("genes,b0008\nb0727,1\nb0727,2\n", {}, r"(?s)has a strain twice.*b0727"),
        ("genes,b0008\nb0727,high\n", {}, r"(?s)a value of node 'b0008' is no number.*high"),
        ("genes\nb0727\n", {}, "has no column of a node"),
        ("strain,b0008\nb0727,1\n", {}, r"(?s)lacks a column that `data.nodes.expression` names.*genes"),
        ("genes,b0008\nb0008,1\n", {}, r"(?s)has strains that the store lacks.*1 strains, e.g. b0008.*b2464"),
        ("genes,gene,value\nb0727,b0008,1\nb0727,b0008,2\n", {"node": "gene"}, r"(?s)a value twice.*b0008 of b0727"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(
    tmp_path: Path, strains: Strains, text: str, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        read(tmp_path, text, strains, **config)


def test_a_table_cannot_tell_conditions_apart(tmp_path: Path) -> None:
    strains = Strains.from_names([["b0727"]], phenotypes={"fitness": [1]}, conditions={"temperature": [30]})
    with pytest.raises(DataError, match=r"(?s)cannot tell conditions of strains apart.*temperature"):
        read(tmp_path, "genes,b0008\nb0727,1\n", strains)


# Matching values with a cell graph.


def test_a_reaction_has_one_value_whatever_its_enzymes(cell: CellGraph) -> None:
    names, number = measured_names(cell, "reaction")
    assert len(names) == 95
    assert len(number) == cell.num_nodes["reaction"]
    of = {names[n] for n, node in zip(number, cell.vocabularies["reaction"].names, strict=True) if "ACALD#" in node}
    assert of == {"ACALD"}
    assert measured_names(cell, "gene")[0] == tuple(cell.genes.names)


def test_values_are_read_in_the_order_of_the_cell_graph(cell: CellGraph) -> None:
    values = NodeValues("gene", ("b4025", "b0008"), np.array([[1, 2], [3, 4], [5, np.nan]], np.float32))
    found = CellValues.of("x", values, np.array([2, -1, 0, 1]), cell, "refuse")
    of_strains = found.of_strains(np.array([0, 1, 3]))
    assert of_strains.shape == (3, len(cell.genes))
    columns = [cell.genes.index(name) for name in ("b4025", "b0008")]
    np.testing.assert_array_equal(of_strains[:, columns], [[5, np.nan], [np.nan, np.nan], [3, 4]])
    assert np.isnan(np.delete(of_strains, columns, axis=1)).all()
    assert found.wild_type[columns].tolist() == [1, 2]


def test_nodes_that_the_cell_lacks_are_refused_or_dropped(cell: CellGraph) -> None:
    values = NodeValues("gene", ("b0008", "b0009x"), np.zeros((2, 2), np.float32))
    said = r"(?s)`data.nodes.x` has values of 1 nodes that the cell graph lacks.*b0009x.*data.nodes.x.unknown: drop"
    with pytest.raises(DataError, match=said):
        CellValues.of("x", values, np.array([1]), cell, "refuse")
    assert len(CellValues.of("x", values, np.array([1]), cell, "drop")) == len(cell.genes)


def test_unusable_values_are_refused(cell: CellGraph) -> None:
    with pytest.raises(DataError, match=r"(?s)wrong shape.*\[2, 3\].*vectors of 2 values"):
        NodeValues("gene", ("a", "b"), np.zeros((2, 3), np.float32))
    with pytest.raises(DataError, match="name 'a' twice"):
        NodeValues("gene", ("a", "a"), np.zeros((2, 2), np.float32))
    with pytest.raises(DataError, match="the wild type has no value of 'b'"):
        NodeValues("gene", ("a", "b"), np.array([[0, np.nan]], np.float32))
    values = NodeValues("gene", ("b0008",), np.zeros((1, 1), np.float32))
    with pytest.raises(DataError, match=r"(?s)`data.nodes.x`: no strain has values of nodes.*2 strains"):
        CellValues.of("x", values, np.array([-1, -1]), cell, "refuse")
    with pytest.raises(DataError, match="no nodes of the type 'organelle'"):
        CellValues.of("x", NodeValues("organelle", ("b0008",), values.values), np.array([0]), cell, "refuse")
