"""Cell graphs as tables and as graphs of other packages."""

from __future__ import annotations

import sys

import networkx
import numpy as np
import pytest

from dglcell.errors import GraphError, MissingDependencyError
from dglcell.graph.cell_graph import CellGraph, Edges
from dglcell.graph.vocabulary import Vocabulary


@pytest.fixture
def small() -> CellGraph:
    """Return two genes and a reaction, one relation with weights."""
    edges = {
        ("gene", "near", "gene"): Edges(np.array([0, 1]), np.array([1, 0]), np.array([0.5, 2.0], np.float32)),
        ("gene", "catalyses", "reaction"): Edges(np.array([1]), np.array([0])),
    }
    return CellGraph.assemble({"gene": Vocabulary(("a", "b")), "reaction": Vocabulary(("r",))}, edges)


def test_cells_become_tables_and_graphs_of_names(small: CellGraph) -> None:
    assert repr(small) == "CellGraph(2 gene nodes, 1 reaction nodes, 3 edges)"
    frame = small.to_pandas()
    assert frame.source.tolist() == ["b", "b", "a"]
    assert frame.target.tolist() == ["r", "a", "b"]
    assert frame.weight.tolist()[1:] == [2.0, 0.5]
    graph = small.to_networkx()
    assert sorted(graph.edges(keys=True, data="weight")) == [
        ("a", "b", "near", 0.5),
        ("b", "a", "near", 2.0),
        ("b", "r", "catalyses", None),
    ]
    assert networkx.get_node_attributes(graph, "node_type") == {"a": "gene", "b": "gene", "r": "reaction"}
    clash = CellGraph.assemble({"gene": Vocabulary(("a", "b")), "reaction": Vocabulary(("a",))}, small.content)
    with pytest.raises(GraphError, match=r"nodes of two types have one name\n.*a\n.*to_pandas"):
        clash.to_networkx()


def test_cells_become_graphs_of_pytorch_geometric(small: CellGraph) -> None:
    pytest.importorskip("torch_geometric")
    graph = small.to_pyg()
    assert graph["gene"].names == ["a", "b"]
    assert graph["gene", "near", "gene"].edge_index.tolist() == [[1, 0], [0, 1]]
    assert graph["gene", "near", "gene"].edge_weight.tolist() == [2.0, 0.5]
    assert "edge_weight" not in graph["gene", "catalyses", "reaction"]


@pytest.mark.parametrize(
    ("package", "method", "install"),
    [("networkx", "to_networkx", "pip install networkx"), ("torch_geometric", "to_pyg", "pip install torch_geometric")],
)
def test_packages_that_are_missing_are_named(
    small: CellGraph, package: str, method: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(MissingDependencyError, match=rf"needs the package '{package}'\n.*{install}"):
        getattr(small, method)()
