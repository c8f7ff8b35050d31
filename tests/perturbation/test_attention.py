"""Attention with any score under all strategies, against loops over the nodes of every strain's reduced graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.errors import ConfigError
from dglcell.graph.schema import Relation
from dglcell.nn.convolutions import GATv2Score
from dglcell.perturbation import DGL_STRATEGIES, STRATEGIES
from dglcell.perturbation.attention import Score
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import PerturbedCell, perturb
from dglcell.perturbation.states import DifferenceStates, Execution, States
from tests.examples import examples
from tests.perturbation.states_of import (
    DENSE_SHARES,
    ENGINES,
    PHYSICAL,
    Engine,
    LargestResult,
    Values,
    agree,
    batches_of,
    blocks_of,
    gradients,
    hub,
    states_of,
    values_of,
)
from tests.perturbation.strategies.test_difference import listed, ring
from tests.perturbation.test_edge_perturbation import with_changes
from tests.random_cells import Changes, RandomCell, changes_of, genotypes_of, random_cells

HEADS, DEPTH = 2, 3
BUDGETS = st.sampled_from([None, 1, 500, 10**6])
"""Bytes of a block; None for the default."""


def dot_product(vector: Tensor, edge_vector: Tensor) -> Score:
    def score(keys: Any, queries: Any, weights: Any) -> Any:
        product = (keys.unflatten(-1, (HEADS, DEPTH)) * queries.unflatten(-1, (HEADS, DEPTH))).sum(-1)
        return product if weights is None else product * weights.unsqueeze(1) + edge_vector[:HEADS]

    return score


def additive(vector: Tensor, edge_vector: Tensor) -> Score:
    """Keys alone, through a layer of their own."""

    def score(keys: Any, queries: Any, weights: Any) -> Any:
        matrix = vector.flatten().outer(edge_vector)
        return F.linear(torch.tanh(F.linear(keys, matrix)), matrix[:HEADS])

    return score


def by_weight(vector: Tensor, edge_vector: Tensor) -> Score:
    """Neither keys nor queries."""

    def score(keys: Any, queries: Any, weights: Any) -> Any:
        return (
            edge_vector.new_zeros(keys.shape[0], HEADS)
            if weights is None
            else weights.unsqueeze(1) * edge_vector[:HEADS]
        )

    return score


SCORES: dict[str, Callable[[Tensor, Tensor], Score]] = {
    "gatv2": lambda vector, edge_vector: GATv2Score(vector, edge_vector, 0.2),
    "relu": lambda vector, edge_vector: GATv2Score(vector, edge_vector, 0.0),
    "dot product": dot_product,
    "additive": additive,
    "by weight": by_weight,
}


@dataclass
class Case:
    """Inputs of one relation in B strains."""

    keys: Values
    queries: Values
    vector: Tensor
    edge_vector: Tensor
    score: Score

    @classmethod
    def draw(cls, data: Any, cell: RandomCell, relation: Relation, strains: int) -> Case:
        width = HEADS * DEPTH
        keys, queries = (data.draw(values_of(cell.sizes[t], strains, width)) for t in (relation[0], relation[2]))
        generator = torch.Generator().manual_seed(strains)
        vector, edge_vector = (
            torch.randn(s, dtype=torch.float64, generator=generator).requires_grad_()
            for s in ((HEADS, DEPTH), (width,))
        )
        score = SCORES[data.draw(st.sampled_from(list(SCORES)))](vector, edge_vector)
        if isinstance(score, GATv2Score) and relation not in cell.weights:
            score = GATv2Score(vector, None, score.slope)
        return cls(keys, queries, vector, edge_vector, score)

    @property
    def leaves(self) -> list[Tensor]:
        return [*self.keys.leaves, *self.queries.leaves, self.vector, self.edge_vector]

    def attend(self, perturbed: PerturbedCell, relation: Relation) -> Tensor:
        """[M, B, H]."""
        keys, queries = states_of(perturbed, self.keys), states_of(perturbed, self.queries)
        return perturbed.attend(relation, keys, queries, self.score).whole()


def plain_attend(
    cell: RandomCell, relation: Relation, strains: list[list[int]], case: Case, changes: list[Changes] | None = None
) -> Tensor:
    """[M, B, H], node by node."""
    keys, queries = (values.whole(len(strains)) for values in (case.keys, case.queries))
    columns = []
    for b, strain in enumerate(strains):
        rows = [torch.zeros(HEADS * DEPTH, dtype=torch.float64)] * cell.sizes[relation[2]]
        surviving = cell.surviving_with_strengths(relation, strain, changes and changes[b])
        for v in {v for _, v, _, _ in surviving}:
            u, w, strength = zip(*((u, w, s) for u, other, w, s in surviving if other == v), strict=True)
            weights = torch.tensor(w, dtype=torch.float64) if relation in cell.weights else None
            value = keys[list(u), b]
            logits = case.score(value, queries[v, b].expand_as(value), weights)
            share = (logits + torch.tensor(strength, dtype=torch.float64).log().unsqueeze(1)).softmax(0)
            rows[v] = (share.unsqueeze(2) * value.unflatten(1, (HEADS, -1))).sum(0).flatten()
        columns.append(torch.stack(rows))
    return torch.stack(columns, 1)


@examples(25)
@given(data=st.data(), cell=random_cells(), engine=ENGINES, dense_share=DENSE_SHARES, budget=BUDGETS)
def test_attention_equals_the_reduced_graph(
    data: Any, cell: RandomCell, engine: Engine, dense_share: float, budget: int | None
) -> None:
    """Whatever differs before, and with deletions that all strains share."""
    strains, batch = data.draw(batches_of(cell))
    relation, execution = data.draw(st.sampled_from(sorted(cell.edges))), Execution(dense_share=dense_share)
    case = Case.draw(data, cell, relation, len(strains))
    expected = plain_attend(cell, relation, strains, case)
    right = [expected, *gradients(expected, case.leaves)]
    for strategy in STRATEGIES:
        with blocks_of(budget), engine():
            y = case.attend(perturb(cell.resident, batch, strategy, execution=execution), relation)
            agree([y, *gradients(y, case.leaves)], right, strategy)


@examples(6)
@given(data=st.data(), cell=random_cells())
def test_changed_edges_are_attended_to_as_in_the_reduced_graph(data: Any, cell: RandomCell) -> None:
    strains = data.draw(genotypes_of(cell))
    changes = data.draw(changes_of(cell, len(strains)))
    for relation in cell.edges:
        mine = {relation: changes[relation]} if relation in changes else {}
        case = Case.draw(data, cell, relation, len(strains))
        expected, found = plain_attend(cell, relation, strains, case, mine.get(relation)), []
        for strategy in DGL_STRATEGIES:
            batch, strengths = with_changes(cell, strains, mine)
            y = case.attend(perturb(cell.resident, batch, strategy), relation)
            agree([y], [expected], strategy)
            found.append(gradients(y, [*case.leaves, strengths]))
        agree(*found)


@pytest.mark.parametrize("strategy", ["node_mask", "difference"])
def test_attention_over_changed_edges_needs_whole_states(strategy: str) -> None:
    cell = ring(4)
    batch, _ = with_changes(cell, [[]], {PHYSICAL: [{(0, 1): 0.5}]})
    perturbed = perturb(cell.resident, batch, strategy)
    x = perturbed.start(torch.ones(4, 6, dtype=torch.float64))
    with pytest.raises(
        ConfigError, match=r"cannot express changed edges\n.*'physical'\n.*edge_mask\n.*which needs DGL"
    ):
        perturbed.attend(PHYSICAL, x, x, GATv2Score(torch.ones(2, 3)))


def test_only_the_pairs_that_attend_to_something_else_are_listed() -> None:
    cell, score = ring(20), GATv2Score(torch.ones(1, 1, dtype=torch.float64))
    x = torch.arange(20.0, dtype=torch.float64).unsqueeze(1)

    def attended(strains: list[list[int]], queries: Values) -> DifferenceStates:
        perturbed = perturb(cell.resident, GenotypeBatch.from_lists(strains), "difference")
        out = perturbed.attend(PHYSICAL, perturbed.start(x), states_of(perturbed, queries), score)
        assert isinstance(out, DifferenceStates)
        return out

    first = attended([[], [3], [3, 7]], Values(x))
    assert listed(first) == {(3, 1), (4, 1), (3, 2), (4, 2), (7, 2), (8, 2)}
    assert not first.whole()[[3, 4], 1].any()
    mask = torch.eye(20, 3, dtype=torch.bool)[:, :1].expand(-1, 3)
    second = attended([[], [], []], Values(x, torch.ones(20, 3, 1, dtype=torch.float64), mask))
    assert listed(second) == {(0, 0), (0, 1), (0, 2)}
    assert second.whole()[0].flatten().tolist() == [19.0] * 3


@pytest.mark.parametrize("strategy", ["node_mask", "difference"])
def test_no_tensor_is_as_large_as_edges_times_strains(strategy: str) -> None:
    genes, strains, width = 60, 16, 4
    resident, generator = hub(genes, own=30).resident.float(), torch.Generator().manual_seed(0)
    E = resident[PHYSICAL].num_edges
    perturbed = perturb(resident, GenotypeBatch.from_lists([[b] for b in range(strains)]), strategy)
    delta = torch.randn(genes, strains, width, generator=generator, requires_grad=True)
    x = torch.randn(genes, width, generator=generator, requires_grad=True)
    states = states_of(perturbed, Values(x, delta if strategy == "node_mask" else None))
    score = GATv2Score(torch.randn(2, 2, generator=generator, requires_grad=True))
    with blocks_of(2**12), LargestResult() as results:
        perturbed.attend(PHYSICAL, states, states, score).whole().square().sum().backward()
    # States themselves are as large as nodes × strains × width.
    assert genes * strains * width <= results.largest < E * strains / 4


@pytest.mark.parametrize("budget", [None, 100])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_large_scores_stay_finite(strategy: str, budget: int | None) -> None:
    cell, batch = ring(5), GenotypeBatch.from_lists([[], [2]])
    source = np.concatenate([np.arange(5), np.arange(5)])
    cell.edges[PHYSICAL] = (source, np.concatenate([(np.arange(5) + 1) % 5, np.arange(5)]))
    x = (1e4 * torch.arange(-2.0, 3.0)).view(5, 1).requires_grad_()
    score = GATv2Score(torch.full((1, 1), 1e3, requires_grad=True))
    with blocks_of(budget):
        perturbed = perturb(cell.resident.float(), batch, strategy)
        y = perturbed.attend(PHYSICAL, perturbed.start(x), perturbed.start(x), score).whole()
        (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.isfinite().all()
    assert gradient.isfinite().all()
    assert y[4].flatten().tolist() == [2e4, 2e4]
    assert y[2:4, 1].flatten().tolist() == [0.0, 1e4]


@pytest.mark.parametrize("strategy", ["node_mask", "difference"])
def test_differences_in_half_precision_are_right_to_two_percent(strategy: str) -> None:
    cell, generator = hub(40, own=3), torch.Generator().manual_seed(0)
    batch = GenotypeBatch.from_lists([[], [3], [5, 6]])
    x = torch.randn(40, 6, generator=generator, requires_grad=True)
    delta = 0.1 * torch.randn(40, 3, 6, generator=generator)
    mask = torch.rand(40, 3, generator=generator) < 0.2 if strategy == "difference" else None

    def difference(dtype: torch.dtype) -> Tensor:
        execution = Execution(None if dtype == torch.float32 else dtype, dense_share=1e9)
        perturbed = perturb(cell.resident.float(), batch, strategy, execution=execution)
        states: States = states_of(perturbed, Values(x, delta.to(dtype), mask))
        score = GATv2Score(torch.ones(2, 3))
        out = perturbed.attend(PHYSICAL, states, states, score)
        assert isinstance(out, DifferenceStates)
        assert out.delta is not None
        assert out.delta.dtype == dtype
        return out.dense().float()

    exact, half = difference(torch.float32), difference(torch.bfloat16)
    assert 0 < (half - exact).norm() < 0.02 * exact.norm()
    (gradient,) = torch.autograd.grad(half.sum(), x)
    assert gradient.isfinite().all()
    assert gradient.any()
