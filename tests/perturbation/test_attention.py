"""Attention under all strategies, against dense numpy on every strain's reduced graph and against the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dglcell.errors import ConfigError
from dglcell.kernels import attention
from dglcell.kernels.attention import GATv2Score
from dglcell.perturbation import difference_attention
from dglcell.perturbation.edge_perturbation import EdgePerturbations
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.knockout import keep_masks
from dglcell.perturbation.perturb import EDGE_STRATEGIES, STRATEGIES, PerturbedCell, perturb
from dglcell.perturbation.row_index import RowIndex
from dglcell.perturbation.states import DenseStates, SharedStates, States
from tests.perturbation.test_difference import batches_of, ring
from tests.perturbation.test_edge_perturbation import as_perturbations
from tests.random_cells import Changes, RandomCell, changes_of, genotypes_of, random_cells

TOLERANCE = {"atol": 1e-10, "rtol": 1e-10}
HEADS, DEPTH = 2, 3
PHYSICAL = ("gene", "physical", "gene")
BUDGETS = st.sampled_from([None, 1, 500, 10**6])
"""Bytes of a block; None for compiled loops."""


@dataclass
class Case:
    """Inputs of one relation; ``leaves`` are what gradients are taken of."""

    keys: Tensor
    queries: Tensor
    vector: Tensor
    edge_vector: Tensor | None
    slope: float

    @classmethod
    def random(cls, cell: RandomCell, relation: tuple[str, str, str], columns: int, slope: float) -> Case:
        generator = torch.Generator().manual_seed(columns)

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, dtype=torch.float64, generator=generator, requires_grad=True)

        nodes, width = (cell.sizes[relation[0]], cell.sizes[relation[2]]), HEADS * DEPTH
        edge_vector = draw(width) if relation in cell.weights else None
        return cls(
            draw(nodes[0], columns, width), draw(nodes[1], columns, width), draw(HEADS, DEPTH), edge_vector, slope
        )

    @property
    def score(self) -> GATv2Score:
        return GATv2Score(self.vector, self.edge_vector, self.slope)

    @property
    def leaves(self) -> list[Tensor]:
        return [x for x in (self.keys, self.queries, self.vector, self.edge_vector) if x is not None]


def dense_attend(
    cell: RandomCell,
    relation: tuple[str, str, str],
    strains: list[list[int]],
    case: Case,
    changes: list[Changes] | None = None,
) -> Tensor:
    """[M, B, H], node by node."""
    vector = case.vector.detach().numpy()
    out = np.zeros((cell.sizes[relation[2]], len(strains), HEADS, DEPTH))
    for b, strain in enumerate(strains):
        column = b if case.keys.shape[1] > 1 else 0
        keys, queries = case.keys.detach().numpy()[:, column], case.queries.detach().numpy()[:, column]
        surviving = cell.surviving(relation, strain, changes and changes[b])
        for v in {v for _, v, _ in surviving}:
            logits, values = [], []
            for u, w in [(u, w) for u, other, w in surviving if other == v]:
                x = keys[u] + queries[v]
                if case.edge_vector is not None:
                    x = x + w * case.edge_vector.detach().numpy()
                logits.append((np.where(x > 0, x, case.slope * x).reshape(HEADS, DEPTH) * vector).sum(1))
                values.append(keys[u].reshape(HEADS, DEPTH))
            share = np.exp(logits) / np.exp(logits).sum(0)
            out[v, b] = (share[:, :, None] * values).sum(0)
    return torch.as_tensor(out.reshape(*out.shape[:2], -1))


def gradients(y: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """Of a fixed random combination of the results."""
    if not y.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    upstream = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1))
    return list(torch.autograd.grad(y, leaves, upstream, allow_unused=True, materialize_grads=True))


@contextmanager
def blocks_of(budget: int | None) -> Iterator[None]:
    """Attention in blocks as on a GPU, or as by default on a CPU."""
    with pytest.MonkeyPatch.context() as patch:
        if budget is not None:
            patch.setattr(attention, "COMPILED_DEVICES", ())
            patch.setitem(attention.BLOCK_BYTES, "cpu", budget)
        yield


def agree(got: list[Tensor], expected: list[Tensor], where: str) -> None:
    for x, y in zip(got, expected, strict=True):
        torch.testing.assert_close(x, y, msg=lambda text: f"{where}: {text}", **TOLERANCE)


@settings(max_examples=30)
@given(data=st.data(), cell=random_cells(), shared=st.booleans(), slope=st.sampled_from([0.0, 0.2]), budget=BUDGETS)
def test_attention_equals_the_reduced_graph(
    data, cell: RandomCell, shared: bool, slope: float, budget: int | None
) -> None:
    strains = data.draw(genotypes_of(cell))
    batch = GenotypeBatch.from_lists(strains)
    with blocks_of(budget):
        for relation in cell.edges:
            case = Case.random(cell, relation, 1 if shared else len(strains), slope)
            expected, oracle = dense_attend(cell, relation, strains, case), None
            for strategy in STRATEGIES:
                perturbed = perturb(cell.resident, batch, strategy)
                states = DenseStates(case.keys), DenseStates(case.queries)
                y = perturbed.attend(relation, *states, case.score).dense()
                agree([y.detach()], [expected], strategy)
                got = gradients(y, case.leaves)
                oracle = oracle or got  # `edge_subgraph` comes first
                agree(got, oracle, strategy)


@st.composite
def shared_states(draw: st.DrawFn, nodes: int, strains: int, base_N1: Tensor) -> SharedStates:
    """No, few or all rows changed of those that the base keeps."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from([None, 0.0, 0.2, 1.0]))
    chosen_NB = torch.rand(nodes, strains, generator=generator) < (share or 0.0)
    index = None if share is None else RowIndex.where(chosen_NB & base_N1)
    rows = nodes + (0 if index is None else len(index))
    x = torch.randn(rows, HEADS * DEPTH, dtype=torch.float64, generator=generator, requires_grad=True)
    return SharedStates(x, index)


