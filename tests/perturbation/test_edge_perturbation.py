"""Perturbations of single edges: against dense numpy, the oracle, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dglcell.errors import ConfigError, GenotypeError, GraphError
from dglcell.graph.vocabulary import Vocabulary
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation import EDGE_STRATEGIES
from dglcell.perturbation.edge_perturbation import EdgePerturbations
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import REDUCES, perturb
from tests.perturbation.states_of import agree, gradients, states_of, values_of
from tests.random_cells import Changes, RandomCell, changes_of, genotypes_of, random_cells

WIDTH = 3
PHYSICAL, CONVERTS = ("gene", "physical", "gene"), ("reaction", "converts", "metabolite")


def as_perturbations(
    cell: RandomCell, strains: int, changes: dict[tuple[str, str, str], list[Changes]]
) -> tuple[EdgePerturbations, torch.Tensor]:
    """Return the same through the public builder, and the tensor that holds all weights."""
    entries = [
        (b, r, u, v, w) for r, many in changes.items() for b, one in enumerate(many) for (u, v), w in one.items()
    ]
    leaf = torch.tensor([w for *_, w in entries if w is not None], dtype=torch.float64, requires_grad=True)
    values = iter(leaf.unbind() if len(leaf) else ())
    removed = [(b, r, u, v) for b, r, u, v, w in entries if w is None]
    weights = [(b, r, u, v, next(values)) for b, r, u, v, w in entries if w is not None]
    return EdgePerturbations.build(cell.resident, strains, removed, weights), leaf


@settings(max_examples=40)
@given(data=st.data(), cell=random_cells(), reduce=st.sampled_from(REDUCES))
def test_aggregation_equals_the_reduced_graph(data: Any, cell: RandomCell, reduce: str) -> None:
    strains = data.draw(genotypes_of(cell))
    changes, batch = data.draw(changes_of(cell, len(strains))), GenotypeBatch.from_lists(strains)
    for relation in cell.edges:
        values = data.draw(values_of(cell.sizes[relation[0]], len(strains), WIDTH))
        x, columns = values.whole(len(strains)).detach().numpy(), []
        for b, strain in enumerate(strains):
            matrix, degree = cell.adjacency(relation, strain, changes[relation][b] if relation in changes else None)
            y = matrix @ x[:, b]
            columns.append(y / np.maximum(degree, 1)[:, None] if reduce == "mean" else y)
        expected, found = torch.as_tensor(np.stack(columns, axis=1)), []
        for strategy in EDGE_STRATEGIES:
            edges, weights = as_perturbations(cell, len(strains), changes)
            perturbed = perturb(cell.resident, batch, strategy, edges=edges)
            y = perturbed.aggregate(relation, states_of(perturbed, values), reduce).whole()
            agree([y], [expected], strategy)
            found.append(gradients(y, [*values.leaves, weights]))
        agree(*found)


@settings(max_examples=20)
@given(data=st.data(), cell=random_cells(), conv=st.sampled_from(["gin", "sage"]))
def test_the_model_agrees_forward_and_in_every_gradient(data, cell: RandomCell, conv: str) -> None:
    strains = data.draw(genotypes_of(cell))
    changes, outcomes = data.draw(changes_of(cell, len(strains))), []
    for strategy in EDGE_STRATEGIES:
        torch.manual_seed(0)
        config = HeteroCellConfig(hidden=4, layers=2, local_heads=2, conv=conv, strategy=strategy)
        model = HeteroCell(cell.resident, config).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.5)
        edges, weights = as_perturbations(cell, len(strains), changes)
        prediction = model(GenotypeBatch.from_lists(strains), edges).phenotypes
        leaves = [weights, *model.parameters()]
        gradients = torch.autograd.grad(prediction.square().sum(), leaves, allow_unused=True, materialize_grads=True)
        outcomes.append([prediction.detach(), *gradients])
    agree(*outcomes)


def small_cell() -> RandomCell:
    """Return genes 0 → 1 twice, 2 → 1; reaction 0 → metabolite 0 of weight 2."""
    sizes = {"gene": 3, "reaction": 1, "metabolite": 1}
    edges = {PHYSICAL: (np.array([0, 2, 0]), np.array([1, 1, 1])), CONVERTS: (np.array([0]), np.array([0]))}
    return RandomCell(sizes, edges, {CONVERTS: np.array([2.0])})


def received(edges: EdgePerturbations, relation: tuple[str, str, str], reduce: str = "sum") -> list[float]:
    """Return what the last node of the relation receives in every strain, where every source sends 1."""
    cell, results = small_cell(), []
    for strategy in EDGE_STRATEGIES:
        perturbed = perturb(cell.resident, GenotypeBatch.from_lists([[]] * edges.num_strains), strategy, edges=edges)
        ones = perturbed.start(torch.ones(cell.sizes[relation[0]], 1, dtype=torch.float64))
        results.append(perturbed.aggregate(relation, ones, reduce).whole().sum((0, 2)).tolist())
    assert results[0] == results[1]
    return results[0]


def test_parallel_edges_are_changed_together() -> None:
    edges = EdgePerturbations.build(
        small_cell().resident, 3, removed=[(0, PHYSICAL, 0, 1)], weights=[(1, PHYSICAL, 0, 1, 0.5)]
    )
    assert received(edges, PHYSICAL) == [1.0, 2.0, 3.0]


def test_a_removed_edge_is_no_edge_of_weight_zero() -> None:
    edges = EdgePerturbations.build(
        small_cell().resident, 2, removed=[(0, PHYSICAL, 2, 1)], weights=[(1, PHYSICAL, 2, 1, 0.0)]
    )
    assert received(edges, PHYSICAL, "mean") == [1.0, 2 / 3]


def test_a_weight_replaces_the_fixed_weight() -> None:
    edges = EdgePerturbations.build(small_cell().resident, 2, weights=[(1, CONVERTS, 0, 0, -3.0)])
    assert received(edges, CONVERTS) == [2.0, -3.0]


def test_nodes_can_be_named() -> None:
    names = {"gene": Vocabulary(("YAL001C", "YAL002W", "YAL003W"))}
    build = EdgePerturbations.build
    named = build(small_cell().resident, 1, [(0, PHYSICAL, "YAL003W", "YAL002W")], vocabularies=names)
    assert received(named, PHYSICAL) == [2.0]
    with pytest.raises(GenotypeError, match=r"'physical': unknown gene 'YAL003C'\n  got: .*YAL003C"):
        build(small_cell().resident, 1, [(0, PHYSICAL, "YAL003C", "YAL002W")], vocabularies=names)
    with pytest.raises(GenotypeError, match=r"there is no vocabulary of gene names\n  got:      YAL001C\n  do: .*pass"):
        build(small_cell().resident, 1, [(0, PHYSICAL, "YAL001C", 1)])


def test_moving_and_the_wild_type_in_front() -> None:
    edges = EdgePerturbations.build(
        small_cell().resident, 2, removed=[(0, PHYSICAL, 0, 1)], weights=[(1, PHYSICAL, 2, 1, 5.0)]
    )
    moved = edges.to("cpu").with_wild_type()
    assert moved.num_strains == 3
    assert received(moved, PHYSICAL) == [3.0, 1.0, 7.0]


BAD = {
    "unknown edge": (
        {"removed": [(0, PHYSICAL, 0, 1), (1, PHYSICAL, 1, 0)]},
        r"relation 'physical': no such edge in the cell graph\n  got:      strain 1, 1 → 0\n"
        r"  expected: ends of one of the 3 edges, source → destination\n  do:       check the direction",
    ),
    "aliased pair": ({"removed": [(0, PHYSICAL, 3, 0)]}, r"no such edge .*\n  got:      strain 0, 3 → 0"),
    "strain": (
        {"weights": [(2, PHYSICAL, 0, 1, 1.0), (-1, PHYSICAL, 0, 1, 1.0)]},
        r"belongs to no strain of the batch\n  got:      strain -1, 2\n  expected: 0 … 1\n  do: .*number strains",
    ),
    "weight": (
        {"weights": [(0, PHYSICAL, 0, 1, 1.0), (1, PHYSICAL, 0, 1, float("nan"))]},
        r"weight of an edge is not finite\n  got:      strain 1, 0 → 1: nan\n  expected: finite .*\n  do: .*removed",
    ),
    "conflict": (
        {"removed": [(0, PHYSICAL, 0, 1)], "weights": [(0, PHYSICAL, 0, 1, 2.0)]},
        r"two statements about the same edge of a strain\n  got:      strain 0, 0 → 1\n  expected: .*once",
    ),
    "duplicate": ({"removed": [(1, PHYSICAL, 2, 1)] * 2}, r"two statements .*\n  got:      strain 1, 2 → 1\n"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_wrong_edges_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(GenotypeError, match=message):
        EdgePerturbations.build(small_cell().resident, 2, **arguments)


def test_an_unknown_relation_is_refused() -> None:
    with pytest.raises(GraphError, match=r"no such relation\n  got:      \('gene', 'genetic', 'gene'\)"):
        EdgePerturbations.build(small_cell().resident, 2, [(0, ("gene", "genetic", "gene"), 0, 1)])


@pytest.mark.parametrize("strategy", ["node_mask", "difference"])
def test_strategies_of_node_deletions_refuse_changed_edges(strategy: str) -> None:
    cell = small_cell().resident
    edges = EdgePerturbations.build(cell, 1, [(0, PHYSICAL, 0, 1)])
    with pytest.raises(
        ConfigError,
        match=rf"strategy '{strategy}' cannot express perturbations of single edges\n  got: .*1 relations\n"
        r"  expected: edge_mask, edge_subgraph\n  do:       set `model.strategy: edge_mask`",
    ):
        perturb(cell, GenotypeBatch.from_lists([[]]), strategy, edges=edges)


def test_another_number_of_strains_is_refused() -> None:
    cell = small_cell().resident
    edges = EdgePerturbations.build(cell, 1, [(0, PHYSICAL, 0, 1)])
    with pytest.raises(GenotypeError, match=r"different numbers of strains\n  got:      1 and 2\n  do: .*num_strains="):
        perturb(cell, GenotypeBatch.from_lists([[], []]), "edge_mask", edges=edges)
