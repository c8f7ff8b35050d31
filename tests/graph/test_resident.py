"""The cell graph as module buffers."""

from __future__ import annotations

import dgl
import pytest
import torch

from dglcell.errors import GraphError
from dglcell.graph.resident import ResidentCell


def small_cell() -> ResidentCell:
    graph = dgl.heterograph(
        {("gene", "physical", "gene"): ([0, 2, 1], [2, 0, 0]), ("reaction", "converts", "metabolite"): ([0], [1])},
        num_nodes_dict={"gene": 3, "reaction": 1, "metabolite": 2},
    )
    graph.edges["converts"].data["weight"] = torch.tensor([-2.0])
    return ResidentCell(graph)


def test_edges_are_ordered_by_destination_and_complete() -> None:
    cell = small_cell()
    physical = cell["gene", "physical", "gene"]
    assert physical.dst.tolist() == [0, 0, 2]
    assert sorted(zip(physical.src.tolist(), physical.dst.tolist(), strict=True)) == [(0, 2), (1, 0), (2, 0)]
    assert physical.in_degrees.tolist() == [2, 0, 1]
    assert cell.num_nodes == {"gene": 3, "metabolite": 2, "reaction": 1}


def test_edges_by_source() -> None:
    physical = small_cell()["gene", "physical", "gene"]
    starts, order = physical.edges_by_source
    for node in range(3):
        assert (physical.src[order[starts[node] : starts[node + 1]]] == node).all()
    assert sorted(order.tolist()) == [0, 1, 2]


def test_the_heterograph_comes_back() -> None:
    graph = small_cell().heterograph()
    assert graph.edges["converts"].data["weight"].tolist() == [-2.0]
    assert graph.num_edges("physical") == 3


def test_buffers_follow_the_dtype_and_are_not_in_checkpoints() -> None:
    cell = small_cell().double()
    converts = cell["reaction", "converts", "metabolite"]
    assert converts.weight is not None
    assert converts.weight.dtype == torch.float64
    assert converts.src.dtype == torch.int64
    assert cell.state_dict() == {}


def test_an_unknown_relation_is_refused() -> None:
    with pytest.raises(GraphError, match=r"no such relation\n  got:      \('gene', 'genetic', 'gene'\)"):
        small_cell()["gene", "genetic", "gene"]
