"""The cell graph as module buffers."""

from __future__ import annotations

import pytest
import torch

from dglcell.errors import GraphError
from dglcell.graph.resident import ResidentCell
from dglcell.graph.resident_graph import ResidentRelation
from dglcell.graph.schema import CONVERTS
from tests.random_cells import resident_cell

PHYSICAL = ("gene", "physical", "gene")


def small_cell() -> ResidentCell:
    return resident_cell(
        {PHYSICAL: ([0, 2, 1], [2, 0, 0]), CONVERTS: ([0], [1])},
        {"gene": 3, "reaction": 1, "metabolite": 2},
        {CONVERTS: [-2.0]},
    )


def test_the_heterograph_has_all_nodes_edges_and_weights() -> None:
    graph = small_cell().heterograph()
    assert graph.edges["converts"].data["weight"].tolist() == [-2.0]
    assert graph.num_edges("physical") == 3
    assert {kind: graph.num_nodes(kind) for kind in graph.ntypes} == small_cell().num_nodes
    assert set(graph.canonical_etypes) == set(small_cell().relations)
    for relation in small_cell().relations:
        mine, (src, dst) = small_cell()[relation], graph.edges(etype=relation)
        assert (mine.src.tolist(), mine.dst.tolist()) == (src.tolist(), dst.tolist())
        assert (mine.weight is None) == ("weight" not in graph.edges[relation].data)


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


def weighted_relation() -> ResidentRelation:
    ends = torch.tensor([2, 0, 2, 1]), torch.tensor([1, 1, 0, 1])
    return ResidentRelation(("a", "b", "c"), *ends, num_src=3, num_dst=3, weight=torch.tensor([1.5, 2.0, 3.0, 4.0]))


@pytest.mark.parametrize(("edges", "weight", "exact"), [(256, 1.0, True), (257, 1.0, False), (1, 0.1, False)])
def test_a_dense_adjacency_that_half_precision_would_round_stays_in_float32(
    edges: int, weight: float, exact: bool
) -> None:
    ends = torch.zeros(edges, dtype=torch.int64), torch.zeros(edges, dtype=torch.int64)
    relation = ResidentRelation(("a", "b", "c"), *ends, num_src=1, num_dst=1, weight=torch.full((edges,), weight))
    matrix = relation.dense(torch.bfloat16, weighted=True)
    assert matrix.dtype == (torch.bfloat16 if exact else torch.float32)
    assert matrix.item() == torch.tensor(edges * weight).item()


def test_derived_forms_are_made_anew_after_a_change_of_dtype() -> None:
    relation = weighted_relation()
    before = relation.compact(torch.float32, transposed=False), relation.dense(torch.float32, weighted=True)
    index = relation.index_tensors(transposed=True)
    relation.double()
    assert relation.index_tensors(transposed=True)[2].dtype == torch.float64
    assert index[2].dtype == torch.float32
    assert relation.compact(torch.float32, transposed=False) is not before[0]
    assert relation.dense(torch.float32, weighted=True) is not before[1]