@settings(max_examples=60)
@given(data=st.data(), cell=random_cells(), dense_share=st.sampled_from([0.0, 0.3, 1e9]), budget=BUDGETS)
def test_shared_states_attend_as_dense_ones(data, cell: RandomCell, dense_share: float, budget: int | None) -> None:
    strains, batch = data.draw(batches_of(cell))
    relation, base = data.draw(st.sampled_from(sorted(cell.edges))), keep_masks(cell.resident, batch.of_shared())
    states = [data.draw(shared_states(cell.sizes[t], len(strains), base[t])) for t in (relation[0], relation[2])]
    case = Case.random(cell, relation, len(strains), 0.2)
    leaves = [*case.leaves[2:], *(s.x_XH for s in states)]

    def outcome(perturbed: PerturbedCell, keys: States, queries: States) -> list[Tensor]:
        y = perturbed.attend(relation, keys, queries, case.score).dense().expand(-1, len(strains), -1)
        return [y.detach(), *gradients(y, leaves)]

    dense = [DenseStates(s.dense().expand(-1, len(strains), -1)) for s in states]
    expected = outcome(perturb(cell.resident, batch, "edge_subgraph"), *dense)
    with blocks_of(budget), pytest.MonkeyPatch.context() as patch:
        patch.setattr(difference_attention, "DENSE_SHARE", dense_share)
        agree(outcome(perturb(cell.resident, batch, "difference"), *states), expected, "difference")


