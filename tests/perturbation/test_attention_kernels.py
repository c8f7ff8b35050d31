"""Differences of attention: their digits, their gradients, and blocks of edges."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dglcell.graph.resident import ResidentRelation
from dglcell.perturbation.attention import Score, attend, attend_differences
from dglcell.perturbation.edge_blocks import cut
from tests.perturbation.states_of import PHYSICAL, hub


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


def test_gradients_can_be_taken_again_and_of_a_part() -> None:
    edges, keys, queries, base_keep, keep, vector = example(nodes=20, edges=100)
    leaves = [x.clone().requires_grad_() for x in (*keys, *queries, vector)]
    args = edges, tuple(leaves[:2]), tuple(leaves[2:4]), base_keep, keep, scored_by(leaves[4])
    y = attend_differences(*args)
    first = torch.autograd.grad(y.sum(), leaves, retain_graph=True)
    part = torch.autograd.grad(y.sum(), [leaves[2]], retain_graph=True)
    second = torch.autograd.grad(y.sum(), leaves)
    assert torch.equal(part[0], first[2])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    with torch.no_grad():
        assert torch.equal(attend_differences(*args), y)


def test_a_block_holds_no_more_than_its_limit() -> None:
    cell, limit = hub(200, own=5), 512
    edges = cell.resident[PHYSICAL]
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
