"""Products over single rows against loops over single edges and dense matrices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dglcell.graph.resident_graph import ResidentRelation
from dglcell.kernels.rows import RowIndex, mark, pull, push, sum_rows
from tests.examples import examples
from tests.kernels.test_spmm import random_relation

EXACT = {"atol": 1e-12, "rtol": 1e-12}
WIDTHS = st.sampled_from([1, 3, 32, 64, 96])


def listed(index: RowIndex) -> Iterator[tuple[int, int]]:
    return zip(index.nodes.tolist(), index.strains.tolist(), strict=True)


class Case:
    """A random relation with multi-edges and hubs, and pairs at both of its ends."""

    def __init__(self, seed: int, *, weighted: bool) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        rng = np.random.default_rng(seed)
        self.relation, self.B = random_relation(seed, weighted)[0], int(rng.integers(1, 9))
        self.N, self.M = self.relation.num_src, self.relation.num_dst
        share = float(rng.choice([0.0, 0.3, 1.0]))
        self.sources = RowIndex(torch.rand(self.N, self.B, generator=self.generator) < share)
        self.targets = RowIndex(torch.rand(self.M, self.B, generator=self.generator) < 0.6)

    def values(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=self.generator)

    def positions(self, number: int, count: int) -> Tensor:
        """[number, B] int32 rows below ``count``, some of them negative."""
        return torch.randint(-2, count, (number, self.B), generator=self.generator, dtype=torch.int32)

    def edges(self, reverse: bool) -> Iterator[tuple[int, int, float]]:
        """Own end, other end and weight of every edge."""
        edges = self.relation
        weight = torch.ones(edges.num_edges) if edges.weight is None else edges.weight
        ends = (edges.src, edges.dst) if reverse else (edges.dst, edges.src)
        return zip(ends[0].tolist(), ends[1].tolist(), weight.tolist(), strict=True)


@examples(30)
@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans())
def test_marks_are_at_the_ends_of_edges_and_where_they_were(seed: int, weighted: bool) -> None:
    case = Case(seed, weighted=weighted)
    mask_MB = torch.rand(case.M, case.B, generator=case.generator) < 0.2
    expected = mask_MB.clone()
    for node, strain in listed(case.sources):
        for own, other, _ in case.edges(reverse=True):
            if own == node:
                expected[other, strain] = True
    mark(case.relation, case.sources, mask_MB)
    assert torch.equal(mask_MB, expected)


@examples(30)
@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans(), reverse=st.booleans(), width=WIDTHS)
def test_pull_adds_what_is_at_the_other_ends(seed: int, weighted: bool, reverse: bool, width: int) -> None:
    case = Case(seed, weighted=weighted)
    mine, others = (case.sources, case.N), (case.targets, case.M)
    index, number = (mine[0], others[1]) if reverse else (others[0], mine[1])
    source = case.values(11, width)
    table, out = case.positions(number, len(source)), case.values(len(index), width)
    expected = out.clone()
    for i, (node, strain) in enumerate(listed(index)):
        for own, other, weight in case.edges(reverse):
            row = int(table[other, strain])
            if own == node and row >= 0:
                expected[i] += weight * source[row]
    pull(case.relation, index, table, source, out, reverse=reverse)
    torch.testing.assert_close(out, expected, **EXACT)


@examples(30)
@given(seed=st.integers(0, 2**32 - 1), weighted=st.booleans(), share=st.sampled_from([0.0, 0.5, 1.0]), width=WIDTHS)
def test_push_adds_to_what_is_at_the_other_ends(seed: int, weighted: bool, share: float, width: int) -> None:
    case = Case(seed, weighted=weighted)
    index, generator = case.sources, torch.Generator().manual_seed(seed)
    there = RowIndex(torch.rand(case.M, case.B, generator=generator) < share)
    source, out = case.values(len(index) + 1, width), case.values(len(there), width)
    expected = out.clone()
    for i, (node, strain) in enumerate(listed(index)):
        for own, other, weight in case.edges(reverse=True):
            row = int(there.table[other, strain])
            if own == node and row >= 0:
                expected[row] += weight * source[i]
    push(case.relation, index, there.table, source, out)
    torch.testing.assert_close(out, expected, **EXACT)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_taken_in_the_precision_of_the_result(dtype: torch.dtype, weighted: bool) -> None:
    """300 ones, of which bfloat16 would lose all beyond 256."""
    E = 300
    many, one = torch.arange(E), torch.zeros(E, dtype=torch.int64)
    weight = torch.ones(E) if weighted else None
    relation = ResidentRelation(("a", "b", "c"), many, one, E, 1, weight)
    source, single = torch.ones(E, 3, dtype=dtype), torch.ones(1, 1, dtype=torch.int32) - 1
    outs = [torch.zeros(1, 3) for _ in range(2)]
    pull(
        relation, RowIndex(torch.ones(1, 1, dtype=torch.bool)), many.int().unsqueeze(1), source, outs[0], reverse=False
    )
    push(relation, RowIndex(torch.ones(E, 1, dtype=torch.bool)), single, source, outs[1])
    assert [out.tolist() for out in (*outs, sum_rows(source, one, 1))] == [[[E] * 3]] * 3


def test_results_are_the_same_for_any_number_of_threads() -> None:
    generator = torch.Generator().manual_seed(0)
    N, B, E, width = 300, 6, 5000, 64
    ends = torch.randint(0, N, (2, E), generator=generator)
    relation = ResidentRelation(("a", "b", "c"), *ends, N, N, torch.randn(E, generator=generator))
    index = RowIndex(torch.rand(N, B, generator=generator) < 0.5)
    every = RowIndex(torch.ones(N, B, dtype=torch.bool))
    source = torch.randn(len(every), width, generator=generator)

    def results() -> list[Tensor]:
        pulled, pushed = torch.zeros(len(index), width), torch.zeros(len(every), width)
        pull(relation, index, every.table, source, pulled, reverse=True)
        push(relation, index, every.table, source, pushed)
        where = torch.randint(0, 11, (5000,), generator=torch.Generator().manual_seed(1))
        return [pulled, pushed, sum_rows(source[where * 100], where, 11)]

    torch.set_num_threads(1)
    first = results()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for x, y in zip(first, results(), strict=True):
            assert torch.equal(x, y)