@settings(max_examples=30)
@given(data=st.data(), cell=random_cells())
def test_changed_edges_are_attended_to_as_in_the_reduced_graph(data, cell: RandomCell) -> None:
    strains = data.draw(genotypes_of(cell))
    changes = data.draw(changes_of(cell, len(strains)))
    for relation in cell.edges:
        mine = {relation: changes[relation]} if relation in changes else {}
        case = Case.random(cell, relation, len(strains), 0.2)
        if case.edge_vector is None:
            case.edge_vector = torch.ones(HEADS * DEPTH, dtype=torch.float64, requires_grad=True)
        expected, oracle = dense_attend(cell, relation, strains, case, mine.get(relation)), None
        for strategy in EDGE_STRATEGIES:
            edges, weights = as_perturbations(cell, len(strains), mine)
            perturbed = perturb(cell.resident, GenotypeBatch.from_lists(strains), strategy, edges=edges)
            y = perturbed.attend(relation, DenseStates(case.keys), DenseStates(case.queries), case.score).dense()
            agree([y.detach()], [expected], strategy)
            got = gradients(y, [*case.leaves, weights])
            oracle = oracle or got  # both are compared with the first
            agree(got, oracle, strategy)


@pytest.mark.parametrize("strategy", EDGE_STRATEGIES)
def test_weights_that_attention_would_not_see_are_refused(strategy: str) -> None:
    cell, batch = ring(4), GenotypeBatch.from_lists([[]])
    edges = EdgePerturbations.build(cell.resident, 1, weights=[(0, PHYSICAL, 0, 1, 2.0)])
    x = DenseStates(torch.ones(4, 1, 6, dtype=torch.float64))
    with pytest.raises(ConfigError, match=r"'physical': the attention does not depend on edge weights.*\n.*1 edges"):
        perturb(cell.resident, batch, strategy, edges=edges).attend(PHYSICAL, x, x, GATv2Score(torch.ones(2, 3)))


def test_only_the_rows_that_attend_to_something_else_are_stored() -> None:
    cell, score = ring(20), GATv2Score(torch.ones(1, 1, dtype=torch.float64))
    perturbed = perturb(cell.resident, GenotypeBatch.from_lists([[], [3], [3, 7]]), "difference")
    x = torch.arange(20.0, dtype=torch.float64).unsqueeze(1)
    first = perturbed.attend(PHYSICAL, States.shared(x), States.shared(x), score)
    assert isinstance(first, SharedStates)
    assert first.index is not None
    pairs = set(zip(first.index.nodes.tolist(), first.index.strains.tolist(), strict=True))
    assert pairs == {(3, 1), (4, 1), (3, 2), (4, 2), (7, 2), (8, 2)}
    assert not first.rows_KH.any()
    one_node = RowIndex.where(torch.eye(20, 3, dtype=torch.bool)[:, :1].expand(-1, 3))
    queries = SharedStates(torch.cat([x, x.new_ones(3, 1)]), one_node)
    unchanged = perturb(cell.resident, GenotypeBatch.from_lists([[], [], []]), "difference")
    second = unchanged.attend(PHYSICAL, States.shared(x), queries, score)
    assert isinstance(second, SharedStates)
    assert second.index is not None
    assert second.index.nodes.tolist() == [0, 0, 0]
    assert second.rows_KH.flatten().tolist() == [19.0] * 3


def hub(genes: int, own: int) -> RandomCell:
    """Every gene acts on gene 0, and on ``own`` others."""
    rng = np.random.default_rng(0)
    source = np.concatenate([np.arange(genes), np.repeat(np.arange(genes), own)])
    destination = np.concatenate([np.zeros(genes, dtype=int), rng.integers(0, genes, genes * own)])
    return RandomCell({"gene": genes}, {PHYSICAL: (source, destination)}, {})


