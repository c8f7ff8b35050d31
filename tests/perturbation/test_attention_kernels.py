"""Attention with any score: whole states against loops over nodes and strains, differences against whole states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.graph.resident import ResidentRelation
from dglcell.perturbation import edge_blocks
from dglcell.perturbation.attention import Score, attend, attend_differences, attend_pairs
from dglcell.perturbation.edge_blocks import cut
from tests.examples import examples
from tests.perturbation.states_of import LargestResult

HEADS, DEPTH = 2, 3
WIDTH = HEADS * DEPTH
EXACT = {"atol": 1e-10, "rtol": 1e-10}
SEEDS = st.integers(0, 2**32 - 1)
BUDGETS = st.sampled_from([1, 1000, 10**6])
"""Bytes of a block."""


def gatv2(parameters: list[Tensor], slope: float) -> Score:
    vector, edge_vector = parameters[0], parameters[1]

    def score(keys: Any, queries: Any, weights: Any) -> Any:
        x = keys + queries if weights is None else keys + queries + weights.unsqueeze(1) * edge_vector
        return (F.leaky_relu(x, slope).unflatten(-1, (HEADS, DEPTH)) * vector.view(HEADS, DEPTH)).sum(-1)

    return score


def dot_product(parameters: list[Tensor]) -> Score:
    def score(keys: Any, queries: Any, weights: Any) -> Any:
        product = (keys.unflatten(-1, (HEADS, DEPTH)) * queries.unflatten(-1, (HEADS, DEPTH))).sum(-1)
        return product if weights is None else product * weights.unsqueeze(1) + parameters[0][:HEADS]

    return score


def additive(parameters: list[Tensor]) -> Score:
    """Keys alone, through a layer of their own."""
    matrix = parameters[0].outer(parameters[1])

    def score(keys: Any, queries: Any, weights: Any) -> Any:
        return F.linear(torch.tanh(F.linear(keys, matrix)), matrix[:HEADS])

    return score


def by_weight(parameters: list[Tensor]) -> Score:
    """Neither keys nor queries."""

    def score(keys: Any, queries: Any, weights: Any) -> Any:
        if weights is None:
            return parameters[0].new_zeros(keys.shape[0], HEADS)
        return weights.unsqueeze(1) * parameters[0][:HEADS]

    return score


SCORES: dict[str, Callable[[list[Tensor]], Score]] = {
    "gatv2": lambda parameters: gatv2(parameters, 0.2),
    "relu": lambda parameters: gatv2(parameters, 0.0),
    "dot product": dot_product,
    "additive": additive,
    "by weight": by_weight,
}


def reference(
    edges: ResidentRelation, keys: Tensor, queries: Tensor, keep: tuple[Tensor, Tensor], score: Score
) -> Tensor:
    """[M, C, H], node by node."""
    rows = []
    for v in range(edges.num_dst):
        for c in range(keys.shape[1]):
            alive = (edges.dst == v) & keep[0][edges.src, c] & keep[1][v, c]
            value = keys[edges.src[alive], c]
            weight = None if edges.weight is None else edges.weight[alive]
            share = score(value, queries[v, c].expand(value.shape), weight).softmax(0)
            rows.append((share.unsqueeze(-1) * value.unflatten(1, (HEADS, -1))).sum(0).flatten())
    return torch.stack(rows).view(edges.num_dst, keys.shape[1], -1)


class Case:
    """A random relation with parallel edges, self-loops and nodes without edges, and what strains lose and change."""

    def __init__(self, seed: int, *, bipartite: bool, weighted: bool = True) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.N = self.integer(1, 8)
        self.M = self.integer(1, 8) if bipartite else self.N
        self.B, E = self.integer(1, 4), self.integer(0, 40)
        ends = (torch.randint(0, size, (E,), generator=self.generator) for size in (self.N, self.M))
        self.edges = ResidentRelation(
            ("gene", "random", "gene"), *ends, self.N, self.M, self.values(E) if weighted else None
        )
        gone, gone_in_base = (self.choice([0.0, 0.3, 0.7, 1.0]), self.choice([0.0, 0.3]))
        self.base_keep = self.mask(self.N, 1, gone_in_base), self.mask(self.M, 1, gone_in_base)
        self.keep = self.mask(self.N, self.B, gone), self.mask(self.M, self.B, gone)
        self.keep = self.keep[0] & self.base_keep[0], self.keep[1] & self.base_keep[1]
        self.size = self.choice([1e-3, 1.0, 10.0])
        self.parameters = [self.values(WIDTH).requires_grad_() for _ in range(2)]

    def integer(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def choice(self, values: list[float]) -> float:
        return values[self.integer(0, len(values) - 1)]

    def values(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=self.generator)

    def leaf(self, *shape: int, size: float = 1.0) -> Tensor:
        return (size * self.values(*shape)).requires_grad_()

    def mask(self, rows: int, columns: int, gone: float) -> Tensor:
        return torch.rand(rows, columns, generator=self.generator) >= gone

    def expected(
        self, keys: tuple[Tensor, Tensor | None], queries: tuple[Tensor, Tensor | None], score: Score
    ) -> Tensor:
        """[M, B, H] differences of the attention to whole states."""
        whole = [
            (x.unsqueeze(1) if d is None else x.unsqueeze(1) + d).expand(-1, self.B, -1) for x, d in (keys, queries)
        ]
        base = reference(self.edges, keys[0].unsqueeze(1), queries[0].unsqueeze(1), self.base_keep, score)
        return reference(self.edges, *whole, self.keep, score) - base


def gradients(y: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """Of a fixed random combination of the results."""
    if not y.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    upstream = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1))
    return list(torch.autograd.grad(y, leaves, upstream, retain_graph=True, allow_unused=True, materialize_grads=True))


def agree(y: Tensor, expected: Tensor, leaves: list[Tensor]) -> None:
    torch.testing.assert_close(y, expected, **EXACT)
    for x, z in zip(gradients(y, leaves), gradients(expected, leaves), strict=True):
        torch.testing.assert_close(x, z, **EXACT)


@contextmanager
def blocks_of(budget: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(edge_blocks.BLOCK_BYTES, "cpu", budget)
        yield


@examples(10)
@given(seed=SEEDS, bipartite=st.booleans(), weighted=st.booleans(), kind=st.sampled_from(list(SCORES)), budget=BUDGETS)
def test_whole_states_attend_as_node_by_node(
    seed: int, bipartite: bool, weighted: bool, kind: str, budget: int
) -> None:
    case = Case(seed, bipartite=bipartite, weighted=weighted)
    score = SCORES[kind](case.parameters)
    keys, queries = case.leaf(case.N, case.B, WIDTH), case.leaf(case.M, case.B, WIDTH)
    with blocks_of(budget):
        y = attend(case.edges, keys, queries, case.keep, score)
        agree(y, reference(case.edges, keys, queries, case.keep, score), [keys, queries, *case.parameters])


@examples(25)
@given(
    seed=SEEDS,
    bipartite=st.booleans(),
    weighted=st.booleans(),
    differ=st.sampled_from(["keys", "queries", "both", "none"]),
    kind=st.sampled_from(list(SCORES)),
    budget=BUDGETS,
)
def test_differences_equal_those_of_whole_states(
    seed: int, bipartite: bool, weighted: bool, differ: str, kind: str, budget: int
) -> None:
    case = Case(seed, bipartite=bipartite, weighted=weighted)
    score = SCORES[kind](case.parameters)
    key, query = case.leaf(case.N, WIDTH), case.leaf(case.M, WIDTH)
    key_delta = case.leaf(case.N, case.B, WIDTH, size=case.size) if differ in ("keys", "both") else None
    query_delta = case.leaf(case.M, case.B, WIDTH, size=case.size) if differ in ("queries", "both") else None
    keys, queries = (key, key_delta), (query, query_delta)
    leaves = [x for x in (*keys, *queries, *case.parameters) if x is not None]
    with blocks_of(budget):
        y = attend_differences(case.edges, keys, queries, case.base_keep, case.keep, score)
        agree(y, case.expected(keys, queries, score), leaves)


@examples(18)
@given(
    seed=SEEDS,
    bipartite=st.booleans(),
    weighted=st.booleans(),
    differ=st.sampled_from(["keys", "queries", "both", "none"]),
    kind=st.sampled_from(list(SCORES)),
    budget=BUDGETS,
)
def test_listed_pairs_equal_dense_ones(
    seed: int, bipartite: bool, weighted: bool, differ: str, kind: str, budget: int
) -> None:
    case = Case(seed, bipartite=bipartite, weighted=weighted)
    score = SCORES[kind](case.parameters)
    key, query = case.leaf(case.N, WIDTH), case.leaf(case.M, WIDTH)
    changed_NB, chosen_MB = case.mask(case.N, case.B, 0.5), case.mask(case.M, case.B, case.choice([0.0, 0.5, 1.0]))
    table_NB = torch.full(changed_NB.shape, -1, dtype=torch.int32)
    table_NB[changed_NB] = torch.arange(int(changed_NB.sum()), dtype=torch.int32)
    pairs = chosen_MB.nonzero().unbind(1)
    key_delta = case.leaf(int(changed_NB.sum()), WIDTH, size=case.size) if differ in ("keys", "both") else None
    query_delta = case.leaf(len(pairs[0]), WIDTH, size=case.size) if differ in ("queries", "both") else None
    dense_keys = dense_queries = None
    if key_delta is not None:
        dense_keys = torch.zeros(case.N, case.B, WIDTH, dtype=torch.float64).masked_scatter(
            changed_NB.unsqueeze(-1), key_delta
        )
    if query_delta is not None:
        dense_queries = torch.zeros(case.M, case.B, WIDTH, dtype=torch.float64).index_put(pairs, query_delta)
    keys, queries = (key, key_delta), (query, query_delta)
    with blocks_of(budget):
        y = attend_pairs(case.edges, pairs, keys, table_NB, queries, case.base_keep, case.keep, score)
        expected = case.expected((key, dense_keys), (query, dense_queries), score)[pairs]
        agree(y, expected, [x for x in (*keys, *queries, *case.parameters) if x is not None])


def example(nodes: int = 200, edges: int = 4000, strains: int = 4, width: int = 32) -> tuple[Any, ...]:
    """Return strains that lose a gene each and differ a little from the base elsewhere, in float32 numbers."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, nodes, (2, edges), generator=generator)
    relation = ResidentRelation(("gene", "random", "gene"), *ends, nodes, nodes, None)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    keys, queries = ((draw(nodes, width), 1e-4 * draw(nodes, strains, width)) for _ in range(2))
    keep_NB = torch.arange(nodes).unsqueeze(1) != torch.arange(strains)
    base_N1, vector = torch.ones(nodes, 1, dtype=torch.bool), draw(4, width // 4) / 2
    return relation, keys, queries, (base_N1, base_N1), (keep_NB, keep_NB), vector


def scored_by(vector: Tensor) -> Score:
    def score(keys: Any, queries: Any, weights: Any) -> Any:
        return (F.leaky_relu(keys + queries, 0.2).unflatten(-1, vector.shape) * vector.to(keys.dtype)).sum(-1)

    return score


def wide(x: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return x[0].double(), x[1].double()


def error(got: Tensor, expected: Tensor) -> float:
    return float((got.detach().double() - expected).norm() / expected.norm())


def test_small_differences_keep_their_digits_in_single_precision() -> None:
    edges, keys, queries, base_keep, keep, vector = example()
    score, wide_score = scored_by(vector), scored_by(vector.double())
    expected = attend_differences(edges, wide(keys), wide(queries), base_keep, keep, wide_score)
    got = attend_differences(edges, keys, queries, base_keep, keep, score)
    whole = attend(edges, *((x.unsqueeze(1) + d) for x, d in (keys, queries)), keep, score)
    base = attend(edges, keys[0].unsqueeze(1), queries[0].unsqueeze(1), base_keep, score)
    untouched = torch.isin(edges.dst, edges.dst[~keep[0][edges.src].all(1)], invert=True)
    rows = edges.dst[untouched].unique()  # no in-neighbour of these is lost
    rows = rows[keep[1][rows].all(1)]
    assert len(rows) > 50
    assert got.dtype == torch.float32
    assert error(got, expected) < 1e-5
    assert error(got[rows], expected[rows]) < 1e-5
    assert error((whole - base)[rows], expected[rows]) > 1e-4


def test_an_edge_with_nearly_all_of_the_weight_does_no_harm() -> None:
    nodes, far = 40, 25.0
    relation = ResidentRelation(
        ("gene", "star", "gene"), torch.arange(nodes), torch.zeros(nodes, dtype=torch.int64), nodes, 1, None
    )
    key, query = torch.randn(nodes, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(1, 4)
    key[0, 0] = far
    vector = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    keep = torch.ones(nodes, 2, dtype=torch.bool), torch.ones(1, 2, dtype=torch.bool)
    keep[0][0, 1] = False
    base_keep = torch.ones(nodes, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool)
    got = attend_differences(relation, (key, None), (query, None), base_keep, keep, scored_by(vector))
    wide_key, wide_query = (key.double(), None), (query.double(), None)
    expected = attend_differences(relation, wide_key, wide_query, base_keep, keep, scored_by(vector.double()))
    assert not got[:, 0].any()
    assert error(got, expected) < 1e-6


def test_differences_in_bfloat16() -> None:
    edges, keys, queries, base_keep, keep, vector = example()
    expected = attend_differences(edges, wide(keys), wide(queries), base_keep, keep, scored_by(vector.double()))
    half = [(x, d.bfloat16().requires_grad_()) for x, d in (keys, queries)]
    with torch.autocast("cpu", torch.bfloat16):
        got = attend_differences(edges, *half, base_keep, keep, scored_by(vector))
    assert got.dtype == torch.bfloat16
    assert error(got, expected) < 0.02
    grads = torch.autograd.grad(got.float().square().sum(), [d for _, d in half])
    assert [x.dtype for x in grads] == [torch.bfloat16] * 2
    assert all(x.isfinite().all() and x.any() for x in grads)


@pytest.mark.parametrize("size", [1e3, 1e4])
def test_large_scores_stay_finite(size: float) -> None:
    edges, keys, queries, base_keep, keep, vector = example(nodes=20, edges=100)
    leaves = [x.clone().mul_(size).requires_grad_() for x in (*keys, *queries)]
    y = attend_differences(edges, tuple(leaves[:2]), tuple(leaves[2:]), base_keep, keep, scored_by(vector))
    assert y.isfinite().all()
    assert all(x.isfinite().all() for x in torch.autograd.grad(y.sum(), leaves))


def test_gradients_can_be_taken_again_and_of_a_part() -> None:
    case = Case(5, bipartite=True, weighted=True)
    key, key_delta = case.leaf(case.N, WIDTH), case.leaf(case.N, case.B, WIDTH)
    query = case.leaf(case.M, WIDTH)
    args = (case.edges, (key, key_delta), (query, None), case.base_keep, case.keep, SCORES["gatv2"](case.parameters))
    y = attend_differences(*args)
    leaves = [key, key_delta, query, *case.parameters]
    first = torch.autograd.grad(y.sum(), leaves, retain_graph=True)
    part = torch.autograd.grad(y.sum(), [query], retain_graph=True)
    second = torch.autograd.grad(y.sum(), leaves)
    assert torch.equal(part[0], first[2])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    with torch.no_grad():
        assert torch.equal(attend_differences(*args), y)


def hub(genes: int, own: int) -> ResidentRelation:
    """Every gene acts on gene 0, and on ``own`` others."""
    source = torch.cat([torch.arange(genes), torch.arange(genes).repeat_interleave(own)])
    others = torch.randint(0, genes, (genes * own,), generator=torch.Generator().manual_seed(0))
    destination = torch.cat([torch.zeros(genes, dtype=torch.int64), others])
    return ResidentRelation(("gene", "hub", "gene"), source, destination, genes, genes, None)


def test_no_tensor_is_as_large_as_edges_times_strains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(edge_blocks.BLOCK_BYTES, "cpu", 2**12)
    genes, strains, width = 60, 16, 4
    edges, generator = hub(genes, own=30), torch.Generator().manual_seed(0)
    draws = [torch.randn(genes, *shape, width, generator=generator) for shape in ((), (strains,))]
    base, delta = (x.requires_grad_() for x in draws)
    keep_NB = torch.rand(genes, strains, generator=generator) > 0.1
    one = torch.ones(genes, 1, dtype=torch.bool)
    score = scored_by(torch.randn(2, 2, generator=generator, requires_grad=True))
    with LargestResult() as results:
        y = attend_differences(edges, (base, delta), (base, delta), (one, one), (keep_NB, keep_NB), score)
        (y + attend(edges, delta, delta, (keep_NB, keep_NB), score)).square().sum().backward()
    # States themselves are as large as nodes × strains × width.
    assert genes * strains * width <= results.largest < edges.num_edges * strains / 4


def test_a_block_holds_no_more_than_its_limit() -> None:
    edges, limit = hub(200, own=5), 512
    blocks = [
        (rows.stop - rows.start, width, columns.stop - columns.start)
        for rows, width, columns in cut(edges.by_in_degree[1], 32, limit)
    ]
    assert max(prod(block) for block in blocks) <= limit
    assert blocks[0][0] == 1
    assert blocks[0][2] == 2  # the hub, two strains at a time
    assert sum(n * b for n, _, b in blocks) == int((edges.in_degrees > 0).sum()) * 32


def test_a_score_with_heads_that_do_not_fit_is_refused() -> None:
    edges, keys, queries, base_keep, keep, _ = example(nodes=10, edges=20)
    with pytest.raises(RuntimeError, match="unflatten"):
        attend_differences(edges, keys, queries, base_keep, keep, lambda k, q, w: k[:, :5])