class LargestResult(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operator makes (views do not count)."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        held = {x.untyped_storage().data_ptr() for x in args if isinstance(x, Tensor)}
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in held:
                self.largest = max(self.largest, x.untyped_storage().nbytes() // x.element_size(), prod(x.shape))
        return out


@pytest.mark.parametrize(("strategy", "budget"), [("node_mask", None), ("node_mask", 2**12), ("difference", 2**12)])
def test_no_tensor_is_as_large_as_edges_times_strains(strategy: str, budget: int | None) -> None:
    genes, strains, width = 60, 16, 4
    resident, generator = hub(genes, own=30).resident.float(), torch.Generator().manual_seed(0)
    E = resident[PHYSICAL].num_edges
    perturbed = perturb(resident, GenotypeBatch.from_lists([[b] for b in range(strains)]), strategy)
    x = torch.randn(genes, 1 if strategy == "difference" else strains, width, generator=generator, requires_grad=True)
    states = States.shared(x.squeeze(1)) if strategy == "difference" else DenseStates(x)
    score = GATv2Score(torch.randn(2, 2, generator=generator, requires_grad=True))
    with blocks_of(budget), LargestResult() as results:
        perturbed.attend(PHYSICAL, states, states, score).dense().square().sum().backward()
    # States themselves are as large as nodes × strains × width.
    assert genes * strains * width <= results.largest < E * strains / 4


def test_a_block_holds_no_more_than_its_limit() -> None:
    edges, limit = hub(200, own=5).resident[PHYSICAL], 512
    blocks = [
        (rows.stop - rows.start, width, columns.stop - columns.start)
        for rows, width, columns in attention.cut(edges.by_in_degree[1], 32, limit)
    ]
    assert max(prod(block) for block in blocks) <= limit
    assert blocks[0] == (1, 204, 2)  # the hub, two strains at a time
    assert sum(n * b for n, _, b in blocks) == int((edges.in_degrees > 0).sum()) * 32


@pytest.mark.parametrize(
    ("strategy", "budget"), [*((strategy, None) for strategy in STRATEGIES), ("node_mask", 100), ("difference", 100)]
)
def test_large_scores_stay_finite(strategy: str, budget: int | None) -> None:
    cell, batch = ring(5), GenotypeBatch.from_lists([[], [2]])
    source = np.concatenate([np.arange(5), np.arange(5)])
    cell.edges[PHYSICAL] = (source, np.concatenate([(np.arange(5) + 1) % 5, np.arange(5)]))
    x = (1e4 * torch.arange(-2.0, 3.0)).view(5, 1, 1).requires_grad_()
    score = GATv2Score(torch.full((1, 1), 1e3, requires_grad=True))
    states = DenseStates(x)
    with blocks_of(budget):
        y = perturb(cell.resident.float(), batch, strategy).attend(PHYSICAL, states, states, score).dense()
        (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.isfinite().all()
    assert gradient.isfinite().all()
    assert y[4].flatten().tolist() == [2e4, 2e4]
    assert y[2:4, 1].flatten().tolist() == [0.0, 1e4]


@pytest.mark.parametrize("budget", [None, 1000])
def test_half_precision_under_autocast(budget: int | None) -> None:
    cell = hub(12, own=2)
    batch, case = GenotypeBatch.from_lists([[], [3]]), Case.random(cell, PHYSICAL, 2, 0.2)
    keys, queries = (x.detach().bfloat16().requires_grad_() for x in (case.keys, case.queries))
    score = GATv2Score(case.vector.detach().float().requires_grad_())
    with blocks_of(budget), torch.autocast("cpu", torch.bfloat16):
        perturbed = perturb(cell.resident.float(), batch)
        y = perturbed.attend(PHYSICAL, DenseStates(keys), DenseStates(queries), score).dense()
    assert y.dtype == torch.bfloat16
    expected = dense_attend(cell, PHYSICAL, [[], [3]], case)
    torch.testing.assert_close(y.double(), expected, atol=0.1, rtol=0.05)
    got = torch.autograd.grad(y.float().square().sum(), [keys, queries, score.vector])
    assert [x.dtype for x in got] == [torch.bfloat16, torch.bfloat16, torch.float32]
    assert all(x.isfinite().all() and x.any() for x in got)
